package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/run"
)

// crowd says how many read a task's events, and what they read.
type crowd struct {
	idle, active int
	// events is how many messages the busy task's backend sends, one each pace.
	events int
	pace   time.Duration
}

// watchers has many readers of a silent task's events beside those of a busy one, and measures what an idle reader costs in memory and how late a busy
// one is. It fails if one of them does not get every event once and in order. Each reader has a connection of its own: this process and the mesh
// need a file descriptor for each.
func watchers(of crowd) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := begin(ctx)
	if err != nil {
		return err
	}
	defer l.end()
	fmt.Printf("== load: %d idle and %d busy readers of GET /v1/tasks/{id}/events, %d messages, one each %v; load average %s\n", of.idle, of.active, of.events, of.pace, loadAverage())

	silent, err := l.task(ctx, "silent", map[string]any{"hang": true})
	if err != nil {
		return err
	}
	busy, err := l.task(ctx, "busy", map[string]any{"gate": true, "count": of.events, "size": 100})
	if err != nil {
		return err
	}
	if _, err := l.follow(ctx, silent, 1); err != nil { // what the first reader costs, others do not
		return err
	}
	before, err := resident(l.mesh.PID())
	if err != nil {
		return err
	}
	idle, err := l.follow(ctx, silent, of.idle)
	if err != nil {
		return err
	}
	after, err := resident(l.mesh.PID())
	if err != nil {
		return err
	}
	fmt.Printf("  memory of an idle reader    %8.1f KiB  (resident %.0f MB without, %.0f MB with)\n", (after-before)*1e6/1024/float64(of.idle), before, after)

	active, err := l.follow(ctx, busy, of.active)
	if err != nil {
		return err
	}
	cpu, err := processor(l.mesh.PID())
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := l.send(ctx, of); err != nil {
		return err
	}
	lags, err := l.same(ctx, busy, active, of.events+4) // created, started, completed, and the task's end
	if err != nil {
		return err
	}
	took := time.Since(begun)
	used, err := processor(l.mesh.PID())
	if err != nil {
		return err
	}
	slices.Sort(lags)
	at := func(part float64) time.Duration {
		return lags[int(part*float64(len(lags)-1))].Round(100 * time.Microsecond)
	}
	fmt.Printf("  event lag                   p50 %v, p99 %v, most %v\n", at(0.5), at(0.99), at(1))
	fmt.Printf("  events delivered            %d in %v, %.0f%% of a processor\n", len(lags), took.Round(100*time.Millisecond), 100*float64(used-cpu)/float64(took))
	// The idle ones were not forgotten: each is told of the end.
	if _, err := l.post(ctx, "/v1/tasks/"+silent+":cancel", "{}"); err != nil {
		return err
	}
	if _, err := l.same(ctx, silent, idle, 0); err != nil {
		return err
	}
	full, err := resident(l.mesh.PID())
	if err != nil {
		return err
	}
	fmt.Printf("  resident at the end         %8.0f MB\n  every reader got every event once, in order; load average %s\n", full, loadAverage())
	return nil
}

// loaded is a mesh with an embedded store, before a probe in this process.
type loaded struct {
	probe  *probe.Server
	mesh   *run.Mesh
	dir    string
	client *http.Client
	served chan error
	stop   context.CancelFunc
}

func begin(ctx context.Context) (*loaded, error) {
	ctx, stop := context.WithCancel(ctx)
	l := &loaded{probe: probe.New(), stop: stop, served: make(chan error, 1), client: &http.Client{Transport: &http.Transport{}}}
	addr := make(chan string, 1)
	go func() { l.served <- l.probe.Serve(ctx, "127.0.0.1:0", probe.Both, func(a string) { addr <- a }) }()
	select {
	case err := <-l.served:
		stop()
		return nil, err
	case a := <-addr:
		var err error
		if l.dir, err = os.MkdirTemp("", "toolway-load-"); err == nil {
			l.mesh, err = run.Serve("--backend", "probe="+a, "--data", l.dir, "--admin-pprof")
		}
		if err != nil {
			l.end()
			return nil, err
		}
	}
	return l, nil
}

func (l *loaded) end() {
	if l.mesh != nil {
		l.mesh.Kill()
	}
	l.stop()
	if err := <-l.served; err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
	}
	_ = os.RemoveAll(l.dir) // it is below the temporary directory
}

func (l *loaded) post(ctx context.Context, path, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.mesh.URL(path), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := l.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, res.Status, raw)
	}
	return raw, err
}

