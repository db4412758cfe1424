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
	ic := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx := stream.Context()
		c := call.FromContext(ctx)
		switch {
		case c == nil:
			return errNoCall
		case c.Principal != nil: // the door's
		case o.Authenticator == nil:
			c.Principal = identity.Anonymous
		default:
			p, err := authenticate(ctx, o.Authenticator, c)
			if err != nil {
				reason, _ := identity.Reason(err)
				c.Decide(name, "refused", reason)
				return err
			}
			c.Principal = p
		}
		c.Decide(name, "known", c.Principal.How)
		return next(srv, stream)
	}
	return Policy{Name: name, quick: o.Authenticator == nil, For: func(m *catalog.Method) grpc.StreamServerInterceptor {
		if m.Service != nil && m.Service.Infrastructure && strings.HasPrefix(m.FullMethod, "/grpc.health.v1.Health/") {
			return nil
		}
		return ic
	}}
}
