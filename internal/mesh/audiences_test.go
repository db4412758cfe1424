package mesh

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestAudiences pins that the start warns of each advertised resource that is in no issuer's audiences, with the mend.
func TestAudiences(t *testing.T) {
	const a = "https://a.example"
	for name, tt := range map[string]struct {
		public    string
		tls       bool
		audiences [][]string // of each issuer
		want      string     // resources, in order
	}{
		"no issuer":              {public: a},
		"all":                    {public: a, audiences: [][]string{{a, a + "/mcp", a + "/mcp/ops", a + "/mcp/search"}}},
		"all, of two issuers":    {public: a, audiences: [][]string{{a, a + "/mcp"}, {a + "/mcp/ops", a + "/mcp/search"}}},
		"the MCP endpoint alone": {public: a, audiences: [][]string{{a + "/mcp"}}, want: a + " " + a + "/mcp/ops " + a + "/mcp/search"},
		"a slash too many":       {public: a, audiences: [][]string{{a + "/", a + "/mcp", a + "/mcp/ops", a + "/mcp/search"}}, want: a},
		"another host":           {public: a, audiences: [][]string{{"https://b.example/mcp"}}, want: a + " " + a + "/mcp " + a + "/mcp/ops " + a + "/mcp/search"},
		"as requests have it": {audiences: [][]string{{"http://a.example", "http://a.example/mcp", "http://localhost:8080/mcp/ops"}},
			want: "http://127.0.0.1:8080/mcp/search"},
		"behind a proxy that is not named": {audiences: [][]string{{a, a + "/mcp", "a", "::"}},
			want: "http://127.0.0.1:8080 http://127.0.0.1:8080/mcp http://127.0.0.1:8080/mcp/ops http://127.0.0.1:8080/mcp/search"},
		"TLS of its own": {tls: true, audiences: [][]string{{a, a + "/mcp", a + "/mcp/ops"}}, want: "https://127.0.0.1:8080/mcp/search"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{HTTP: HTTP{PublicURL: tt.public}, MCP: MCP{Views: []View{{Name: "ops"}, {Name: SearchView}}}}
			if tt.tls {
				c.HTTP.TLS = &ServerTLS{}
			}
			for _, aud := range tt.audiences {
				c.Auth.JWT = append(c.Auth.JWT, JWTIssuer{Audiences: aud})
			}
			if got := strings.Join(c.unaccepted("127.0.0.1:8080"), " "); got != tt.want {
				t.Errorf("unaccepted: %q, want %q", got, tt.want)
			}
			var log bytes.Buffer
			(&Mesh{config: c, log: slog.New(slog.NewTextHandler(&log, nil))}).warnAudiences("127.0.0.1:8080")
			told := log.String()
			if (tt.want != "") != strings.Contains(told, "add them to the audiences") || !strings.Contains(told, tt.want) {
				t.Errorf("the log: %q, want %q", told, tt.want)
			}
			if names := strings.Contains(told, "http.public_url"); names != (tt.want != "" && tt.public == "") {
				t.Errorf("the log: %q, names http.public_url: %v", told, names)
			}
		})
	}
}
