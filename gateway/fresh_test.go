package gateway_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/call"
)

func TestFreshness(t *testing.T) {
	var freshness call.Freshness
	b := &backend{handle: map[string]grpc.StreamHandler{}}
	b.snapshot = librarySnapshot(t)
	var title atomic.Value
	title.Store("one")
	b.handle[library+"GetBook"] = func(_ any, s grpc.ServerStream) error {
		m := dynamicpb.NewMessage(b.snapshot.Method(library + "GetBook").Desc.Output())
		m.Set(m.Descriptor().Fields().ByName("title"), protoreflect.ValueOfString(title.Load().(string)))
		return s.SendMsg(m)
	}
	g := newGateway(t, b, func(c *gateway.Config) {
		backend := c.Handler
		c.Handler = func(s grpc.ServerStream) error {
			call.FromContext(s.Context()).Freshness = freshness
			return backend(s)
		}
	})
	for _, c := range []struct {
		name, verb, target string
		freshness          call.Freshness
		want               map[string]string
	}{
		{"the backend's answer", http.MethodGet, "/v1/books/b", call.Freshness{}, map[string]string{"Cache-Control": "private, no-cache", "Age": "", "Toolway-Cache": "", "Vary": ""}},
		{"one that may be used again", http.MethodGet, "/v1/books/b", call.Freshness{Remaining: time.Minute}, map[string]string{"Cache-Control": "private, max-age=60", "Age": "", "Vary": "Authorization, Cookie, X-Api-Key"}},
		{"from the cache", http.MethodGet, "/v1/books/b", call.Freshness{Cached: true, Age: 20 * time.Second, Remaining: 40 * time.Second}, map[string]string{"Cache-Control": "private, max-age=60", "Age": "20", "Toolway-Cache": "hit", "Toolway-Stale": ""}},
		{"stale", http.MethodGet, "/v1/books/b", call.Freshness{Cached: true, Stale: true, Age: 90 * time.Second}, map[string]string{"Cache-Control": "private, no-cache", "Age": "90", "Toolway-Stale": "true"}},
		{"POST", http.MethodPost, library + "GetBook", call.Freshness{Cached: true, Age: time.Second, Remaining: time.Second}, map[string]string{"Cache-Control": "", "Etag": "", "Age": "1", "Toolway-Cache": "hit"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			freshness = c.freshness
			res := do(g, c.verb, c.target, "")
			if res.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", res.StatusCode, text(t, res))
			}
			for k, want := range c.want {
				if got := res.Header.Get(k); got != want {
					t.Errorf("%s = %q, want %q", k, got, want)
				}
			}
		})
	}
	freshness = call.Freshness{}
	etag := do(g, http.MethodGet, "/v1/books/b", "").Header.Get("ETag")
	for _, c := range []struct {
		name, verb, given string
		want              int
	}{
		{"the same", http.MethodGet, etag, http.StatusNotModified},
		{"the same, weakly, among others", http.MethodGet, `"x", W/` + etag, http.StatusNotModified},
		{"any", http.MethodGet, "*", http.StatusNotModified},
		{"HEAD", http.MethodHead, etag, http.StatusNotModified},
		{"another", http.MethodGet, `"x"`, http.StatusOK},
	} {
		res := do(g, c.verb, "/v1/books/b", "", "If-None-Match", c.given)
		if body := text(t, res); res.StatusCode != c.want || c.want == http.StatusNotModified && (body != "" || res.Header.Get("Content-Type") != "") || res.Header.Get("ETag") != etag {
			t.Errorf("%s: %d %q %v, want %d", c.name, res.StatusCode, body, res.Header, c.want)
		}
	}
	title.Store("two")
	if res := do(g, http.MethodGet, "/v1/books/b", "", "If-None-Match", etag); res.StatusCode != http.StatusOK || res.Header.Get("ETag") == etag {
		t.Errorf("after a change: %d with ETag %s, want 200 with another", res.StatusCode, res.Header.Get("ETag"))
	}
}
