package process_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolway/toolway/services/workloads"
	"github.com/toolway/toolway/services/workloads/process"
)

const patience = 30 * time.Second

// TestMain runs the tests or, if the environment says so, is one of the processes that they supervise.
func TestMain(m *testing.M) {
	if role := os.Getenv("TEST_ROLE"); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

// play is a supervised program: it writes down that it began and ended, and does what its role says.
func play(role string) int {
	note := func(what string) {
		f, err := os.OpenFile(os.Getenv("TEST_NOTES"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		fmt.Fprintf(f, "%s %s %s %d\n", what, os.Getenv("WORKLOAD_NAME"), os.Getenv("WORKLOAD_REPLICA"), os.Getpid())
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	note("began")
	switch role {
	case "good":
		<-terminated
		note("ended")
	case "stubborn":
		for range terminated { // heeds none of them
		}
	case "parent":
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			panic(err)
		}
		note("child:" + strconv.Itoa(child.Process.Pid))
		<-terminated // and leaves its child behind
	case "http":
		listener, err := net.Listen("tcp", os.Getenv("TEST_ADDR"))
		if err != nil {
			panic(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if _, err := os.Stat(os.Getenv("TEST_NOTES") + ".healthy"); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})}
		go func() { _ = server.Serve(listener) }()
		<-terminated
	case "supervisor":
		// Starts what the test names, and is killed by it.
		driver, err := process.Open(context.Background(), []process.Workload{program("good", os.Getenv("TEST_NOTES"), 3)}, process.Options{Owner: "owner", Lock: os.Getenv("TEST_LOCK")})
		if err != nil {
			panic(err)
		}
		if _, err := driver.Apply(context.Background(), workloads.Wanted{Name: "web", Replicas: 3, Restart: 1}); err != nil {
			panic(err)
		}
		<-terminated
	}
	return 0
}

// program is a workload "web" that plays a role.
func program(role, notes string, replicas int32) process.Workload {
	return process.Workload{
		Name: "web", Command: []string{os.Args[0]}, Replicas: &replicas,
		Env:   map[string]string{"TEST_ROLE": role, "TEST_NOTES": notes},
		Ready: process.Ready{After: process.Duration(time.Millisecond)},
	}
}

type fixture struct {
	t      *testing.T
	notes  string
	lock   string
	driver *process.Driver
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	return &fixture{t: t, notes: filepath.Join(dir, "notes"), lock: filepath.Join(dir, "lock")}
}

// open opens a driver, which is closed at the end of the test if not before.
func (f *fixture) open(list ...process.Workload) *process.Driver {
	f.t.Helper()
	driver, err := process.Open(f.t.Context(), list, process.Options{Owner: "owner", Lock: f.lock, Backoff: 10 * time.Millisecond})
	if err != nil {
		f.t.Fatal(err)
	}
	f.driver = driver
	f.t.Cleanup(f.close)
	return driver
}

func (f *fixture) close() {
	if f.driver != nil {
		if err := f.driver.Close(); err != nil {
			f.t.Error(err)
		}
		f.driver = nil
	}
}

func (f *fixture) apply(replicas int32, restart int64) {
	f.t.Helper()
	if _, err := f.driver.Apply(f.t.Context(), workloads.Wanted{Name: "web", Replicas: replicas, Restart: restart}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) observe() workloads.Observed {
	f.t.Helper()
	o, err := f.driver.Observe(f.t.Context(), "web")
	if err != nil || len(o) != 1 {
		f.t.Fatalf("Observe = %v, %v", o, err)
	}
	return o[0]
}

func (f *fixture) settled() {
	f.t.Helper()
	f.eventually("the workload is settled", func() bool { return f.observe().Settled })
}

func (f *fixture) eventually(what string, ok func() bool) {
	f.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("%s: not within %s\nnotes: %q", what, patience, f.read())
		}
	}
}

// read returns what the programs wrote, one line each.
func (f *fixture) read() []string {
	text, err := os.ReadFile(f.notes)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// noted waits until so many lines begin with a word, and returns them.
func (f *fixture) noted(word string, n int) []string {
	f.t.Helper()
	var found []string
	f.eventually(fmt.Sprintf("%d lines of %q", n, word), func() bool {
		found = slices.DeleteFunc(f.read(), func(l string) bool { return !strings.HasPrefix(l, word) })
		return len(found) >= n
	})
	if len(found) > n {
		f.t.Fatalf("lines of %q = %q, want %d", word, found, n)
	}
	return found
}

func pid(line string) int {
	fields := strings.Fields(line)
	n, _ := strconv.Atoi(fields[len(fields)-1])
	return n
}

// alive says whether a process runs; one that has ended and that nobody has waited for does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return !strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " Z")
}

func TestRestartsAndScales(t *testing.T) {
	f := newFixture(t)
	f.open(program("good", f.notes, 2))
	if o := f.observe(); o.Settled || o.Ready != 0 || o.Replicas != 2 {
		t.Errorf("before the first Apply: %+v, want nothing settled", o)
	}
	f.apply(2, 0)
	f.settled()
	first := f.noted("began", 2)
	f.apply(2, 0) // changes nothing
	f.apply(2, 5)
	f.settled()
	f.noted("ended", 2)
	f.noted("began", 4)
	f.apply(2, 5) // nor does this
	f.apply(3, 5)
	f.settled()
	f.noted("began", 5)
	f.apply(1, 5)
	f.settled()
	f.noted("ended", 4)
	if o := f.observe(); o.Ready != 1 || o.Crashes != 0 || o.LastExit != "" || o.Started.IsZero() {
		t.Errorf("observed = %+v, want one replica that was never away", o)
	}
	f.close()
	f.noted("ended", 5)
	for _, line := range first {
		if alive(pid(line)) {
			t.Errorf("%q still runs", line)
		}
	}
	if _, err := f.open(program("good", f.notes, 0)).Apply(t.Context(), workloads.Wanted{Name: "other"}); !errors.Is(err, workloads.ErrGone) {
		t.Errorf("Apply of an unknown workload = %v, want %v", err, workloads.ErrGone)
	}
}

// Whoever does not heed SIGTERM gets SIGKILL, and so do processes that a replica leaves behind.
func TestStopsForGood(t *testing.T) {
	t.Run("stubborn", func(t *testing.T) {
		f := newFixture(t)
		w := program("stubborn", f.notes, 1)
		w.Grace = process.Duration(50 * time.Millisecond)
		f.open(w)
		f.apply(1, 0)
		replica := pid(f.noted("began", 1)[0])
		f.close()
		if alive(replica) {
			t.Error("the replica still runs")
		}
	})
	t.Run("parent", func(t *testing.T) {
		f := newFixture(t)
		f.open(program("parent", f.notes, 1))
		f.apply(1, 0)
		left, _, _ := strings.Cut(strings.TrimPrefix(f.noted("child:", 1)[0], "child:"), " ")
		f.close()
		child, err := strconv.Atoi(left)
		if err != nil {
			t.Fatal(err)
		}
		f.eventually("the replica's child has ended", func() bool { return !alive(child) })
	})
}

func TestRestartsAfterCrash(t *testing.T) {
	f := newFixture(t)
	f.open(program("good", f.notes, 1))
	f.apply(1, 0)
	for i := range 3 {
		line := f.noted("began", i+1)[i]
		if err := syscall.Kill(pid(line), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		f.eventually("the crash is counted", func() bool { return f.observe().Crashes == int64(i+1) })
	}
	f.noted("began", 4)
	if o := f.observe(); o.LastExit != "replica 0: signal: killed" || !o.Failing && !o.Settled {
		t.Errorf("observed = %+v, want failing, and how the last one ended", o)
	}
}

// A program that is not there is tried again, and told.
func TestCannotStart(t *testing.T) {
	f := newFixture(t)
	w := program("good", f.notes, 1)
	w.Command = []string{filepath.Join(t.TempDir(), "nothing")}
	f.open(w)
	f.apply(1, 0)
	f.eventually("it fails", func() bool { return f.observe().Failing })
	if o := f.observe(); !strings.Contains(o.LastExit, "no such file") || o.Settled {
		t.Errorf("observed = %+v", o)
	}
}

func TestReadiness(t *testing.T) {
	for _, kind := range []string{"tcp", "http"} {
		t.Run(kind, func(t *testing.T) {
			f := newFixture(t)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			port := listener.Addr().(*net.TCPAddr).Port
			if err := listener.Close(); err != nil {
				t.Fatal(err)
			}
			w := program("http", f.notes, 1)
			w.Port = port
			w.Env["TEST_ADDR"] = "127.0.0.1:${PORT}"
			w.Ready = process.Ready{TCP: "127.0.0.1:${PORT}"}
			if kind == "http" {
				w.Ready = process.Ready{HTTP: "http://127.0.0.1:${PORT}/${REPLICA}"}
			}
			f.open(w)
			f.apply(1, 0)
			f.noted("began", 1)
			if kind == "http" {
				if o := f.observe(); o.Ready != 0 || o.Settled {
					t.Errorf("before it is healthy: %+v", o)
				}
				if err := os.WriteFile(f.notes+".healthy", nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f.settled()
			if kind == "http" {
				if err := os.Remove(f.notes + ".healthy"); err != nil {
					t.Fatal(err)
				}
				f.eventually("it is not ready any more", func() bool { return f.observe().Ready == 0 })
			}
		})
	}
}

func TestOutput(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	two := int32(2)
	f.open(process.Workload{Name: "web", Command: []string{"/bin/sh", "-c", "echo hello from $WORKLOAD_REPLICA ${REPLICA} $EXTRA; echo error >&2; exec sleep 1000"}, Replicas: &two,
		Dir: dir, Output: filepath.Join(dir, "logs", "${NAME}-${REPLICA}.log"), Env: map[string]string{"EXTRA": "extra ${NAME}"}})
	f.apply(2, 0)
	for i := range 2 {
		want := fmt.Sprintf("hello from %d %d extra web\nerror\n", i, i)
		f.eventually("the output is in its file", func() bool {
			text, _ := os.ReadFile(filepath.Join(dir, "logs", fmt.Sprintf("web-%d.log", i)))
			return string(text) == want
		})
	}
}

// Replicas outlive a supervisor that is killed. The next one takes them over: it starts none a second time, and replaces those of an earlier restart alone.
func TestTakesOver(t *testing.T) {
	f := newFixture(t)
	supervisor := exec.Command(os.Args[0])
	supervisor.Env = append(os.Environ(), "TEST_ROLE=supervisor", "TEST_NOTES="+f.notes, "TEST_LOCK="+f.lock)
	supervisor.Stderr = os.Stderr
	if err := supervisor.Start(); err != nil {
		t.Fatal(err)
	}
	f.noted("began", 4) // itself too
	if err := supervisor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = supervisor.Wait()
	f.open(program("good", f.notes, 3))
	f.apply(3, 1)
	f.settled()
	began := f.noted("began", 4)
	if o := f.observe(); o.Ready != 3 || o.Started.IsZero() {
		t.Errorf("observed = %+v, want the three that were there", o)
	}
	// One that ends is noticed, though it is no child of ours.
	victim := slices.IndexFunc(began, func(l string) bool { return strings.HasPrefix(l, "began web 1 ") })
	if err := syscall.Kill(pid(began[victim]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.noted("began", 5)
	f.settled()
	f.apply(2, 2)
	f.settled()
	f.noted("began", 7)
	f.close()
	for _, line := range f.noted("began", 7) {
		if alive(pid(line)) {
			t.Errorf("%q still runs", line)
		}
	}
}

// What was taken out of the configuration, or is of another program by now, is stopped by the next supervisor.
func TestStopsStrangers(t *testing.T) {
	f := newFixture(t)
	supervisor := exec.Command(os.Args[0])
	supervisor.Env = append(os.Environ(), "TEST_ROLE=supervisor", "TEST_NOTES="+f.notes, "TEST_LOCK="+f.lock)
	if err := supervisor.Start(); err != nil {
		t.Fatal(err)
	}
	began := f.noted("began", 4)
	if err := supervisor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = supervisor.Wait()
	w := program("good", f.notes, 1)
	w.Env["ANOTHER"] = "program"
	f.open(w)
	f.apply(1, 1)
	f.settled()
	f.noted("ended", 3)
	f.noted("began", 5)
	for _, line := range began {
		f.eventually(line+" has ended", func() bool { return !alive(pid(line)) })
	}
}

func TestOneAtATime(t *testing.T) {
	f := newFixture(t)
	f.open(program("good", f.notes, 0))
	_, err := process.Open(t.Context(), []process.Workload{program("good", f.notes, 0)}, process.Options{Owner: "owner", Lock: f.lock})
	if err == nil || !strings.Contains(err.Error(), "is another process using it?") {
		t.Errorf("second Open = %v, want an error that says why", err)
	}
}
