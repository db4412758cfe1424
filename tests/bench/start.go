package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// startUp measures the time to /readyz and the memory: with one small backend, with an embedded store, and with the largest set of the corpus.
func startUp(ctx context.Context, rounds int, doc *document, found results) error {
	t := &table{title: fmt.Sprintf("Start, median of %d", rounds), head: []string{"", "ready after, ms", "resident then, MB", "resident after tools/list and openapi.json, MB"}}
	if err := startPlain(rounds, t, found); err != nil {
		return err
	}
	if err := startLarge(ctx, rounds, t); err != nil {
		return err
	}
	return doc.putTables("start", t)
}

// startPlain starts before the probe: without a store, with a new one, and with that again.
func startPlain(rounds int, t *table, found results) error {
	backend, addr, err := run.Child("probe")
	if err != nil {
		return err
	}
	defer backend.Kill()
	dir, err := os.MkdirTemp("", "toolway-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is below the temporary directory
	for _, what := range []string{"one small backend", "with a new embedded store", "with the same store again"} {
		var took, size []float64
		for i := range rounds {
			args := []string{"--backend", "probe=" + addr}
			if what != "one small backend" {
				args = append(args, "--data", filepath.Join(dir, strconv.Itoa(i)))
			}
			s, mb, err := startOnce(args, nil)
			if err != nil {
				return err
			}
			took, size = append(took, s), append(size, mb)
		}
		t.add(what, fmt.Sprintf("%.0f", median(took)*1e3), fmt.Sprintf("%.0f", median(size)), "–")
		found["start s"], found["resident MB"] = median(took), median(size)
	}
	return nil
}

// startLarge starts before a server without reflection, so that the contract is the set's alone.
func startLarge(ctx context.Context, rounds int, t *table) error {
	const name = "googleapis-core.binpb"
	set, err := run.Descriptors(name)
	if err != nil {
		return err
	}
	backend, addr, err := run.Child("probe", "-reflection", "none")
	if err != nil {
		return err
	}
	defer backend.Kill()
	var took, ready, listed []float64
	tools := 0
	for range rounds {
		s, mb, err := startOnce([]string{"--backend", "googleapis=" + addr, "--descriptors", "googleapis=" + set}, func(m *run.Mesh) error {
			var err error
			if tools, err = listAll(ctx, m); err != nil {
				return err
			}
			after, err := resident(m.PID())
			listed = append(listed, after)
			return err
		})
		if err != nil {
			return err
		}
		took, ready = append(took, s), append(ready, mb)
	}
	t.add(fmt.Sprintf("%s, %d tools", name, tools), fmt.Sprintf("%.0f", median(took)*1e3), fmt.Sprintf("%.0f", median(ready)), fmt.Sprintf("%.0f", median(listed)))
	return nil
}

// startOnce starts a mesh and says how many seconds that took and how many MB were resident; then, if not nil, is called before the mesh stops.
func startOnce(args []string, then func(m *run.Mesh) error) (took, mb float64, err error) {
	start := time.Now()
	m, err := run.Serve(args...)
	if err != nil {
		return 0, 0, err
	}
	defer m.Kill()
	took = time.Since(start).Seconds()
	if mb, err = resident(m.PID()); err != nil {
		return 0, 0, err
	}
	if then != nil {
		if err := then(m); err != nil {
			return 0, 0, err
		}
	}
	return took, mb, m.Stop()
}

// listAll makes the mesh build what it builds on demand: every tool's schema and the OpenAPI document.
func listAll(ctx context.Context, m *run.Mesh) (tools int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*run.Patience)
	defer cancel()
	a, err := agent.NewHTTP(ctx, m.URL("/mcp"), agent.V20260728, nil)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	all, err := agent.Tools(ctx, a)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL("/openapi.json"), http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("openapi.json: %s", resp.Status)
	}
	return len(all), nil
}
