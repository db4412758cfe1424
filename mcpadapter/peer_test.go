package mcpadapter_test

import (
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/mcpadapter"
)

// TestCallsHaveTheirCallersAddress goes through both paths, all versions and sessions: what a chain records of a call has where it came from.
func TestCallsHaveTheirCallersAddress(t *testing.T) {
	for _, d := range doors {
		if d.stdio {
			continue
		}
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			var from atomic.Pointer[peer.Peer]
			w := newWorld(t, func(c *mcpadapter.Config) {
				c.Sessions = d.session
				if d.sdkOnly {
					mcpadapter.SDKOnly(c)
				}
				c.Handler = func(s grpc.ServerStream) error {
					p, _ := peer.FromContext(s.Context())
					from.Store(p)
					if err := s.RecvMsg(&call.Frame{}); err != nil {
						return err
					}
					return s.SendMsg(call.NewFrame(nil, nil))
				}
			})
			url := w.serve()
			header, members := map[string]string{"Mcp-Protocol-Version": d.version, "Mcp-Method": "tools/call", "Mcp-Name": "orders_get"}, ""
			if d.version == "2026-07-28" {
				members = modernMembers + `{}`
			}
			if d.session {
				hello := post(t.Context(), t, url, helloLine, nil)
				closed(t, hello)
				header["Mcp-Session-Id"] = hello.Header.Get("Mcp-Session-Id")
			}
			res := post(t.Context(), t, url, string(message(`7`, "tools/call", `"name":"orders_get","arguments":{}`, ``, members)), header)
			if body := closed(t, res); res.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", res.StatusCode, body)
			}
			p := from.Load()
			if p == nil || p.Addr == nil {
				t.Fatal("the call has no peer")
			}
			if addr, err := netip.ParseAddrPort(p.Addr.String()); err != nil || !addr.Addr().IsLoopback() || p.Addr.Network() != "tcp" {
				t.Errorf("peer = %s %s, want a port of this machine", p.Addr.Network(), p.Addr)
			}
		})
	}
}
