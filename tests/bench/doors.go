package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/toolway/toolway/tests/internal/run"
)

// plan says how much is measured.
type plan struct {
	shapes  []shape
	callers []int
	rounds  int
	length  time.Duration
	peers   bool
}

// cell is one shape with so many callers.
type cell struct {
	shape   string
	callers int
}

// figures are medians by path name.
type figures map[cell]map[string]sample

// The names of the paths that aims are about.
const (
	direct      = "direct gRPC"
	ourGRPC     = "toolway gRPC"
	ourREST     = "toolway REST"
	ourSSE      = "toolway SSE"
	ourMCP25    = "toolway MCP 2025-11-25"
	ourMCP26    = "toolway MCP 2026-07-28"
	peerNginx   = "nginx grpc_pass"
	peerGateway = "grpc-gateway REST"
	peerSDK     = "go-sdk MCP 2025-11-25"
)

// doors measures every path to one backend. Each round of a cell goes through all paths, so that what else the machine does meets all of them.
func doors(ctx context.Context, of plan, doc *document) (figures, error) {
	backend, addr, err := run.Child("probe")
	if err != nil {
		return nil, err
	}
	defer backend.Kill()
	paths, missing, done, err := waysTo(addr, of.peers)
	if err != nil {
		return nil, err
	}
	defer done()
	out := figures{}
	for _, s := range of.shapes {
		for _, n := range of.callers {
			samples := map[string][]sample{}
			for _, p := range paths {
				if open := p.open(s); open != nil { // caches are filled
					if _, _, err := load(ctx, open, 1, of.length/4); err != nil {
						return nil, fmt.Errorf("%s, %s: %w", p.name, s.name, err)
					}
				}
			}
			for range of.rounds {
				for _, p := range paths {
					if p.open(s) == nil {
						continue
					}
					one, err := p.measure(ctx, s, process{pid: backend.PID()}, n, of.length)
					if err != nil {
						return nil, fmt.Errorf("%s, %s: %w", p.name, s.name, err)
					}
					samples[p.name] = append(samples[p.name], one)
				}
			}
			out[cell{s.name, n}] = map[string]sample{}
			for name, all := range samples {
				out[cell{s.name, n}][name] = middle(all)
			}
			fmt.Fprintf(os.Stderr, "measured: %s, %d callers\n", s.name, n)
		}
	}
	var tables []*table
	for _, s := range of.shapes {
		tables = append(tables, tableOf(s, of, paths, out))
	}
	if len(missing) > 0 {
		tables[0].note("Not measured: %s.", strings.Join(missing, "; "))
	}
	return out, doc.putTables("doors", tables...)
}

func tableOf(s shape, of plan, paths []*path, all figures) *table {
	at := of.callers[len(of.callers)/2]
	t := &table{title: fmt.Sprintf("%s, median of %d rounds of %v", s.name, of.rounds, of.length), head: []string{"÷ direct"}}
	for _, n := range of.callers {
		t.head = append(t.head, fmt.Sprintf("calls/s, %d callers", n), "p50", "p99")
	}
	t.head = append(t.head, fmt.Sprintf("calls by CPU, %d callers", at), "proxy's CPU", "allocations", "KB allocated")
	base := []string{direct + ": calls/s, µs"}
	for _, n := range of.callers {
		d := all[cell{s.name, n}][direct]
		base = append(base, fmt.Sprintf("%.0f", d.rate), fmt.Sprintf("%.0f", d.p50*1e6), fmt.Sprintf("%.0f", d.p99*1e6))
	}
	backend := all[cell{s.name, at}][direct].backendCPU
	whole := all[cell{s.name, at}][direct].allCPU
	t.add(append(base, fmt.Sprintf("%.0f", whole*1e6), fmt.Sprintf("%.0f", backend*1e6), "–", "–")...)
	for _, p := range paths[1:] {
		if p.open(s) == nil {
			continue
		}
		row := []string{p.name}
		for _, n := range of.callers {
			d, f := all[cell{s.name, n}][direct], all[cell{s.name, n}][p.name]
			row = append(row, ratio(f.rate, d.rate), ratio(f.p50, d.p50), ratio(f.p99, d.p99))
		}
		f := all[cell{s.name, at}][p.name]
		row = append(row, ratio(whole, f.allCPU), ratio(f.proxyCPU, backend))
		if p.proxy.admin == "" {
			row = append(row, "–", "–")
		} else {
			row = append(row, fmt.Sprintf("%.0f", f.allocs), fmt.Sprintf("%.1f", f.bytes/1000))
		}
		t.add(row...)
	}
	t.note("Calls by CPU: the processor time of a direct call, load and backend together, ÷ that of load, proxy and backend; what calls/s would be on a machine")
	t.note("that does nothing else. The proxy's CPU is a multiple of what the backend itself uses for a direct call.")
	return t
}

