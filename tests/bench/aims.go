package main

import (
	"fmt"
	"strings"
)

// aim is what a figure ought to be.
type aim struct {
	what, figure string
	least        bool // else it is the most that it may be
	want         float64
}

var aims = []aim{
	{"MCP 2025-11-25, small call, 16 callers: calls/s ÷ direct", ourMCP25, true, 0.45},
	{"MCP 2026-07-28, small call, 16 callers: calls/s ÷ direct", ourMCP26, true, 0.45},
	{"MCP 2025-11-25, small call, 16 callers: p50 ÷ direct", ourMCP25 + " p50", false, 2.5},
	{"MCP 2025-11-25 ÷ nginx grpc_pass: calls/s", "MCP/nginx", true, 1},
	{"MCP 2025-11-25 ÷ go-sdk + dynamicpb: calls/s", "MCP/sdk", true, 7},
	{"REST, small call, 16 callers: calls/s ÷ direct", ourREST, true, 0.48},
	{"REST ÷ grpc-gateway, 21 KB reply, 16 callers: calls/s", "REST/gateway", true, 2.5},
	{"gRPC, small call, 16 callers: calls/s ÷ direct", ourGRPC, true, 0.38},
	{"gRPC stream, 16 callers: messages/s ÷ direct", ourGRPC + " stream", true, 0.6},
	{"SSE, 16 callers: messages/s ÷ direct", ourSSE, true, 0.6},
	{"chain with defaults: µs", "chain µs", false, 5},
	{"chain with defaults: allocations", "chain allocations", false, 10},
	{"codec ÷ dynamicpb + protojson, small to JSON", "codec small to JSON", true, 12},
	{"codec ÷ dynamicpb + protojson, small to wire", "codec small to wire", true, 12},
	{"codec ÷ dynamicpb + protojson, medium to JSON", "codec medium to JSON", true, 12},
	{"codec ÷ dynamicpb + protojson, medium to wire", "codec medium to wire", true, 12},
	{"codec ÷ dynamicpb + protojson, large to JSON", "codec large to JSON", true, 5},
	{"codec ÷ dynamicpb + protojson, large to wire", "codec large to wire", true, 5},
	{"codec: allocations in the steady state", "codec allocations", false, 0},
	{"start with an embedded store: seconds", "start s", false, 1},
	{"resident then: MB", "resident MB", false, 80},
	{"tools/list with 10,000 tools: ms of CPU a page", "page ms", false, 1},
}

// byCPU is added to the name of a figure of calls/s for what the processor times say of it.
const byCPU = " by CPU"

// doors takes the figures that aims are about.
func (r results) doors(all figures) {
	small, medium, stream := all[cell{shapes[0].name, 16}], all[cell{shapes[1].name, 16}], all[cell{shapes[3].name, 16}]
	rate := func(name string, of map[string]sample, a, b string) {
		if x, y := of[a].rate, of[b].rate; x > 0 && y > 0 {
			r[name] = x / y
			r[name+byCPU] = of[b].allCPU / of[a].allCPU
		}
	}
	for _, p := range []string{ourMCP25, ourMCP26, ourREST, ourGRPC} {
		rate(p, small, p, direct)
	}
	if d := small[direct].p50; d > 0 {
		r[ourMCP25+" p50"] = small[ourMCP25].p50 / d
	}
	rate("MCP/nginx", small, ourMCP25, peerNginx)
	rate("MCP/sdk", small, ourMCP25, peerSDK)
	rate("REST/gateway", medium, ourREST, peerGateway)
	rate(ourGRPC+" stream", stream, ourGRPC, direct)
	rate(ourSSE, stream, ourSSE, direct)
}

// report compares with the aims. What the document had from the run before goes into the last column, so that it shows how far two runs differ.
func (r results) report(doc *document) error {
	before, err := doc.section("aims")
	if err != nil {
		return err
	}
	last := map[string][]string{}
	for line := range strings.Lines(before) {
		if f := strings.Split(line, "|"); len(f) == 8 {
			last[strings.TrimSpace(f[1])] = []string{strings.TrimSpace(f[1]), strings.TrimSpace(f[2]), strings.TrimSpace(f[3]), strings.TrimSpace(f[4]), strings.TrimSpace(f[5]), strings.TrimSpace(f[6])}
		}
	}
	t := &table{title: "Aims", head: []string{"", "aim", "this run", "by CPU", "the run before", "met"}}
	for _, a := range aims {
		was := last[a.what]
		got, ok := r[a.figure]
		if !ok {
			if was != nil { // a run of some parts leaves the others as they are
				t.add(was...)
			}
			continue
		}
		sign, met := "≤", got <= a.want
		if a.least {
			sign, met = "≥", got >= a.want
		}
		earlier := "–"
		if was != nil {
			earlier = was[2]
			if was[3] != "–" {
				earlier += ", " + was[3]
			}
		}
		cpu := "–"
		if v, ok := r[a.figure+byCPU]; ok {
			cpu = ratio(v, 1)
			met = a.least && v >= a.want
		}
		t.add(a.what, fmt.Sprintf("%s %v", sign, a.want), ratio(got, 1), cpu, earlier, map[bool]string{true: "yes", false: "no"}[met])
	}
	if len(t.rows) == 0 {
		return nil
	}
	return doc.putTables("aims", t)
}
