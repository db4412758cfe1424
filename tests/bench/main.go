// Command bench measures the built binary: how long it takes to be ready with the largest shared descriptor set and what it holds then, and
// how the three doors compare to a direct gRPC call in one interleaved run, and the store to others. Only the ratios carry over to another machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

func main() {
	log.SetFlags(0)
	quick := flag.Bool("quick", false, "fewer and shorter rounds: under a minute")
	callers := flag.Int("callers", 16, "callers at a time")
	readersOnly := flag.Bool("load", false, "measure many readers of task events, and nothing else")
	idle := flag.Int("idle", 2000, "with -load: readers of a silent task")
	active := flag.Int("active", 200, "with -load: readers of a busy task")
	flag.Parse()
	if *readersOnly {
		of := crowd{idle: *idle, active: *active, events: 1000, pace: 20 * time.Millisecond}
		if *quick {
			of.events = 100
		}
		if err := watchers(of); err != nil {
			log.Fatal(err)
		}
		return
	}
	rounds, length := 7, 2*time.Second
	if *quick {
		rounds, length = 3, 500*time.Millisecond
	}
	if err := startUp(min(rounds, 5)); err != nil {
		log.Fatal(err)
	}
	if err := doors(rounds, length, *callers); err != nil {
		log.Fatal(err)
	}
	n := 5000
	if *quick {
		n = 1000
	}
	if err := stores(n, *callers); err != nil {
		log.Fatal(err)
	}
}

// startUp measures the time to /readyz and the memory with the largest set of the corpus.
func startUp(rounds int) error {
	const name = "googleapis-core.binpb"
	set, err := run.Descriptors(name)
	if err != nil {
		return err
	}
	if err := run.Prepare("probe"); err != nil {
		return err
	}
	// A server without reflection, so that the contract is the set's alone.
	backend, addr, err := run.Child("probe", "-reflection", "none")
	if err != nil {
		return err
	}
	defer backend.Kill()
	var times, ready, listed []float64
	tools := 0
	for range rounds {
		start := time.Now()
		m, err := run.Serve("--backend", "googleapis="+addr, "--descriptors", "googleapis="+set)
		if err != nil {
			return err
		}
		times = append(times, time.Since(start).Seconds())
		atReady, err := resident(m.PID())
		if err != nil {
			return err
		}
		ready = append(ready, atReady)
		if tools, err = listAll(m); err != nil {
			return err
		}
		afterList, err := resident(m.PID())
		if err != nil {
			return err
		}
		listed = append(listed, afterList)
		if err := m.Stop(); err != nil {
			return err
		}
	}
	fmt.Printf("start-up with %s (%d tools listed), median of %d:\n", name, tools, rounds)
	fmt.Printf("  ready after                              %6.2f s    (aim 3 s)\n", median(times))
	fmt.Printf("  resident when ready                      %6.0f MB   (aim 300 MB)\n", median(ready))
	fmt.Printf("  resident after tools/list, openapi.json  %6.0f MB   (aim 300 MB)\n\n", median(listed))
	return nil
}

// listAll makes the mesh build what it builds on demand: every tool's schema and the OpenAPI document.
func listAll(m *run.Mesh) (tools int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*run.Patience)
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

// resident is the resident memory of a process in MB, of 10^6 bytes.
func resident(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("resident memory on %s: %w", runtime.GOOS, err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			return kb * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in /proc/%d/status", pid)
}

// processor is the processor time that a process has used.
func processor(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time on %s: %w", runtime.GOOS, err)
	}
	// Fields are counted after the command's name, which may hold spaces: utime and stime are the 12th and 13th, in hundredths.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var ticks int64
	for _, s := range f[11:13] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
