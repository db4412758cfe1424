package mcpadapter_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/mcpadapter"
)

// askingWorld is a world that asks who calls: alice has the scope of Get by one key, and not by another; bob is somebody else.
func askingWorld(t *testing.T, change func(*mcpadapter.Config)) (url string, keys map[string]string, last *atomic.Pointer[call.Call], refused *atomic.Int32) {
	t.Helper()
	last, refused, keys = &atomic.Pointer[call.Call]{}, &atomic.Int32{}, map[string]string{}
	var conf identity.Config
	for name, scopes := range map[string][]string{"alice": {"orders"}, "less": nil, "bob": {"orders"}} {
		key, hash := identity.NewAPIKey()
		keys[name] = key
		conf.APIKeys = append(conf.APIKeys, identity.APIKey{Name: name, SHA256: hash, Scopes: scopes})
	}
	auth, err := identity.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(auth.Close)
	w := newWorld(t, func(c *mcpadapter.Config) {
		change(c)
		c.Authenticator = auth
		c.Resource = &identity.Resource{Issuers: []string{"https://id.example"}, Scopes: []string{"first"}}
		c.Handler = interceptors.Chain(func(_ any, s grpc.ServerStream) error {
			last.Store(call.FromContext(s.Context()))
			if err := s.RecvMsg(&call.Frame{}); err != nil {
				return err
			}
			return s.SendMsg(call.NewFrame(nil, nil))
		}, interceptors.Every("count", func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			err := next(srv, s)
			if err != nil {
				refused.Add(1)
			}
			return err
		}), interceptors.Authenticate(interceptors.Options{Authenticator: auth}), interceptors.Authorise(interceptors.Options{}))
	})
	w.catalog.Snapshot().Tool("orders_get").Policy.Scopes = []string{"orders"}
	return w.serve(), keys, last, refused
}

// TestCallersAreAsked goes through both paths, all versions and sessions: 401 without credentials, 403 without a scope, and else the call knows who makes it.
func TestCallersAreAsked(t *testing.T) {
	for _, d := range doors {
		if d.stdio {
			continue
		}
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			url, keys, last, refused := askingWorld(t, func(c *mcpadapter.Config) {
				c.Sessions = d.session
				if d.sdkOnly {
					mcpadapter.SDKOnly(c)
				}
			})
			header, members, session := map[string]string{"Mcp-Protocol-Version": d.version, "Mcp-Method": "tools/call", "Mcp-Name": "orders_get"}, "", ""
			if d.version == "2026-07-28" {
				members = modernMembers + `{}`
			}
			send := func(key, msg string) *http.Response {
				all := map[string]string{}
				for k, v := range header {
					all[k] = v
				}
				if key != "" {
					all["X-Api-Key"] = key
				}
				if session != "" {
					all["Mcp-Session-Id"] = session
				}
				return post(t.Context(), t, url, msg, all)
			}
			if d.session {
				hello := post(t.Context(), t, url, helloLine, map[string]string{"X-Api-Key": keys["alice"]})
				closed(t, hello)
				session = hello.Header.Get("Mcp-Session-Id")
			}
			msg := string(message(`7`, "tools/call", `"name":"orders_get","arguments":{}`, ``, members))
			res := send("", msg)
			if body := closed(t, res); res.StatusCode != http.StatusUnauthorized || !json.Valid([]byte(body)) ||
				res.Header.Get("WWW-Authenticate") != `Bearer scope="first", resource_metadata="`+url+`/.well-known/oauth-protected-resource"` {
				t.Errorf("without a key: %d %v %s", res.StatusCode, res.Header, body)
			}
			if got := refused.Load(); got != 1 {
				t.Errorf("the chain has refused %d calls, want this one, so that it is recorded", got)
			}
			if d.session {
				res = send(keys["bob"], msg)
				if body := closed(t, res); res.StatusCode != http.StatusNotFound {
					t.Errorf("in another one's session: %d %s, want 404", res.StatusCode, body)
				}
				session = "" // the other key is another caller, and has no session yet
				hello := post(t.Context(), t, url, helloLine, map[string]string{"X-Api-Key": keys["less"]})
				closed(t, hello)
				session = hello.Header.Get("Mcp-Session-Id")
			}
			last.Store(nil)
			res = send(keys["less"], msg)
			if body := closed(t, res); res.StatusCode != http.StatusForbidden || !strings.Contains(res.Header.Get("WWW-Authenticate"), `error="insufficient_scope", scope="orders"`) ||
				!strings.Contains(body, `"id":7`) || !strings.Contains(body, "INSUFFICIENT_SCOPE") || last.Load() != nil {
				t.Errorf("without the scope: %d %v %s", res.StatusCode, res.Header, body)
			}
			if d.session {
				hello := post(t.Context(), t, url, helloLine, map[string]string{"X-Api-Key": keys["alice"]})
				closed(t, hello)
				session = hello.Header.Get("Mcp-Session-Id")
			}
			res = send(keys["alice"], msg)
			if body := closed(t, res); res.StatusCode != http.StatusOK || strings.Contains(body, `"isError":true`) {
				t.Fatalf("with the scope: %d %s", res.StatusCode, body)
			}
			c := last.Load()
			if c.Principal == nil || c.Principal.ID != "key:alice" || c.Credentials.APIKey != keys["alice"] {
				t.Errorf("the call is %+v's", c.Principal)
			}
			if len(c.Forward.Get("x-api-key")) > 0 {
				t.Error("the key crosses to the backend")
			}
		})
	}
}

