package mesh_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolway/toolway/internal/mesh"
)

func load(t *testing.T, text string) (mesh.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "toolway.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return mesh.Load(path)
}

func TestLoad(t *testing.T) {
	c, err := load(t, `
backends:
  - name: orders
    targets: [orders-1:443, "dns:///orders.internal:443"]
    descriptors: [orders.binpb]
    tls: {ca: certs/ca.pem, server_name: orders.internal}
    services: [acme.orders.v1.Orders]
deadline: {default: 5s, max: 1m30s}
metadata: {allow: [x-acme-*]}
`)
	if err != nil {
		t.Fatal(err)
	}
	b := c.Backends[0]
	if b.Name != "orders" || len(b.Targets) != 2 || b.TLS.ServerName != "orders.internal" {
		t.Errorf("backend = %+v", b)
	}
	if !filepath.IsAbs(b.Descriptors[0]) || !filepath.IsAbs(b.TLS.CA) {
		t.Errorf("paths %q and %q are not relative to the file", b.Descriptors[0], b.TLS.CA)
	}
	if got := time.Duration(c.Deadline.Max); got != 90*time.Second {
		t.Errorf("deadline.max = %v, want 1m30s", got)
	}
}

func TestLoadTakesPlainAddressesInFlowLists(t *testing.T) {
	c, err := load(t, "backends: [{targets: [127.0.0.1:17001, '[::1]:17002']}]\n")
	if err != nil || len(c.Backends) != 1 || c.Backends[0].Targets[0] != "127.0.0.1:17001" {
		t.Errorf("Load = %+v, %v", c.Backends, err)
	}
}

func TestLoadSaysWhatAndWhere(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"unknown key", "backends:\n  - name: a\n    target: x:1\n", `line 3, column 5: backends[0]: unknown key "target"; did you mean "targets"?`},
		{"unknown section", "http:\n  adddr: x\n", `unknown key "adddr"; did you mean "addr"?`},
		{"far from anything", "log: {zzzzzzzz: 1}\n", `line 1, column 7: log: unknown key "zzzzzzzz"; here may stand format, level`},
		{"no list", "backends: 7\n", `line 1, column 11: backends: want a list, such as [a, b], got "7"`},
		{"no number", "http:\n  max_body_bytes: lots\n", `line 2, column 19: http.max_body_bytes: want a whole number, got "lots"`},
		{"no truth value", "mcp: {sessions: maybe}\n", `mcp.sessions: want true or false, got "maybe"`},
		{"no section", "http: 8080\n", `http: want keys and values, got "8080"`},
		{"two documents", "drain: 1s\n---\ndrain: 2s\n", "a second document"},
		{"key twice", "drain: 1s\ndrain: 2s\n", "already defined"},
		{"bad duration", "drain: soon\n", `"soon" is not a duration: write it as 500ms, 30s or 5m`},
		{"negative duration", "drain: -1s\n", `line 1, column 8: drain: duration "-1s" is negative`},
		{"not YAML", "a: [\n", "line 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.yaml)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Load = %v, want an error with %q", err, c.want)
			}
		})
	}
	if _, err := mesh.Load(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("Load of a missing file = %v, want its name", err)
	}
}

func TestEmptyConfigurationIsDefaults(t *testing.T) {
	c, err := load(t, "# nothing yet\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Normalise(); err != nil {
		t.Fatal(err)
	}
	if c.GRPC.Addr != "127.0.0.1:7070" || c.HTTP.Addr != "127.0.0.1:8080" || c.Admin.Addr != "127.0.0.1:8081" {
		t.Errorf("addresses = %q %q %q", c.GRPC.Addr, c.HTTP.Addr, c.Admin.Addr)
	}
	if got := time.Duration(c.Deadline.Default); got != time.Minute {
		t.Errorf("deadline.default = %v, want 1m", got)
	}
	if got := time.Duration(c.Drain); got != 25*time.Second {
		t.Errorf("drain = %v, want 25s", got)
	}
	if c.GRPC.MaxMessageBytes != 16<<20 {
		t.Errorf("grpc.max_message_bytes = %d, want 16 MiB", c.GRPC.MaxMessageBytes)
	}
}

func TestNormaliseRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		config mesh.Config
		want   string
	}{
		{"admin beyond loopback", mesh.Config{Admin: mesh.Admin{Addr: "0.0.0.0:8081"}}, "not a loopback address"},
		{"admin on all interfaces", mesh.Config{Admin: mesh.Admin{Addr: ":8081"}}, "not a loopback address"},
		{"address without port", mesh.Config{HTTP: mesh.HTTP{Addr: "localhost"}}, "want host:port"},
		{"two of a name", mesh.Config{Backends: []mesh.Backend{{Name: "a", Targets: []string{"x:1"}}, {Name: "a", Targets: []string{"y:1"}}}}, `two backends are named "a"`},
		{"no target", mesh.Config{Backends: []mesh.Backend{{Name: "a"}}}, "has no targets"},
		{"no port", mesh.Config{Backends: []mesh.Backend{{Name: "a", Targets: []string{"host"}}}}, `"host" has no port`},
		{"no host", mesh.Config{Backends: []mesh.Backend{{Name: "a", Targets: []string{":50051"}}}}, "127.0.0.1:50051"},
		{"one connection", mesh.Config{Backends: []mesh.Backend{{Name: "a", Targets: []string{"x:1"}, MaxConnections: 1}}}, "want at least 2"},
		{"bad name", mesh.Config{Backends: []mesh.Backend{{Name: "A b", Targets: []string{"x:1"}}}}, `backend name "A b"`},
		{"admin without port", mesh.Config{Admin: mesh.Admin{Addr: "127.0.0.1"}}, "want host:port"},
		{"listen on a socket", mesh.Config{GRPC: mesh.GRPC{Addr: "unix:/x"}}, "not a number"},
		{"pprof nowhere", mesh.Config{Admin: mesh.Admin{Addr: "off", Pprof: true}}, "which is off"},
		{"any origin", mesh.Config{HTTP: mesh.HTTP{AllowedOrigins: []string{"*"}}}, "is not an origin"},
		{"origin without scheme", mesh.Config{HTTP: mesh.HTTP{AllowedOrigins: []string{"console.example.com"}}}, "is not an origin"},
		{"host with scheme", mesh.Config{HTTP: mesh.HTTP{AllowedHosts: []string{"http://x"}}}, "is not a host name"},
		{"negative limit", mesh.Config{HTTP: mesh.HTTP{MaxBodyBytes: -1}}, "cannot be negative"},
		{"profile", mesh.Config{MCP: mesh.MCP{Profile: "loose"}}, "want portable, full or strict"},
		{"credential", mesh.Config{Metadata: mesh.Metadata{Allow: []string{"authorization"}}}, "metadata.allow: "},
		{"no metadata key", mesh.Config{Metadata: mesh.Metadata{Allow: []string{"bad key"}}}, "metadata.allow: "},
		{"impossible port", mesh.Config{Backends: []mesh.Backend{{Name: "a", Targets: []string{"127.0.0.1:99999"}}}}, `port "99999"`},
		{"path in a target", mesh.Config{Backends: []mesh.Backend{{Name: "a", Targets: []string{"127.0.0.1:1/"}}}}, `port "1/"`},
		{"unknown scheme", mesh.Config{Backends: []mesh.Backend{{Name: "a", Targets: []string{"zk:///orders"}}}}, `scheme "zk" is not served`},
		{"no service", mesh.Config{Backends: []mesh.Backend{{Name: "a", Targets: []string{"xds:///"}}}}, `write xds:///service`},
		{"socket without path", mesh.Config{Backends: []mesh.Backend{{Name: "a", Targets: []string{"unix:"}}}}, "has no path"},
		{"default above cap", mesh.Config{Deadline: mesh.Deadline{Default: mesh.Duration(time.Hour)}}, "above deadline.max"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.config.Normalise()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Normalise = %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestParseBackend(t *testing.T) {
	for _, c := range []struct {
		in, name, target string
		tls              bool
	}{
		{"127.0.0.1:50051", "127-0-0-1-50051", "127.0.0.1:50051", false},
		{"orders=127.0.0.1:50051", "orders", "127.0.0.1:50051", false},
		{"dns:///orders.internal:443", "orders-internal-443", "dns:///orders.internal:443", false},
		{"unix:/run/x.sock", "unix-run-x-sock", "unix:/run/x.sock", false},
		{"shop=grpcs://shop.internal:443", "shop", "shop.internal:443", true},
		{"https://shop.internal:443/", "shop-internal-443", "shop.internal:443", true},
		{"[::1]:50051", "1-50051", "[::1]:50051", false},
		{"dns://8.8.8.8/orders:1", "orders-1", "dns://8.8.8.8/orders:1", false},
	} {
		b, err := mesh.ParseBackend(c.in)
		if err != nil {
			t.Errorf("ParseBackend(%q) = %v", c.in, err)
			continue
		}
		if b.Name != c.name || b.Targets[0] != c.target || (b.TLS != nil) != c.tls {
			t.Errorf("ParseBackend(%q) = %q %q TLS %v, want %q %q TLS %v", c.in, b.Name, b.Targets[0], b.TLS != nil, c.name, c.target, c.tls)
		}
	}
	for _, bad := range []string{"", "orders=", "localhost", ":50051", "=127.0.0.1:1", "Lib X=127.0.0.1:1", "foo:bar"} {
		if _, err := mesh.ParseBackend(bad); err == nil {
			t.Errorf("ParseBackend(%q) is accepted", bad)
		}
	}
}

func TestDescriptorsFindTheirBackend(t *testing.T) {
	var c mesh.Config
	for _, v := range []string{"a=x:1", "b=y:1", "a=z:1"} {
		b, err := mesh.ParseBackend(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddBackend(b); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.Backends) != 2 || len(c.Backends[0].Targets) != 2 {
		t.Fatalf("backends = %+v, want a with two targets, and b", c.Backends)
	}
	if err := c.AddDescriptors("b=shop.binpb"); err != nil || c.Backends[1].Descriptors[0] != "shop.binpb" {
		t.Errorf("AddDescriptors(b=…) = %v, backends %+v", err, c.Backends)
	}
	if err := c.AddDescriptors("shop.binpb"); err == nil || !strings.Contains(err.Error(), "NAME=FILE") {
		t.Errorf("AddDescriptors without a name = %v, want an error that shows NAME=FILE", err)
	}
}
