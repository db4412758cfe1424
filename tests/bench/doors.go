package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/run"
)

// path is one way to the backend.
type path struct {
	name string
	aim  float64 // calls/s against direct, from PERFORMANCE.md; 0 is none
	call func(ctx context.Context) error

	rates, p50s, meshCPU, backendCPU []float64
}

// doors measures a small call through every door against the direct one.
func doors(rounds int, length time.Duration, callers int) error {
	backend, addr, err := run.Child("probe")
	if err != nil {
		return err
	}
	defer backend.Kill()
	mesh, err := run.Serve("--backend", "probe="+addr)
	if err != nil {
		return err
	}
	defer mesh.Kill()
	paths, done, err := waysTo(addr, mesh, callers)
	if err != nil {
		return err
	}
	defer done()
	for _, p := range paths { // connections are made and caches filled
		if _, _, err := load(p.call, callers, length/4); err != nil {
			return fmt.Errorf("%s: %w\n%s", p.name, err, mesh.Log())
		}
	}
	for range rounds {
		for _, p := range paths {
			if err := p.measure(mesh.PID(), backend.PID(), callers, length); err != nil {
				return fmt.Errorf("%s: %w\n%s", p.name, err, mesh.Log())
			}
		}
	}
	direct := paths[0]
	fmt.Printf("small call, %d callers, medians of %d rounds of %v, every path in each round:\n", callers, rounds, length)
	fmt.Printf("  %-22s %9s %8s %7s %9s %9s\n", "path", "calls/s", "÷ direct", "aim", "p50 ÷", "mesh CPU ÷ backend's")
	for _, p := range paths {
		aim := "-"
		if p.aim > 0 {
			aim = fmt.Sprintf("%.2f", p.aim)
		}
		cpu := "-"
		if p != direct {
			cpu = fmt.Sprintf("%.1f", median(p.meshCPU)/median(p.backendCPU))
		}
		fmt.Printf("  %-22s %9.0f %8.2f %7s %9.1f %9s\n", p.name, median(p.rates), median(p.rates)/median(direct.rates), aim, median(p.p50s)/median(direct.p50s), cpu)
	}
	return mesh.Stop()
}

func (p *path) measure(mesh, backend, callers int, length time.Duration) error {
	m0, err := processor(mesh)
	if err != nil {
		return err
	}
	b0, err := processor(backend)
	if err != nil {
		return err
	}
	rate, p50, err := load(p.call, callers, length)
	if err != nil {
		return err
	}
	m1, err := processor(mesh)
	if err != nil {
		return err
	}
	b1, err := processor(backend)
	if err != nil {
		return err
	}
	calls := rate * length.Seconds()
	p.rates, p.p50s = append(p.rates, rate), append(p.p50s, p50.Seconds())
	p.meshCPU, p.backendCPU = append(p.meshCPU, (m1-m0).Seconds()/calls), append(p.backendCPU, (b1-b0).Seconds()/calls)
	return nil
}

// load calls from many goroutines for a while and returns calls per second and the median latency.
func load(call func(ctx context.Context) error, callers int, length time.Duration) (rate float64, p50 time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), length+run.Patience)
	defer cancel()
	var wg sync.WaitGroup
	took := make([][]time.Duration, callers)
	failed := make([]error, callers)
	start := time.Now()
	for i := range callers {
		wg.Go(func() {
			for last := start; last.Sub(start) < length; {
				if failed[i] = call(ctx); failed[i] != nil {
					return
				}
				now := time.Now()
				took[i] = append(took[i], now.Sub(last))
				last = now
			}
		})
	}
	wg.Wait()
	whole := time.Since(start)
	for _, err := range failed {
		if err != nil {
			return 0, 0, err
		}
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	return float64(len(all)) / whole.Seconds(), all[len(all)/2], nil
}

func waysTo(backend string, mesh *run.Mesh, callers int) (paths []*path, done func(), err error) {
	direct, err := dial(backend)
	if err != nil {
		return nil, nil, err
	}
	door, err := dial(mesh.GRPC)
	if err != nil {
		return nil, nil, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	const small = `{"text":"hello, small call","number":"12345678901"}`
	const tool = `"name":"probe_ask","arguments":` + small
	const accept = "application/json, text/event-stream"
	paths = []*path{
		{name: "direct gRPC", call: ask(direct)},
		{name: "gRPC door", aim: 0.38, call: ask(door)},
		{name: "HTTP door, route", aim: 0.48, call: post(client, mesh.URL("/v1/probe/x:ask"), small, http.Header{})},
		{name: "HTTP door, method", aim: 0.48, call: post(client, mesh.URL("/probe.v1.Probe/Ask"), small, http.Header{})},
		{name: "MCP door, 2025-11-25", aim: 0.45, call: post(client, mesh.URL("/mcp"), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+tool+`}}`,
			http.Header{"Accept": {accept}, "Mcp-Protocol-Version": {"2025-11-25"}})},
		{name: "MCP door, 2026-07-28", aim: 0.45, call: post(client, mesh.URL("/mcp"), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+tool+
			`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			http.Header{"Accept": {accept}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"probe_ask"}})},
	}
	return paths, func() {
		direct.Close()
		door.Close()
		client.CloseIdleConnections()
	}, nil
}

func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func ask(cc *grpc.ClientConn) func(ctx context.Context) error {
	client := probev1.NewProbeClient(cc)
	return func(ctx context.Context) error {
		_, err := client.Ask(ctx, &probev1.AskRequest{Text: "hello, small call", Number: 12345678901})
		return err
	}
}

func post(client *http.Client, url, body string, header http.Header) func(ctx context.Context) error {
	header.Set("Content-Type", "application/json")
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(body)))
		if err != nil {
			return err
		}
		req.Header = header
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK || !bytes.Contains(b, []byte("hello, small call")) || bytes.Contains(b, []byte(`"isError":true`)) {
			return fmt.Errorf("%s: %.300s", resp.Status, b)
		}
		return nil
	}
}