// waysTo starts the mesh, with flags besides the backend, and the peers before a backend and returns the ways there, the direct one first, and which peers this machine has not.
func waysTo(backend string, peers bool, flags ...string) (paths []*path, missing []string, done func(), err error) {
	var undo []func()
	done = func() {
		for i := range undo {
			undo[len(undo)-1-i]()
		}
	}
	fail := func(err error) ([]*path, []string, func(), error) {
		done()
		return nil, nil, nil, err
	}
	over := func(addr string) (func(s shape) func() (caller, error), error) {
		open, end, err := overGRPC(addr)
		if err == nil {
			undo = append(undo, end)
		}
		return open, err
	}
	open, err := over(backend)
	if err != nil {
		return fail(err)
	}
	paths = append(paths, &path{name: direct, open: open})

	mesh, err := run.Serve(append([]string{"--backend", "probe=" + backend}, flags...)...)
	if err != nil {
		return fail(err)
	}
	undo = append(undo, mesh.Kill)
	ours := &proxy{process: process{mesh.PID(), mesh.Admin}}
	if open, err = over(mesh.GRPC); err != nil {
		return fail(err)
	}
	rest := overREST(mesh.HTTP, "text/event-stream")
	paths = append(paths,
		&path{ourGRPC, ours, open},
		&path{ourREST, ours, func(s shape) func() (caller, error) { return only(!s.stream, rest(s)) }},
		&path{ourSSE, ours, func(s shape) func() (caller, error) { return only(s.stream, rest(s)) }},
		&path{ourMCP25, ours, overMCP(mesh.HTTP, "/mcp", "2025-11-25")},
		&path{ourMCP26, ours, overMCP(mesh.HTTP, "/mcp", "2026-07-28")},
	)
	if !peers {
		return paths, nil, done, nil
	}
	nginx, err := startNginx(backend)
	switch {
	case errors.Is(err, errNoNginx):
		missing = append(missing, err.Error())
	case err != nil:
		return fail(err)
	default:
		undo = append(undo, nginx.stop)
		if open, err = over(nginx.addr); err != nil {
			return fail(err)
		}
		paths = append(paths, &path{peerNginx, nginx, open})
	}
	started := map[string]*proxy{}
	for _, name := range []string{"stream", "gateway", "vanguard", "sdk", "floor"} {
		p, err := startPeer(name, backend)
		if err != nil {
			return fail(err)
		}
		undo = append(undo, p.stop)
		started[name] = p
	}
	if open, err = over(started["stream"].addr); err != nil {
		return fail(err)
	}
	sdk, floor := started["sdk"], started["floor"]
	paths = append(paths,
		&path{"floor REST", floor, overREST(floor.addr, "")},
		&path{"floor MCP", floor, overMCP(floor.addr, "/mcp", "2025-11-25")},
		&path{"grpc-go stream proxy", started["stream"], open},
		&path{peerGateway, started["gateway"], overREST(started["gateway"].addr, "application/json")},
		&path{"vanguard-go REST", started["vanguard"], overREST(started["vanguard"].addr, "")},
		&path{peerSDK, sdk, overMCP(sdk.addr, "/", "2025-11-25")},
		&path{"go-sdk MCP 2026-07-28", sdk, overMCP(sdk.addr, "/", "2026-07-28")},
	)
	return paths, missing, done, nil
}

func only(when bool, open func() (caller, error)) func() (caller, error) {
	if !when {
		return nil
	}
	return open
}
