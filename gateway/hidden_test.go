package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// keyed knows who has the key "acme" or "other", by that name.
type keyed struct{}

// Authenticate returns the principal of a key.
func (keyed) Authenticate(_ context.Context, c call.Credentials) (*identity.Principal, error) {
	if key := c.APIKey; key == "acme" || key == "other" {
		return &identity.Principal{ID: key, Tenant: key}, nil
	}
	return nil, call.Error(codes.Unauthenticated, "CREDENTIALS_MISSING", "no credentials")
}

// ofAcme shows everything to tenant acme and nothing to others.
type ofAcme struct{}

// Visible says whether p is of the tenant.
func (ofAcme) Visible(p *identity.Principal, _ call.Door, _ *catalog.Method) bool {
	return p != nil && p.Tenant == "acme"
}

// TestHiddenRoutes pins that nobody learns of hidden names by a wrong HTTP method: with credentials they are like names that are not there, and
// without them all names are alike.
func TestHiddenRoutes(t *testing.T) {
	g := newGateway(t, &backend{}, func(c *gateway.Config) {
		c.Authenticator, c.Visibility, c.AllowedOrigins = keyed{}, ofAcme{}, []string{"https://a.example"}
	})
	const there, unknown = library + "Plain", library + "Plein"
	for _, tt := range []struct {
		key, method, path string
		want              int
	}{
		{"acme", "GET", there, 405}, {"acme", "GET", unknown, 404}, {"acme", "OPTIONS", there, 204},
		{"other", "GET", there, 404}, {"other", "GET", unknown, 404}, {"other", "OPTIONS", there, 404},
		{"", "GET", there, 401}, {"", "GET", unknown, 401}, {"", "OPTIONS", there, 401}, {"", "GET", "/", 200},
		{"", "GET", there + "?api_key=acme", 400}, {"", "GET", unknown + "?api_key=acme", 400}, {"", "GET", "/.well-known/openid-configuration", 404},
	} {
		res := do(g, tt.method, tt.path, "", "X-Api-Key", tt.key)
		body := text(t, res)
		if res.StatusCode != tt.want || tt.want != 405 && tt.want != 204 && res.Header.Get("Allow") != "" || tt.want == 401 && res.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%q: %s %s = %d %v %s, want %d", tt.key, tt.method, tt.path, res.StatusCode, res.Header, body, tt.want)
		}
		if tt.key == "other" && (strings.Contains(body, "Plain") && tt.path != there || strings.Contains(body, "POST")) {
			t.Errorf("%s %s tells another tenant %s", tt.method, tt.path, body)
		}
	}
	known := do(g, "OPTIONS", there, "", "Origin", "https://a.example", "Access-Control-Request-Method", "POST")
	none := do(g, "OPTIONS", unknown, "", "Origin", "https://a.example", "Access-Control-Request-Method", "POST")
	methods := known.Header.Get("Access-Control-Allow-Methods")
	if known.StatusCode != http.StatusNoContent || none.StatusCode != http.StatusNoContent || !strings.Contains(methods, "POST") || methods != none.Header.Get("Access-Control-Allow-Methods") {
		t.Errorf("preflights: %d %v, %d %v; want them alike", known.StatusCode, known.Header, none.StatusCode, none.Header)
	}
}
