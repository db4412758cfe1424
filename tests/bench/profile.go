package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/toolway/toolway/tests/internal/run"
)

// kind is a kind of work and how its functions are called.
type kind struct {
	name     string
	prefixes []string
}

// kinds are asked in this order for each frame of a stack, from the innermost out; the first that knows a frame has the sample.
var kinds = []kind{
	{"system calls", []string{"syscall.", "internal/runtime/syscall.", "internal/runtime/syscall/", "runtime.netpoll", "runtime.epoll"}},
	{"memory: allocation and collection", []string{
		"runtime.mallocgc", "runtime.gc", "runtime.scan", "runtime.newobject", "runtime.makeslice", "runtime.growslice", "runtime.greyobject", "runtime.bgsweep", "runtime.bgscavenge",
		"runtime.sweep", "runtime.(*gc", "runtime.(*mheap)", "runtime.(*mcache)", "runtime.(*mcentral)", "runtime.wbBufFlush",
	}},
	{"scheduler, timers, locks", []string{
		"runtime.schedule", "runtime.findRunnable", "runtime.mcall", "runtime.park", "runtime.goready", "runtime.ready", "runtime.wakep", "runtime.futex", "runtime.lock2", "runtime.unlock2",
		"runtime.newproc", "runtime.sel", "runtime.chan", "runtime.goexit0", "runtime.sysmon", "runtime.usleep", "runtime.notesleep", "runtime.(*timer", "time.", "sync.", "internal/sync.",
	}},
	{"toolway: transcoder", []string{"github.com/toolway/toolway/internal/transcode"}},
	{"toolway: chain and audit", []string{"github.com/toolway/toolway/interceptors", "github.com/toolway/toolway/internal/audit", "github.com/toolway/toolway/internal/task"}},
	{"toolway: doors", []string{"github.com/toolway/toolway/mcpadapter", "github.com/toolway/toolway/gateway", "github.com/toolway/toolway/internal/proxy", "github.com/toolway/toolway/internal/mesh"}},
	{"toolway: the rest", []string{"github.com/toolway/toolway"}},
	{"HTTP/2 framing and headers", []string{"golang.org/x/net/http2", "google.golang.org/grpc/internal/transport"}},
	{"grpc-go above that", []string{"google.golang.org/grpc"}},
	{"net/http", []string{"net/http", "net/textproto", "mime", "bufio.", "net/url"}},
	{"net", []string{"net.", "internal/poll."}},
}

const otherKind = "other"

// profiles tells what the mesh spends its processor time on, by path, for a shape with 16 callers.
func profiles(ctx context.Context, length time.Duration, doc *document) error {
	backend, addr, err := run.Child("probe")
	if err != nil {
		return err
	}
	defer backend.Kill()
	paths, _, done, err := waysTo(addr, false, "--admin-pprof")
	if err != nil {
		return err
	}
	defer done()
	var tables []*table
	for _, s := range []shape{shapes[0], shapes[1], shapes[3]} {
		t := &table{title: fmt.Sprintf("Where the mesh spends its time: %s, 16 callers, %% of its samples", s.name), head: []string{""}}
		var columns []map[string]float64
		for _, p := range paths[1:] {
			if p.open(s) == nil || s.stream && p.name == ourMCP25 {
				continue
			}
			shares, err := p.profile(ctx, s, length)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", p.name, s.name, err)
			}
			t.head = append(t.head, strings.TrimPrefix(p.name, "toolway "))
			columns = append(columns, shares)
		}
		for _, k := range append(slices.Clone(kinds), kind{name: otherKind}) {
			row := []string{k.name}
			for _, c := range columns {
				row = append(row, fmt.Sprintf("%.0f", 100*c[k.name]))
			}
			t.add(row...)
		}
		tables = append(tables, t)
	}
	return doc.putTables("profile", tables...)
}

// profile loads a path for a while and returns what part of the proxy's samples each kind of work has.
func (p *path) profile(ctx context.Context, s shape, length time.Duration) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, length+run.Patience)
	defer cancel()
	loaded := make(chan error, 1)
	go func() {
		_, _, err := load(ctx, p.open(s), 16, length+time.Second)
		loaded <- err
	}()
	taken, err := takeProfile(ctx, p.proxy.admin, length)
	if err := <-loaded; err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	shares := map[string]float64{}
	var all float64
	for _, sample := range taken.Sample {
		n := float64(sample.Value[1]) // nanoseconds
		shares[kindOf(sample)] += n
		all += n
	}
	for name := range shares {
		shares[name] /= all
	}
	return shares, nil
}

func takeProfile(ctx context.Context, admin string, length time.Duration) (*profile.Profile, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", admin, int(length.Seconds())), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("profile: %s: %.200s", resp.Status, b)
	}
	return profile.Parse(bytes.NewReader(b))
}

func kindOf(s *profile.Sample) string {
	for _, l := range s.Location {
		for _, line := range l.Line { // the innermost first
			if line.Function == nil {
				continue
			}
			for _, k := range kinds {
				if slices.ContainsFunc(k.prefixes, func(p string) bool { return strings.HasPrefix(line.Function.Name, p) }) {
					return k.name
				}
			}
		}
	}
	return otherKind
}
