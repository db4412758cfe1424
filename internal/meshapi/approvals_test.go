package meshapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/meshapi"
)

var (
	ann   = &identity.Principal{ID: "ann", Tenant: "t", How: "jwt"}
	boss  = &identity.Principal{ID: "boss", Tenant: "t", Scopes: []string{"ops:*"}, How: "jwt"}
	eve   = &identity.Principal{ID: "eve", Tenant: "t", How: "jwt"}
	alien = &identity.Principal{ID: "boss", Tenant: "u", Scopes: []string{"*"}, How: "jwt"}
)

// hold holds a call of a principal and returns the approval's id.
func hold(t testing.TB, store *interceptors.ApprovalMemory, by *identity.Principal, id string) string {
	t.Helper()
	held, _, err := store.List(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	a := interceptors.ApprovalRecord{
		ID: id, State: interceptors.ApprovalPending, Tenant: by.Tenant, Principal: by.ID, Method: "ops.v1.Ops/Restart", Tool: "ops_restart", Title: "Restart", Scope: "ops:approve",
		Arguments: `{"name":"web"}`, CallID: "c1", Door: "mcp", Created: time.Now().Add(time.Duration(len(held)) * time.Second), Expires: time.Now().Add(time.Hour),
	}
	copy(a.Binding[:], id)
	if _, err := store.Hold(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	return id
}

func service(t *testing.T, who *identity.Principal, o meshapi.ApprovalOptions) toolwayv1.ApprovalServiceClient {
	t.Helper()
	return toolwayv1.NewApprovalServiceClient(serve(t, who, func(r grpc.ServiceRegistrar) { meshapi.RegisterApprovals(r, o) }))
}

func reason(err error) string {
	st := status.Convert(err)
	for _, d := range st.Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			return st.Code().String() + " " + i.GetReason()
		}
	}
	return st.Code().String()
}

func TestApprovalDecisions(t *testing.T) {
	type call func(c toolwayv1.ApprovalServiceClient, id string) (*toolwayv1.HeldCall, error)
	approve := func(c toolwayv1.ApprovalServiceClient, id string) (*toolwayv1.HeldCall, error) {
		r, err := c.Approve(t.Context(), &toolwayv1.ApproveRequest{Id: id, Comment: "go"})
		return r.GetApproval(), err
	}
	refuse := func(c toolwayv1.ApprovalServiceClient, id string) (*toolwayv1.HeldCall, error) {
		r, err := c.Refuse(t.Context(), &toolwayv1.RefuseRequest{Id: id, Comment: "no"})
		return r.GetApproval(), err
	}
	get := func(c toolwayv1.ApprovalServiceClient, id string) (*toolwayv1.HeldCall, error) {
		r, err := c.GetApproval(t.Context(), &toolwayv1.GetApprovalRequest{Id: id})
		return r.GetApproval(), err
	}
	for _, c := range []struct {
		name  string
		by    *identity.Principal
		do    []call
		want  string
		state string
	}{
		{"the approver", boss, []call{approve}, "OK", "STATE_APPROVED boss go"},
		{"refuses", boss, []call{refuse}, "OK", "STATE_REFUSED boss no"},
		{"twice the same", boss, []call{approve, approve}, "OK", "STATE_APPROVED boss go"},
		{"first yes, then no", boss, []call{approve, refuse}, "FailedPrecondition APPROVAL_DECIDED", ""},
		{"the caller itself", ann, []call{approve}, "PermissionDenied INSUFFICIENT_SCOPE", ""},
		{"the caller itself looks", ann, []call{get}, "OK", "STATE_PENDING  "},
		{"the caller itself, with the scope", &identity.Principal{ID: "ann", Tenant: "t", Scopes: []string{"*"}, How: "jwt"}, []call{approve}, "PermissionDenied SELF_APPROVAL", ""},
		{"without the scope", eve, []call{approve}, "NotFound APPROVAL_NOT_FOUND", ""},
		{"another tenant", alien, []call{approve}, "NotFound APPROVAL_NOT_FOUND", ""},
		{"another tenant looks", alien, []call{get}, "NotFound APPROVAL_NOT_FOUND", ""},
		{"nobody", nil, []call{get}, "NotFound APPROVAL_NOT_FOUND", ""},
	} {
		store := interceptors.NewApprovalMemory(0)
		id := hold(t, store, ann, "a1")
		client := service(t, c.by, meshapi.ApprovalOptions{Store: store, Self: true}) // Self is for those who are not authenticated
		var got *toolwayv1.HeldCall
		var err error
		for _, do := range c.do {
			got, err = do(client, id)
		}
		state := ""
		if err == nil {
			state = fmt.Sprintf("%v %s %s", got.GetState(), got.GetDecidedBy(), got.GetComment())
		}
		if reason(err) != c.want || state != c.state {
			t.Errorf("%s: %v, %q; want %s, %q", c.name, err, state, c.want, c.state)
		}
	}
}

