package interceptors

import (
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// Authorise lets through callers that have all scopes of a method. The refusal names all that the method needs, not only those that are missing, so
// that a client can ask for them at once.
func Authorise(Options) Policy {
	const name = "authorise"
	return inHalves(name, func(m *catalog.Method) *halves {
		need := m.Policy.Scopes
		if len(need) == 0 {
			return nil
		}
		all := strings.Join(need, " ")
		return &halves{enter: func(c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
			missing := c.Principal.Missing(need)
			if len(missing) == 0 {
				c.Decide(name, "allowed", all)
				return stream, nil
			}
			lacks := strings.Join(missing, " ")
			c.Decide(name, "refused", "lacks "+lacks)
			return nil, call.Error(codes.PermissionDenied, identity.InsufficientScope, fmt.Sprintf("the caller lacks the scopes %q of the %q that %s needs", lacks, all, m.FullMethod[1:]),
				"scopes", all, "hint", "get credentials with all these scopes and call again; repeating the call with the same ones does not help")
		}}
	})
}
