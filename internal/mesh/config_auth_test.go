package mesh_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/mesh"
)

func TestAuthIsRefused(t *testing.T) {
	hash := strings.Repeat("0", 64)
	for name, c := range map[string]struct{ yaml, want string }{
		"both ways":              {"auth: {allow_anonymous: true, api_keys: [{name: a, sha256: '" + hash + "'}]}", "contradicts"},
		"certificates over none": {"auth: {certificates: [{san: a.example}]}", "client_ca"},
		"a date":                 {"auth: {api_keys: [{name: a, sha256: '" + hash + "', expires: tomorrow}]}", "2027-01-31"},
		"a scope":                {"auth: {scopes: ['a b']}", "not a scope"},
		"a limit":                {"auth: {max_verifying: -1}", "negative"},
		"no key file":            {"grpc: {tls: {cert: a.pem}}", "cert and key"},
		"clients of nobody":      {"http: {tls: {cert: a.pem, key: a.key, require_client_cert: true}}", "client_ca"},
		"a path":                 {"http: {public_url: 'https://a.example/mcp'}", "scheme and host"},
		"no way":                 {"backends: [{name: a, targets: ['x:1'], credentials: {}}]", "one of mint, exchange and static"},
		"two ways":               {"backends: [{name: a, targets: ['x:1'], credentials: {mint: {}, static: [{key: x-api-key, file: f}]}}]", "one of mint, exchange and static"},
		"a key in capitals":      {"backends: [{name: a, targets: ['x:1'], credentials: {static: [{key: X-Api-Key, file: f}]}}]", "lower case"},
		"a value of nothing":     {"backends: [{name: a, targets: ['x:1'], credentials: {static: [{key: x-api-key}]}}]", "file and env"},
		"no such variable":       {"backends: [{name: a, targets: ['x:1'], credentials: {static: [{key: x-api-key, env: TOOLWAY_TEST_NOWHERE}]}}]", "TOOLWAY_TEST_NOWHERE"},
		"an unknown key":         {"auth: {jwt: [{isuer: 'https://a.example'}]}", `did you mean "issuer"`},
	} {
		file := filepath.Join(t.TempDir(), "toolway.yaml")
		if err := os.WriteFile(file, []byte(c.yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		conf, err := mesh.Load(file)
		if err == nil {
			err = conf.Normalise()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error about %q", name, err, c.want)
		}
	}
}

func TestAuthDefaults(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "toolway.yaml")
	text := `
auth: {jwt: [{issuer: "https://a.example", audiences: [x], ca: roots.pem}]}
http: {public_url: "https://tools.example/", tls: {cert: c.pem, key: /k.pem}}
backends: [{name: orders, targets: ["x:1"], credentials: {mint: {}}}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := mesh.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Normalise(); err != nil {
		t.Fatal(err)
	}
	if c.HTTP.PublicURL != "https://tools.example" || c.Credentials.Issuer != "https://tools.example" || c.Backends[0].Credentials.Mint.Audience != "orders" {
		t.Errorf("defaults: %q, %q, %q", c.HTTP.PublicURL, c.Credentials.Issuer, c.Backends[0].Credentials.Mint.Audience)
	}
	if c.Auth.JWT[0].CA != filepath.Join(dir, "roots.pem") || c.HTTP.TLS.Cert != filepath.Join(dir, "c.pem") || c.HTTP.TLS.Key != "/k.pem" {
		t.Errorf("paths: %q, %q, %q", c.Auth.JWT[0].CA, c.HTTP.TLS.Cert, c.HTTP.TLS.Key)
	}
}
