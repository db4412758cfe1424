package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
	"github.com/toolway/toolway/services/internal/pgtest"
	"github.com/toolway/toolway/services/workloads"
)

const patience = 30 * time.Second

// program builds the command, without the Kubernetes driver, as it is not needed here. TestMain removes the directory built.
var program = sync.OnceValues(func() (_ string, err error) {
	if built, err = os.MkdirTemp("", "workloads-test-"); err != nil {
		return "", err
	}
	path := filepath.Join(built, "workloads")
	build := exec.CommandContext(context.Background(), "go", "build", "-tags", "nokubernetes", "-o", path, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

var built string

// victim is the service as a process that is killed and started again; callers always find the living one.
type victim struct {
	t    *testing.T
	args []string
	log  string
	env  []string

	cmd     *exec.Cmd
	client  atomic.Pointer[grpc.ClientConn]
	stopped func()
}

var serving = regexp.MustCompile(`msg=serving addr=(\S+)\n`)

// start starts the service and waits until it serves.
func (v *victim) start() {
	v.t.Helper()
	path, err := program()
	if err != nil {
		v.t.Fatal(err)
	}
	log, err := os.OpenFile(v.log, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		v.t.Fatal(err)
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		v.t.Fatal(err)
	}
	v.cmd = exec.Command(path, append([]string{"--addr", "127.0.0.1:0"}, v.args...)...)
	v.cmd.Env = append(os.Environ(), v.env...)
	v.cmd.Stderr = log
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	if v.stopped == nil {
		v.stopped = sync.OnceFunc(v.end)
		v.t.Cleanup(v.stopped) // with what it supervises, also if the test fails
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(v.log)
		if err != nil {
			v.t.Fatal(err)
		}
		if m := serving.FindSubmatch(text[before:]); m != nil {
			conn, err := grpc.NewClient(string(m[1]), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				v.t.Fatal(err)
			}
			if old := v.client.Swap(conn); old != nil {
				_ = old.Close()
			}
			return
		}
		if time.Now().After(end) {
			v.t.Fatalf("does not serve: %s", text[before:])
		}
	}
}

func (v *victim) kill() {
	v.t.Helper()
	if err := v.cmd.Process.Kill(); err != nil {
		v.t.Fatal(err)
	}
	_ = v.cmd.Wait()
}

// stop ends the service as SIGTERM does.
func (v *victim) stop() { v.stopped() }

func (v *victim) end() {
	_ = v.cmd.Process.Signal(os.Interrupt)
	if err := v.cmd.Wait(); err != nil {
		v.t.Errorf("stop: %v", err)
	}
	if conn := v.client.Load(); conn != nil {
		_ = conn.Close()
	}
}

func (v *victim) service() workloadsv1.WorkloadServiceClient {
	return workloadsv1.NewWorkloadServiceClient(v.client.Load())
}

// retry repeats a call for as long as the service is away, as a caller does who does not know what became of it.
func retry[T any](ctx context.Context, v *victim, call func(context.Context, workloadsv1.WorkloadServiceClient) (T, error)) (T, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		result, err := call(attempt, v.service())
		cancel()
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
			if ctx.Err() == nil {
				time.Sleep(5 * time.Millisecond)
				continue
			}
		}
		return result, err
	}
}

// postgres starts a server for one test, and returns the URL of a database.
func postgres(t *testing.T) string {
	t.Helper()
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	url, err := server.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// Two services on one PostgreSQL would both supervise the same workloads, were they on machines of their own, whose lock files do not know each other.
func TestOneService(t *testing.T) {
	args := []string{"--database-url", postgres(t), "--workload", "web=exec sleep 1000"}
	v := &victim{t: t, args: args, log: filepath.Join(t.TempDir(), "log")}
	v.start()
	t.Setenv("TMPDIR", t.TempDir())
	if err := run(t.Context(), append(args, "--addr", "127.0.0.1:0"), io.Discard); !errors.Is(err, workloads.ErrOwned) {
		t.Errorf("second run = %v, want %v", err, workloads.ErrOwned)
	}
	v.kill()
	v.start() // is let in as soon as the one that was killed is gone
}

// The service is killed at random while callers restart and scale, each call made twice at once and retried. Then: each action took place once, every acknowledged one has ended well, and
// its events came, at the watch and at a webhook, once each when repeats are left out.
func TestKilledAtRandom(t *testing.T) {
	databases := map[string]func(t *testing.T) []string{
		"sqlite":   func(t *testing.T) []string { return []string{"--data", t.TempDir()} },
		"postgres": func(t *testing.T) []string { return []string{"--database-url", postgres(t)} },
	}
	for name, database := range databases {
		t.Run(name, func(t *testing.T) { killAtRandom(t, database(t)) })
	}
}

const (
	callers        = 3
	callsPerCaller = 4
	kills          = 12
)

func killAtRandom(t *testing.T, database []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	hook := newHook()
	receiver := httptest.NewServer(hook)
	defer receiver.Close()
	dir := t.TempDir()
	starts := filepath.Join(dir, "starts")
	config := filepath.Join(dir, "workloads.yaml")
	one := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"replicas":2,"command":["/bin/sh","-c","echo $WORKLOADS_REPLICA >>%s; exec sleep 1000"],"output":%q,"ready":{"after":"20ms"}}`, name, starts, filepath.Join(dir, "output"))
	}
	if err := os.WriteFile(config, []byte(`{"workloads":[`+one("web")+`,`+one("pool")+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	v := &victim{t: t, args: append(database, "--config", config, "--webhook", receiver.URL), log: filepath.Join(dir, "log")}
	defer func() {
		if t.Failed() {
			text, _ := os.ReadFile(v.log)
			t.Logf("log: %s", text)
		}
	}()
	v.start()
	first, err := v.service().WatchWorkload(ctx, &workloadsv1.WatchWorkloadRequest{Name: "workloads/-"})
	if err != nil {
		t.Fatal(err)
	}
	var cursor string
	for range 2 {
		m, err := first.Recv()
		if err != nil {
			t.Fatal(err)
		}
		cursor = m.GetCursor()
	}

	acknowledged := newActions()
	var calls sync.WaitGroup
	for caller := range callers {
		calls.Go(func() {
			for i := range callsPerCaller {
				incident := fmt.Sprintf("inc-%d-%d", caller, i)
				if err := act(ctx, v, incident, i%2 == 0, acknowledged); err != nil {
					t.Errorf("%s: %v", incident, err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		calls.Wait()
		close(done)
	}()
	killed := 0
	for over := false; !over || killed < kills; killed++ {
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		v.kill()
		v.start()
		select {
		case <-done:
			over = true
		default:
		}
	}
	<-done
	t.Logf("%d actions acknowledged, %d kills", len(acknowledged.all), killed)

	// Every acknowledged action ends, and well.
	for id, a := range acknowledged.all {
		for end := time.Now().Add(2 * patience); ; time.Sleep(10 * time.Millisecond) {
			now, err := v.service().LookupAction(ctx, &workloadsv1.LookupActionRequest{Name: a.GetWorkload(), Incident: a.GetIncident(), Kind: a.GetKind(), Generation: a.GetGeneration()})
			if err != nil {
				t.Fatalf("look up %s: %v", id, err)
			}
			if now.GetState() == workloadsv1.Action_STATE_SUCCEEDED {
				break
			}
			if now.GetEndTime() != nil || time.Now().After(end) {
				t.Fatalf("%s ends as %v", id, now)
			}
		}
	}
	want := len(acknowledged.all)
	generations := int64(0)
	for _, name := range []string{"workloads/web", "workloads/pool"} {
		w, err := v.service().GetWorkload(ctx, &workloadsv1.GetWorkloadRequest{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		generations += w.GetGeneration() - 1
	}
	if want != callers*callsPerCaller || generations != int64(want) {
		t.Errorf("%d actions acknowledged, %d changes made, want %d of both", want, generations, callers*callsPerCaller)
	}

	// Each replica was started once for each restart: the marker says which replica, and which restart.
	text, err := os.ReadFile(starts)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if parts := strings.Split(strings.TrimSpace(line), "/"); len(parts) == 5 && parts[1] == "web" {
			counts[parts[1]+"/"+parts[2]+"/"+parts[3]]++
		}
	}
	for replica, n := range counts {
		if n > 1 {
			t.Errorf("replica/restart %s was started %d times, want once", replica, n)
		}
	}

	events(ctx, t, v, cursor, acknowledged)
	hook.check(t, acknowledged)
	v.stop()
}

// act restarts web or scales pool for an incident: it reads, decides, and asks twice at once until it has an answer; where somebody else was quicker it decides anew.
func act(ctx context.Context, v *victim, incident string, restart bool, acknowledged *actions) error {
	name := "workloads/pool"
	if restart {
		name = "workloads/web"
	}
	for {
		w, err := retry(ctx, v, func(ctx context.Context, c workloadsv1.WorkloadServiceClient) (*workloadsv1.Workload, error) {
			return c.GetWorkload(ctx, &workloadsv1.GetWorkloadRequest{Name: name})
		})
		if err != nil {
			return err
		}
		call := func(ctx context.Context, c workloadsv1.WorkloadServiceClient) (*workloadsv1.Action, error) {
			if restart {
				return c.RestartWorkload(ctx, &workloadsv1.RestartWorkloadRequest{Name: name, Incident: incident, Generation: w.GetGeneration(), Etag: w.GetEtag()})
			}
			return c.ScaleWorkload(ctx, &workloadsv1.ScaleWorkloadRequest{Name: name, Incident: incident, Generation: w.GetGeneration(), Replicas: 1 + int32(w.GetGeneration()%3)})
		}
		var results [2]*workloadsv1.Action
		var errs [2]error
		var both sync.WaitGroup
		for i := range results {
			both.Go(func() { results[i], errs[i] = retry(ctx, v, call) })
		}
		both.Wait()
		switch {
		case errs[0] == nil && errs[1] == nil:
			if results[0].GetId() != results[1].GetId() {
				return fmt.Errorf("one call was told of %s, the other of %s", results[0].GetId(), results[1].GetId())
			}
			acknowledged.add(results[0])
			return nil
		case status.Code(errs[0]) == codes.Aborted && status.Code(errs[1]) == codes.Aborted,
			status.Code(errs[0]) == codes.FailedPrecondition && status.Code(errs[1]) == codes.FailedPrecondition:
			continue // another caller was quicker
		}
		return fmt.Errorf("the same call twice: %w and %w", errs[0], errs[1])
	}
}

// actions are those that were acknowledged.
type actions struct {
	mu  sync.Mutex
	all map[string]*workloadsv1.Action
}

func newActions() *actions { return &actions{all: map[string]*workloadsv1.Action{}} }

func (a *actions) add(one *workloadsv1.Action) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[one.GetId()] = one
}

// events reads the watch from the beginning until each action has ended, and wants three events of each, in order.
func events(ctx context.Context, t *testing.T, v *victim, cursor string, acknowledged *actions) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := v.service().WatchWorkload(ctx, &workloadsv1.WatchWorkloadRequest{Name: "workloads/-", Cursor: cursor})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string][]string{}
	ids := map[string]bool{}
	for ended := 0; ended < len(acknowledged.all); {
		m, err := stream.Recv()
		if err != nil {
			t.Fatalf("after the ends of %d actions: %v", ended, err)
		}
		if ids[m.GetCursor()] {
			t.Errorf("event %s came twice", m.GetCursor())
		}
		ids[m.GetCursor()] = true
		if a := m.GetAction(); a != nil {
			seen[a.GetId()] = append(seen[a.GetId()], m.GetEventType())
			if a.GetEndTime() != nil {
				ended++
			}
		}
	}
	for id := range acknowledged.all {
		if got := strings.Join(seen[id], " "); got != "action_pending action_running action_succeeded" {
			t.Errorf("events of %s: %s", id, got)
		}
	}
}

// hook takes events as a webhook does; it loses one answer in five, so that the event comes again.
type hook struct {
	mu         sync.Mutex
	deliveries int
	seen       map[string]map[string]int // by action and event type: how many different ids
	ids        map[string]bool
}

func newHook() *hook { return &hook{seen: map[string]map[string]int{}, ids: map[string]bool{}} }

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		EventType string
		Action    struct{ ID string }
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deliveries++
	if id := r.Header.Get("Event-Id"); !h.ids[id] {
		h.ids[id] = true
		if h.seen[m.Action.ID] == nil {
			h.seen[m.Action.ID] = map[string]int{}
		}
		h.seen[m.Action.ID][m.EventType]++
	}
	if h.deliveries%5 == 0 {
		w.WriteHeader(http.StatusBadGateway)
	}
}

// check waits for the end of each action, and wants each of its events once.
func (h *hook) check(t *testing.T, acknowledged *actions) {
	t.Helper()
	for id := range acknowledged.all {
		for end := time.Now().Add(2 * patience); ; time.Sleep(10 * time.Millisecond) {
			h.mu.Lock()
			got := fmt.Sprint(h.seen[id])
			h.mu.Unlock()
			if got == "map[action_pending:1 action_running:1 action_succeeded:1]" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the webhook's events of %s: %s", id, got)
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t.Logf("webhook: %d deliveries of %d events", h.deliveries, len(h.ids))
}
