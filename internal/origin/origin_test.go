package origin_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/origin"
)

func TestCheck(t *testing.T) {
	const inside, outside = "127.0.0.1:8080", "10.0.0.5:8080"
	none := origin.New(nil, nil)
	named := origin.New([]string{"tools.example.com"}, []string{"https://console.example.com/"})
	for _, c := range []struct {
		name    string
		policy  *origin.Policy
		local   string
		host    string
		headers []string
		foreign string
		refused string
	}{
		{name: "loopback name", policy: none, local: inside, host: "localhost:8080"},
		{name: "loopback address", policy: none, local: inside, host: "127.0.0.1:8080"},
		{name: "IPv6", policy: none, local: "[::1]:8080", host: "[::1]:8080"},
		{name: "rebound name", policy: none, local: inside, host: "evil.example:8080", refused: "host"},
		{name: "any name where nothing is known", policy: none, local: outside, host: "mesh.internal:8080"},
		{name: "rebound name is not its own origin", policy: none, local: outside, host: "evil.example", headers: []string{"Origin", "http://evil.example"}, refused: "origin"},
		{name: "given name", policy: named, local: outside, host: "Tools.Example.com"},
		{name: "another name", policy: named, local: outside, host: "other.example.com", refused: "host"},
		{name: "loopback name besides given ones", policy: named, local: inside, host: "localhost:8080"},
		{name: "own page", policy: none, local: inside, host: "localhost:8080", headers: []string{"Origin", "http://localhost:8080"}},
		{name: "own page behind TLS", policy: named, local: outside, host: "tools.example.com", headers: []string{"Origin", "https://tools.example.com"}},
		{name: "another port of this machine", policy: none, local: inside, host: "localhost:8080", headers: []string{"Origin", "http://localhost:3000"}, refused: "origin"},
		{name: "foreign page", policy: none, local: inside, host: "localhost:8080", headers: []string{"Origin", "https://evil.example"}, refused: "origin"},
		{name: "sandboxed page", policy: none, local: inside, host: "localhost:8080", headers: []string{"Origin", "null"}, refused: "origin"},
		{name: "allowed page", policy: named, local: outside, host: "tools.example.com", headers: []string{"Origin", "https://console.example.com"}, foreign: "https://console.example.com"},
		{name: "allowed page of another scheme", policy: named, local: outside, host: "tools.example.com", headers: []string{"Origin", "http://console.example.com"}, refused: "origin"},
		{name: "image on a foreign page", policy: none, local: inside, host: "localhost:8080", headers: []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, refused: "another site"},
		{name: "no policy", policy: nil, local: inside, host: "evil.example", refused: "host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Host = c.host
			addr, err := net.ResolveTCPAddr("tcp", c.local)
			if err != nil {
				t.Fatal(err)
			}
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, addr))
			for i := 0; i < len(c.headers); i += 2 {
				r.Header.Set(c.headers[i], c.headers[i+1])
			}
			foreign, err := c.policy.Check(r)
			if foreign != c.foreign || (err == nil) != (c.refused == "") {
				t.Fatalf("Check = %q, %v, want %q, refused %q", foreign, err, c.foreign, c.refused)
			}
			if err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("Check = %v, want it to name the %s", err, c.refused)
			}
		})
	}
}

func TestCheckBoundsWhatItRepeats(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Origin", "https://"+strings.Repeat("x", 10_000))
	if _, err := origin.New(nil, nil).Check(r); err == nil || len(err.Error()) > 300 {
		t.Errorf("Check = %.80v…, want a short error", err)
	}
}

// TestCheckAllocatesNothing has usual requests, of which nothing is made anew, and one after them that is refused all the same.
func TestCheckAllocatesNothing(t *testing.T) {
	p := origin.New(nil, nil)
	for local, host := range map[string]string{"127.0.0.1:8080": "localhost:8080", "10.0.0.5:8080": "mesh.internal:8080"} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		addr, err := net.ResolveTCPAddr("tcp", local)
		if err != nil {
			t.Fatal(err)
		}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, addr))
		r.Host = host
		var failed error
		if n := testing.AllocsPerRun(100, func() { _, failed = p.Check(r) }); failed != nil || n > 0 {
			t.Errorf("Check of %s at %s: %v, %v allocations, want none", host, local, failed, n)
		}
		r.Host = "evil.example:8080"
		if _, err := p.Check(r); (err != nil) != (local == "127.0.0.1:8080") {
			t.Errorf("Check of %s at %s after that = %v", r.Host, local, err)
		}
	}
}
