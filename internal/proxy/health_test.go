package proxy_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/proxy"
)

// forAcme shows the services of package two to tenant acme alone.
type forAcme struct{}

// Visible says whether p may know of m.
func (forAcme) Visible(p *identity.Principal, _ call.Door, m *catalog.Method) bool {
	return m.Service.Desc.ParentFile().Package() != "two" || p != nil && p.Tenant == "acme"
}

// TestHealthHidesServices pins that health, which needs no credentials, tells only of what everybody may know of.
func TestHealthHidesServices(t *testing.T) {
	c, err := catalog.Open(t.Context(), catalog.Config{Backends: []catalog.BackendConfig{
		{Name: "a", Sources: []catalog.Source{catalog.File(write(t, shop("one", "red")))}}, {Name: "b", Sources: []catalog.Source{catalog.File(write(t, shop("two", "red")))}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := proxy.RegisterHealth(grpc.NewServer(), c, forAcme{})
	for service, want := range map[string]codes.Code{"": codes.OK, "one.Shop": codes.OK, "two.Shop": codes.NotFound, "no.Shop": codes.NotFound} {
		if _, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service}); status.Code(err) != want {
			t.Errorf("Check(%q) = %v, want %v", service, err, want)
		}
	}
	list, err := h.List(t.Context(), &healthpb.HealthListRequest{})
	if err != nil || list.GetStatuses()["one.Shop"] == nil || list.GetStatuses()["two.Shop"] != nil {
		t.Errorf("List = %v, %v; want one.Shop and not two.Shop", list, err)
	}
}
