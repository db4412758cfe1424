package identity_test

import (
	"crypto/tls"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/identity"
)

// refusal returns an error of the mesh's own.
func refusal(t *testing.T, code codes.Code, reason, scopes string) error {
	t.Helper()
	info := &errdetails.ErrorInfo{Reason: reason, Domain: "toolway"}
	if scopes != "" {
		info.Metadata = map[string]string{"scopes": scopes}
	}
	st, err := status.New(code, "x").WithDetails(info)
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

func TestChallenge(t *testing.T) {
	full := &identity.Resource{Issuers: []string{"https://id.example"}, Scopes: []string{"tools"}}
	public := &identity.Resource{PublicURL: "https://tools.example.com", Issuers: full.Issuers}
	at := `resource_metadata="http://mesh.example:8080/.well-known/oauth-protected-resource/mcp"`
	for name, c := range map[string]struct {
		r    *identity.Resource
		err  error
		p    *identity.Principal
		want string
	}{
		"nothing brought": {full, refusal(t, codes.Unauthenticated, identity.MissingCredentials, ""), nil, `Bearer scope="tools", ` + at},
		"expired":         {full, refusal(t, codes.Unauthenticated, identity.TokenExpired, ""), nil, `Bearer error="invalid_token", error_description="token expired", scope="tools", ` + at},
		"step-up":         {full, refusal(t, codes.PermissionDenied, identity.InsufficientScope, "b c"), &identity.Principal{Scopes: []string{"a", "b"}}, `Bearer error="insufficient_scope", scope="a b c", ` + at},
		"behind a proxy":  {public, refusal(t, codes.Unauthenticated, identity.MissingCredentials, ""), nil, `Bearer resource_metadata="https://tools.example.com/.well-known/oauth-protected-resource/mcp"`},
		"API keys alone":  {&identity.Resource{}, refusal(t, codes.Unauthenticated, identity.MissingCredentials, ""), nil, `Bearer`},
		"no resource":     {nil, refusal(t, codes.Unauthenticated, identity.InvalidToken, ""), nil, `Bearer error="invalid_token", error_description="invalid token"`},
		"busy":            {full, refusal(t, codes.Unavailable, identity.AuthenticationBusy, ""), nil, ``},
		"something else":  {full, refusal(t, codes.PermissionDenied, "POLICY", ""), nil, ``},
		"a backend's own": {full, status.Error(codes.Unauthenticated, "x"), nil, ``},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://mesh.example:8080/mcp", nil)
		if got := c.r.Challenge(r, "/mcp", c.err, c.p); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}

func TestMetadata(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://mesh.example/.well-known/oauth-protected-resource/mcp", nil)
	r.TLS = &tls.ConnectionState{}
	got := string((&identity.Resource{Issuers: []string{"https://id.example"}}).Metadata(r, "/mcp"))
	want := `{"resource":"https://mesh.example/mcp","authorization_servers":["https://id.example"],"bearer_methods_supported":["header"],"resource_name":"Toolway"}`
	if got != want {
		t.Errorf("metadata %s, want %s", got, want)
	}
	if (&identity.Resource{}).Metadata(r, "/mcp") != nil || (*identity.Resource)(nil).Metadata(r, "") != nil {
		t.Error("there is metadata without an authorization server")
	}
}

func TestInQuery(t *testing.T) {
	for query, want := range map[string]bool{"": false, "a=b": false, "access_token=x": true, "a=b&Access_Token=x": true, "api_key": true, "page_token=x": false, "a=%zz&access_token=x": true} {
		if got := identity.InQuery(query); got != want {
			t.Errorf("InQuery(%q) = %v, want %v", query, got, want)
		}
	}
	if !strings.HasPrefix(identity.MetadataPath, "/.well-known/") {
		t.Error("RFC 9728 has another path")
	}
}