// TestScopeThroughCallTool pins that a scope that is missing is answered with the challenge through call_tool, too.
func TestScopeThroughCallTool(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		url, keys, last, refused := askingWorld(t, func(c *mcpadapter.Config) {
			path(c)
			c.View.Search = true
		})
		for key, want := range map[string]int{"less": http.StatusForbidden, "alice": http.StatusOK} {
			res := post(t.Context(), t, url, string(message(`7`, "tools/call", `"name":"call_tool","arguments":{"name":"orders_get","arguments":{}}`, ``, "")),
				map[string]string{"Mcp-Protocol-Version": "2025-11-25", "X-Api-Key": keys[key]})
			if body := closed(t, res); res.StatusCode != want || (want == http.StatusForbidden) != strings.Contains(res.Header.Get("WWW-Authenticate"), `scope="orders"`) {
				t.Errorf("%s: %d %v %s, want %d", key, res.StatusCode, res.Header, body, want)
			}
		}
		if last.Load() == nil || refused.Load() != 1 {
			t.Errorf("the chain has refused %d calls, want one", refused.Load())
		}
	})
}

// TestCallerIDs pins that without sessions, too, the id from initialize is of use to its caller alone.
func TestCallerIDs(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		url, keys, _, _ := askingWorld(t, path)
		hello := post(t.Context(), t, url, helloLine, map[string]string{"X-Api-Key": keys["alice"]})
		closed(t, hello)
		id := hello.Header.Get("Mcp-Session-Id")
		for name, want := range map[string]int{"alice": http.StatusOK, "bob": http.StatusNotFound} {
			res := post(t.Context(), t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, map[string]string{"X-Api-Key": keys[name], "Mcp-Session-Id": id, "Mcp-Protocol-Version": "2025-11-25"})
			if body := closed(t, res); res.StatusCode != want {
				t.Errorf("%s with alice's id: %d %.100s, want %d", name, res.StatusCode, body, want)
			}
		}
		// A mark of somebody else's, or none, is no good either.
		bare, _, _ := strings.Cut(id, ".")
		for _, forged := range []string{bare, bare + ".", bare + ".AAAAAAAAAAAAAAAAAAAAAAAAAA"} {
			res := post(t.Context(), t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, map[string]string{"X-Api-Key": keys["alice"], "Mcp-Session-Id": forged, "Mcp-Protocol-Version": "2025-11-25"})
			if closed(t, res); res.StatusCode != http.StatusNotFound {
				t.Errorf("id %q: %d, want 404", forged, res.StatusCode)
			}
		}
	})
}
