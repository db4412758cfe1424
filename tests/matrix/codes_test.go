package matrix_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/run"
)

// httpStatus is what each code is at the HTTP door; 401 and 403 stand for authorization alone.
var httpStatus = map[codes.Code]int{
	codes.Canceled: 499, codes.Unknown: 500, codes.InvalidArgument: 400, codes.DeadlineExceeded: 504, codes.NotFound: 404, codes.AlreadyExists: 409,
	codes.PermissionDenied: 403, codes.ResourceExhausted: 429, codes.FailedPrecondition: 400, codes.Aborted: 409, codes.OutOfRange: 400,
	codes.Unimplemented: 501, codes.Internal: 500, codes.Unavailable: 503, codes.DataLoss: 500, codes.Unauthenticated: 401,
}

// TestCodes lets the backend fail with every code there is: each door shows that code, with message and reason, and over MCP it is always a
// tool error, never a JSON-RPC or HTTP one. The mesh is one of its own, since failures open its breaker; a success between two closes it.
func TestCodes(t *testing.T) {
	t.Parallel()
	m, err := open("--backend", "probe="+backend)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
	m.Explain(t)
	for _, d := range doors(t, m) {
		t.Run(d.name, func(t *testing.T) {
			for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
				ctx, cancel := context.WithTimeout(t.Context(), run.Patience)
				id := strings.ReplaceAll(t.Name(), "/", "-") + "-" + code.String()
				o := mustCall(ctx, t, d, unary, ask{id: id, texts: []string{"a"}, plan: &probev1.Plan{Code: int32(code)}})
				if o.code != code || o.reason != "PLANNED" || !strings.Contains(o.message, "the plan says so") {
					t.Errorf("%v: got %v %q, reason %q", code, o.code, o.message, o.reason)
				}
				if want := httpStatus[code]; o.http != 0 && o.http != want {
					t.Errorf("%v: HTTP status %d, want %d", code, o.http, want)
				}
				if o := mustCall(ctx, t, d, unary, ask{id: id + "-ok", texts: []string{"a"}, plan: &probev1.Plan{}}); o.code != codes.OK {
					t.Errorf("after %v: %v %q, want OK", code, o.code, o.message)
				}
				cancel()
			}
		})
	}
}
