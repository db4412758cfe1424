package interceptors

import (
	"context"
	"strings"

	"google.golang.org/grpc"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// authenticate returns who makes a call, unless its door has found out that nobody who is known does.
func authenticate(ctx context.Context, a call.Authenticator, c *call.Call) (*identity.Principal, error) {
	if err := call.RefusalFrom(ctx); err != nil {
		return nil, err
	}
	return a.Authenticate(ctx, c.Credentials)
}

// Authenticate sets who calls, from the credentials of the call, unless its door has done so. Without an authenticator everybody is
// identity.Anonymous. The health service is open to all: load balancers and orchestrators have no credentials.
func Authenticate(o Options) Policy {
	const name = "authenticate"
	h := &halves{enter: func(c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
		switch {
		case c.Principal != nil: // the door's
		case o.Authenticator == nil:
			c.Principal = identity.Anonymous
		default:
			p, err := authenticate(stream.Context(), o.Authenticator, c)
			if err != nil {
				reason, _ := identity.Reason(err)
				c.Decide(name, "refused", reason)
				return nil, err
			}
			c.Principal = p
		}
		c.Decide(name, "known", c.Principal.How)
		return stream, nil
	}}
	p := inHalves(name, func(m *catalog.Method) *halves {
		if m.Service != nil && m.Service.Infrastructure && strings.HasPrefix(m.FullMethod, "/grpc.health.v1.Health/") {
			return nil
		}
		return h
	})
	p.quick = o.Authenticator == nil
	return p
}
