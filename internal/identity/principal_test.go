package identity_test

import (
	"slices"
	"testing"

	"github.com/toolway/toolway/internal/identity"
)

func TestHas(t *testing.T) {
	for _, c := range []struct {
		have []string
		want string
		ok   bool
	}{
		{nil, "logs:read", false},
		{[]string{"logs:read"}, "logs:read", true},
		{[]string{"logs:read"}, "logs:write", false},
		{[]string{"logs:*"}, "logs:write", true},
		{[]string{"logs:*"}, "logsx:write", false},
		{[]string{"log*"}, "logs:write", false},
		{[]string{"*"}, "logs:write", true},
	} {
		if got := (&identity.Principal{Scopes: c.have}).Has(c.want); got != c.ok {
			t.Errorf("Has(%q) with %q = %v, want %v", c.want, c.have, got, c.ok)
		}
	}
	var nobody *identity.Principal
	if nobody.Has("x") || !slices.Equal(nobody.Missing([]string{"x"}), []string{"x"}) {
		t.Error("a nil principal has a scope")
	}
}

func TestPermissions(t *testing.T) {
	a := identity.Principal{ID: "a", Tenant: "t", Scopes: []string{"x", "y"}}
	b := identity.Principal{ID: "b", Tenant: "t", Scopes: []string{"x", "y"}}
	c := identity.Principal{ID: "b", Tenant: "u", Scopes: []string{"x", "y"}}
	d := identity.Principal{ID: "b", Tenant: "t\x00x", Scopes: []string{"y"}}
	if a.Permissions() != b.Permissions() {
		t.Error("the same tenant and scopes have different permissions")
	}
	if a.Permissions() == c.Permissions() {
		t.Error("different tenants have the same permissions")
	}
	if a.Permissions() == d.Permissions() {
		t.Error("a tenant that looks like a scope has the same permissions")
	}
}