func TestApprovalOfWhatIsOver(t *testing.T) {
	store := interceptors.NewApprovalMemory(0)
	client := service(t, boss, meshapi.ApprovalOptions{Store: store})
	change := func(id string, f func(a *interceptors.ApprovalRecord)) {
		a, _, _ := store.Get(t.Context(), hold(t, store, ann, id))
		f(&a)
		if _, err := store.Swap(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	change("expired", func(a *interceptors.ApprovalRecord) { a.Expires = time.Now() })
	change("used", func(a *interceptors.ApprovalRecord) { a.State = interceptors.ApprovalUsed })
	change("confirm", func(a *interceptors.ApprovalRecord) { a.Confirm = true })
	for id, want := range map[string]string{
		"expired": "FailedPrecondition APPROVAL_DECIDED", "used": "FailedPrecondition APPROVAL_DECIDED", "confirm": "FailedPrecondition CONFIRMATION", "none": "NotFound APPROVAL_NOT_FOUND",
	} {
		if _, err := client.Approve(t.Context(), &toolwayv1.ApproveRequest{Id: id}); reason(err) != want {
			t.Errorf("%s: %v, want %s", id, err, want)
		}
	}
	if _, err := client.Refuse(t.Context(), &toolwayv1.RefuseRequest{Id: "used", Comment: strings.Repeat("ä", 1001)}); reason(err) != "InvalidArgument COMMENT_TOO_LONG" {
		t.Errorf("a long comment: %v", err)
	}
}

// TestSelfApproval is a mesh without authentication: everybody is the same principal.
func TestSelfApproval(t *testing.T) {
	for _, c := range []struct {
		name string
		self bool
		addr string
		door call.Door
		want string
	}{
		{"on this machine", true, "127.0.0.1:5000", call.GRPC, "OK"},
		{"on this machine, by IPv6", true, "[::1]:5000", call.HTTP, "OK"},
		{"from elsewhere", true, "192.0.2.7:5000", call.HTTP, "PermissionDenied SELF_APPROVAL"},
		{"by a name that is no address", true, "localhost", call.HTTP, "PermissionDenied SELF_APPROVAL"},
		{"by command", true, "", call.CLI, "OK"},
		{"not allowed", false, "127.0.0.1:5000", call.GRPC, "PermissionDenied SELF_APPROVAL"},
	} {
		store := interceptors.NewApprovalMemory(0)
		hold(t, store, identity.Anonymous, "a1")
		var impl toolwayv1.ApprovalServiceServer
		meshapi.RegisterApprovals(registrar(func(_ *grpc.ServiceDesc, s any) { impl = s.(toolwayv1.ApprovalServiceServer) }), meshapi.ApprovalOptions{Store: store, Self: c.self})
		ctx := peer.NewContext(call.NewContext(t.Context(), &call.Call{Principal: identity.Anonymous, Door: c.door}), &peer.Peer{Addr: address(c.addr)})
		if _, err := impl.Approve(ctx, &toolwayv1.ApproveRequest{Id: "a1"}); reason(err) != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

type registrar func(*grpc.ServiceDesc, any)

func (r registrar) RegisterService(d *grpc.ServiceDesc, impl any) { r(d, impl) }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func TestListApprovals(t *testing.T) {
	store := interceptors.NewApprovalMemory(0)
	for i := range 5 {
		hold(t, store, ann, fmt.Sprint("a", i))
	}
	hold(t, store, eve, "e")
	hold(t, store, alien, "x")
	ids := func(by *identity.Principal, size int32, state toolwayv1.HeldCall_State) string {
		client := service(t, by, meshapi.ApprovalOptions{Store: store})
		var out []string
		for token := ""; ; {
			page, err := client.ListApprovals(t.Context(), &toolwayv1.ListApprovalsRequest{PageSize: size, PageToken: token, State: state})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range page.GetApprovals() {
				out = append(out, a.GetId())
			}
			if token = page.GetNextPageToken(); token == "" {
				return strings.Join(out, " ")
			}
		}
	}
	for _, size := range []int32{0, 1, 2, 500} {
		if got := ids(boss, size, 0); got != "e a4 a3 a2 a1 a0" {
			t.Errorf("the approver in pages of %d: %s", size, got)
		}
	}
	if got := ids(ann, 0, 0); got != "a4 a3 a2 a1 a0" {
		t.Errorf("the caller: %s", got)
	}
	if got := ids(alien, 0, 0); got != "x" {
		t.Errorf("another tenant: %s", got)
	}
	if got := ids(boss, 0, toolwayv1.HeldCall_STATE_USED); got != "" {
		t.Errorf("used ones: %s", got)
	}
	client := service(t, boss, meshapi.ApprovalOptions{Store: store})
	if _, err := client.ListApprovals(t.Context(), &toolwayv1.ListApprovalsRequest{PageSize: 501}); reason(err) != "InvalidArgument PAGE_SIZE" {
		t.Errorf("a page too large: %v", err)
	}
	for _, token := range []string{"!", "zz", "r.zz", "a.", "a.0", "a.-zz", "a.zz!"} {
		if _, err := client.ListApprovals(t.Context(), &toolwayv1.ListApprovalsRequest{PageToken: token}); reason(err) != "InvalidArgument PAGE_TOKEN" {
			t.Errorf("page_token %q: %v, want PAGE_TOKEN", token, err)
		}
	}
}

func TestWatchApprovals(t *testing.T) {
	store := interceptors.NewApprovalMemory(0)
	hold(t, store, ann, "a0")
	hold(t, store, alien, "x")
	client := service(t, boss, meshapi.ApprovalOptions{Store: store})
	watch := func(after uint64) (next func() string, end func()) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		s, err := client.WatchApprovals(ctx, &toolwayv1.WatchApprovalsRequest{AfterRevision: after})
		if err != nil {
			t.Fatal(err)
		}
		return func() string {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			a := m.GetApproval()
			return fmt.Sprintf("%s %v %d", a.GetId(), a.GetState(), a.GetRevision())
		}, cancel
	}
	next, end := watch(0)
	if got := next(); got != "a0 STATE_PENDING 1" {
		t.Errorf("first: %s", got)
	}
	hold(t, store, ann, "a1")
	if got := next(); got != "a1 STATE_PENDING 3" {
		t.Errorf("a new one: %s", got)
	}
	if _, err := client.Refuse(t.Context(), &toolwayv1.RefuseRequest{Id: "a0"}); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "a0 STATE_REFUSED 4" {
		t.Errorf("a decision: %s", got)
	}
	end()
	next, end = watch(3)
	if got := next(); got != "a0 STATE_REFUSED 4" {
		t.Errorf("resumed after 3: %s", got)
	}
	end()
	next, end = watch(77)
	if got := next(); got != "a1 STATE_PENDING 3" {
		t.Errorf("resumed after a revision of another store: %s", got)
	}
	end()
}