// task makes a task of the probe's Watch and returns its id once the backend has its call.
func (l *loaded) task(ctx context.Context, id string, plan map[string]any) (string, error) {
	body, err := json.Marshal(map[string]any{"method": "probe.v1.Probe/Watch", "arguments": map[string]any{"id": id, "plan": plan}})
	if err != nil {
		return "", err
	}
	raw, err := l.post(ctx, "/v1/tasks", string(body))
	if err != nil {
		return "", err
	}
	var made struct{ ID string }
	if err := json.Unmarshal(raw, &made); err != nil || made.ID == "" {
		return "", fmt.Errorf("%s: no task: %w", raw, err)
	}
	ctx, cancel := context.WithTimeout(ctx, run.Patience)
	defer cancel()
	_, err = l.probe.Call(ctx, id)
	return made.ID, err
}

// send lets the busy call's answers out at the pace; one that is late does not make the next ones late.
func (l *loaded) send(ctx context.Context, of crowd) error {
	c, err := l.probe.Call(ctx, "busy")
	if err != nil {
		return err
	}
	tick := time.NewTicker(of.pace)
	defer tick.Stop()
	for range of.events {
		<-tick.C
		c.Pass()
	}
	return nil
}

// reader is what one reader has got.
type reader struct {
	ids  []string
	lags []time.Duration
	err  error
	done chan struct{}
}

// follow opens readers of a task's events, 50 at a time, and returns when each has got the events that are there already: created and started.
func (l *loaded) follow(ctx context.Context, id string, n int) ([]*reader, error) {
	out := make([]*reader, n)
	var opening sync.WaitGroup
	turns := make(chan struct{}, 50)
	for i := range out {
		r := &reader{done: make(chan struct{})}
		out[i] = r
		turns <- struct{}{}
		begun := make(chan struct{})
		opening.Go(func() {
			select {
			case <-begun:
			case <-r.done:
			}
			<-turns
		})
		go func() {
			defer close(r.done)
			r.err = l.read(ctx, id, r, begun)
		}()
	}
	opening.Wait()
	for _, r := range out {
		select {
		case <-r.done:
			return nil, errors.Join(errors.New("a reader's stream ended at once"), r.err)
		default:
		}
	}
	return out, nil
}

// read reads events to the end of the stream. It closes begun after the second one.
func (l *loaded) read(ctx context.Context, id string, r *reader, begun chan struct{}) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.mesh.URL("/v1/tasks/"+id+"/events"), http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := l.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(res.Body)
		return fmt.Errorf("%s: %s", res.Status, raw)
	}
	lines := bufio.NewScanner(res.Body)
	sse, kind := "", ""
	for lines.Scan() {
		line := lines.Bytes()
		field, value, _ := bytes.Cut(line, []byte(": "))
		switch string(field) {
		case "id":
			sse = string(value)
		case "event":
			kind = string(value)
		case "data":
			now := time.Now()
			if kind == "end" {
				return nil
			}
			var e struct {
				EventID    string
				OccurredAt time.Time
			}
			if err := json.Unmarshal(value, &e); err != nil {
				return fmt.Errorf("%s: %w", value, err)
			}
			if e.EventID == "" || e.EventID != sse {
				return fmt.Errorf("event %q with id %q: %s", kind, sse, value)
			}
			r.ids, r.lags = append(r.ids, sse), append(r.lags, now.Sub(e.OccurredAt))
			if len(r.ids) == 2 {
				close(begun)
			}
		}
	}
	return errors.Join(lines.Err(), errors.New("the stream ended without an end event"))
}

// same waits for the readers of a task that ends and compares what they have got with what one gets who reads it all afterwards. The lags are those
// of the events that came while they read.
func (l *loaded) same(ctx context.Context, id string, readers []*reader, want int) ([]time.Duration, error) {
	limit := time.After(run.Patience)
	var lags []time.Duration
	for n, r := range readers {
		select {
		case <-limit:
			return nil, fmt.Errorf("reader %d has not come to the end, %v after the last message", n, run.Patience)
		case <-r.done:
		}
		if r.err != nil {
			return nil, fmt.Errorf("reader %d: %w", n, r.err)
		}
		lags = append(lags, r.lags[2:]...)
	}
	all := &reader{}
	if err := l.read(ctx, id, all, make(chan struct{})); err != nil {
		return nil, err
	}
	if want > 0 && len(all.ids) != want {
		return nil, fmt.Errorf("the task has %d events, want %d", len(all.ids), want)
	}
	for n, r := range readers {
		if !slices.Equal(r.ids, all.ids) {
			return nil, fmt.Errorf("reader %d has %d events, want %d:\n%v\n%v", n, len(r.ids), len(all.ids), r.ids, all.ids)
		}
	}
	return lags, nil
}

// loadAverage is that of the last minute, if the system tells.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
