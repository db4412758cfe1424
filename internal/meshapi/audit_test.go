package meshapi_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/meshapi"
)

// kept is a ring of ten records: even ones are of acme, odd ones of umbrella; each third one was refused.
func kept(t *testing.T) *audit.Ring {
	t.Helper()
	ring := audit.NewRing(100)
	for i := range 10 {
		r := &toolwayv1.AuditRecord{CallId: fmt.Sprintf("call-%d", i), Tenant: []string{"acme", "umbrella"}[i%2], Principal: "idp#ann", Tool: "orders_get", Method: "shop.Orders/Get",
			StartedAt: timestamppb.New(time.Unix(int64(i), 0)), Outcome: toolwayv1.AuditRecord_OUTCOME_OK}
		if i%3 == 0 {
			r.Outcome = toolwayv1.AuditRecord_OUTCOME_REFUSED
		}
		rec, err := audit.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.Record(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	return ring
}

func auditClient(t *testing.T, who *identity.Principal) toolwayv1.AuditServiceClient {
	t.Helper()
	ring := kept(t)
	return toolwayv1.NewAuditServiceClient(serve(t, who, func(r grpc.ServiceRegistrar) { meshapi.RegisterAudit(r, ring) }))
}

// TestAuditOfTenants shows each reader what it may see.
func TestAuditOfTenants(t *testing.T) {
	for _, c := range []struct {
		name  string
		who   *identity.Principal
		calls int
		code  codes.Code // of reading call-1, umbrella's
	}{
		{"nobody", nil, -1, codes.PermissionDenied},
		{"without the scope", &identity.Principal{Tenant: "umbrella", Scopes: []string{"orders:read"}}, -1, codes.PermissionDenied},
		{"acme", &identity.Principal{Tenant: "acme", Scopes: []string{"toolway:audit"}}, 5, codes.NotFound},
		{"umbrella", &identity.Principal{Tenant: "umbrella", Scopes: []string{"toolway:audit"}}, 5, codes.OK},
		{"no tenant", &identity.Principal{Scopes: []string{"toolway:audit"}}, 0, codes.NotFound},
		{"all tenants", &identity.Principal{Tenant: "acme", Scopes: []string{"toolway:audit", "toolway:audit:all"}}, 10, codes.OK},
		{"anonymous", identity.Anonymous, 10, codes.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := auditClient(t, c.who)
			got, err := client.GetCall(t.Context(), &toolwayv1.GetCallRequest{CallId: "call-1"})
			if status.Code(err) != c.code || c.code == codes.OK && got.GetRecord().GetCallId() != "call-1" {
				t.Errorf("GetCall = %v, %v, want %v", got, err, c.code)
			}
			unknown, err := client.GetCall(t.Context(), &toolwayv1.GetCallRequest{CallId: "call-99"})
			if want := map[bool]codes.Code{true: codes.PermissionDenied, false: codes.NotFound}[c.calls < 0]; status.Code(err) != want {
				t.Errorf("GetCall of none = %v, %v, want %v", unknown, err, want)
			}
			list, err := client.ListCalls(t.Context(), &toolwayv1.ListCallsRequest{})
			if c.calls < 0 {
				if status.Code(err) != codes.PermissionDenied {
					t.Errorf("ListCalls = %v, %v", list, err)
				}
				return
			}
			if err != nil || len(list.GetRecords()) != c.calls || list.GetNextPageToken() != "" {
				t.Errorf("ListCalls = %d records, %v, want %d", len(list.GetRecords()), err, c.calls)
			}
			other, err := client.ListCalls(t.Context(), &toolwayv1.ListCallsRequest{Tenant: "umbrella"})
			if want := map[string]int{"umbrella": 5, "all tenants": 5, "anonymous": 5}[c.name]; err != nil || len(other.GetRecords()) != want {
				t.Errorf("ListCalls of umbrella = %d records, %v, want %d", len(other.GetRecords()), err, want)
			}
		})
	}
}

func TestListCalls(t *testing.T) {
	client := auditClient(t, identity.Anonymous)
	ids := func(in *toolwayv1.ListCallsRequest) []string {
		t.Helper()
		var out []string
		for {
			page, err := client.ListCalls(t.Context(), in)
			if err != nil {
				t.Fatalf("%v: %v", in, err)
			}
			if in.GetPageSize() > 0 && len(page.GetRecords()) > int(in.GetPageSize()) {
				t.Fatalf("%v: a page of %d", in, len(page.GetRecords()))
			}
			for _, r := range page.GetRecords() {
				out = append(out, r.GetCallId()[len("call-"):])
			}
			if in.PageToken = page.GetNextPageToken(); in.PageToken == "" {
				return out
			}
		}
	}
	for _, c := range []struct {
		in   *toolwayv1.ListCallsRequest
		want []string
	}{
		{&toolwayv1.ListCallsRequest{PageSize: 3}, []string{"9", "8", "7", "6", "5", "4", "3", "2", "1", "0"}},
		{&toolwayv1.ListCallsRequest{PageSize: 2, Outcome: toolwayv1.AuditRecord_OUTCOME_REFUSED}, []string{"9", "6", "3", "0"}},
		{&toolwayv1.ListCallsRequest{Since: timestamppb.New(time.Unix(3, 0)), Until: timestamppb.New(time.Unix(5, 0))}, []string{"4", "3"}},
		{&toolwayv1.ListCallsRequest{Tool: "orders_get", Principal: "idp#ann", PageSize: 500}, []string{"9", "8", "7", "6", "5", "4", "3", "2", "1", "0"}},
		{&toolwayv1.ListCallsRequest{Tool: "/shop.Orders/Get", Tenant: "acme"}, []string{"8", "6", "4", "2", "0"}},
		{&toolwayv1.ListCallsRequest{Principal: "idp#bob"}, nil},
		{&toolwayv1.ListCallsRequest{TraceId: "x"}, nil},
	} {
		if got := ids(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%v = %q, want %q", c.in, got, c.want)
		}
	}
	for _, bad := range []*toolwayv1.ListCallsRequest{{PageToken: "!"}, {PageToken: "zz"}, {PageToken: "r.zz!"}, {PageToken: "0"}, {PageSize: -1}} {
		if _, err := client.ListCalls(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := client.GetCall(t.Context(), &toolwayv1.GetCallRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("without an id: %v", err)
	}
}
