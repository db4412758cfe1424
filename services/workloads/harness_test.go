package workloads_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
	"github.com/toolway/toolway/services/internal/pgtest"
	"github.com/toolway/toolway/services/workloads"
	"github.com/toolway/toolway/services/workloads/process"
)

// patience is how long a test waits for what must happen; it is not reached unless something is broken.
const patience = 30 * time.Second

// postgres is the one server of all tests, started by the first that wants it.
var (
	postgres = sync.OnceValues(func() (*pgtest.Server, error) {
		postgresWanted.Store(true)
		return pgtest.Start()
	})
	postgresWanted atomic.Bool
)

func TestMain(m *testing.M) {
	code := m.Run()
	if postgresWanted.Load() {
		if server, err := postgres(); err == nil {
			if err := server.Close(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// databases are the kinds of database; each opener gives a new one, and opens the same again.
var databases = map[string]func(*testing.T) func() *workloads.Store{
	"sqlite": func(t *testing.T) func() *workloads.Store {
		dir := t.TempDir()
		return func() *workloads.Store {
			t.Helper()
			store, err := workloads.OpenSQLite(within(t), dir)
			if err != nil {
				t.Fatal(err)
			}
			return store
		}
	},
	"postgres": func(t *testing.T) func() *workloads.Store {
		server, err := postgres()
		if err != nil {
			t.Fatal(err)
		}
		url, err := server.Database(within(t))
		if err != nil {
			t.Fatal(err)
		}
		return func() *workloads.Store {
			t.Helper()
			store, err := workloads.OpenPostgres(within(t), url)
			if err != nil {
				t.Fatal(err)
			}
			return store
		}
	},
}

// onEach runs a test on each kind of database.
func onEach(t *testing.T, f func(t *testing.T, open func() *workloads.Store)) {
	for name, opener := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, opener(t))
		})
	}
}

// service is a server on an in-memory listener.
type service struct {
	workloadsv1.WorkloadServiceClient
	t      *testing.T
	store  *workloads.Store
	server *workloads.Server
	stop   func() // ends it as a clean stop does; called at the end of the test if not before
}

type startOptions struct {
	workloads.Options
	list    []process.Workload
	idle    bool // Run does not run
	publish workloads.Publisher
}

// start serves a store with the process driver.
func start(t *testing.T, store *workloads.Store, options startOptions) *service {
	t.Helper()
	if options.list == nil {
		options.list = []process.Workload{sleeper("web", 2)}
	}
	lock := filepath.Join(t.TempDir(), "lock")
	driver, err := process.Open(within(t), options.list, process.Options{Owner: store.ID(), Lock: lock, Backoff: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := startWith(t, store, driver, options)
	stop := s.stop
	s.stop = sync.OnceFunc(func() {
		stop()
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// startWith serves a store with a driver.
func startWith(t *testing.T, store *workloads.Store, driver workloads.Driver, options startOptions, serverOptions ...grpc.ServerOption) *service {
	t.Helper()
	s := workloads.New(store, driver, options.Options)
	if err := s.Sync(within(t)); err != nil {
		t.Fatal(err)
	}
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(serverOptions...)
	s.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	if !options.idle {
		running.Go(func() { _ = s.Run(ctx) })
	}
	if options.publish != nil {
		running.Go(func() { _ = s.Publish(ctx, "test", options.publish) })
	}
	conn, err := grpc.NewClient("passthrough:workloads",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = conn.Close()
		s.Drain()
		server.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		cancel()
		running.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &service{WorkloadServiceClient: workloadsv1.NewWorkloadServiceClient(conn), t: t, store: store, server: s, stop: stop}
}

// sleeper is a workload that does nothing, and is ready at once.
func sleeper(name string, replicas int32) process.Workload {
	return process.Workload{Name: name, Command: []string{"sleep", "1000"}, Replicas: &replicas, Ready: process.Ready{After: process.Duration(time.Millisecond)}}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// get reads a workload.
func (s *service) get(name string) *workloadsv1.Workload {
	s.t.Helper()
	w, err := s.GetWorkload(within(s.t), &workloadsv1.GetWorkloadRequest{Name: name})
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

// running waits until a workload is as wanted.
func (s *service) running(name string) *workloadsv1.Workload {
	s.t.Helper()
	var w *workloadsv1.Workload
	eventually(s.t, name+" runs", func() bool {
		w = s.get(name)
		return w.GetState() == workloadsv1.Workload_STATE_RUNNING
	})
	return w
}

// settled waits until an action has ended.
func (s *service) settled(a *workloadsv1.Action) *workloadsv1.Action {
	s.t.Helper()
	var now *workloadsv1.Action
	eventually(s.t, "the action "+a.GetId()+" ends", func() bool {
		var err error
		now, err = s.LookupAction(within(s.t), &workloadsv1.LookupActionRequest{Name: a.GetWorkload(), Incident: a.GetIncident(), Kind: a.GetKind(), Generation: a.GetGeneration()})
		if err != nil {
			s.t.Fatal(err)
		}
		return now.GetEndTime() != nil
	})
	return now
}

// watch reads events until enough says so, and ends the call.
func (s *service) watch(req *workloadsv1.WatchWorkloadRequest, enough func([]*workloadsv1.WatchWorkloadResponse) bool) []*workloadsv1.WatchWorkloadResponse {
	s.t.Helper()
	ctx, cancel := context.WithCancel(within(s.t))
	defer cancel()
	stream, err := s.WatchWorkload(ctx, req)
	if err != nil {
		s.t.Fatal(err)
	}
	var got []*workloadsv1.WatchWorkloadResponse
	for len(got) == 0 || !enough(got) {
		m, err := stream.Recv()
		if err != nil {
			s.t.Fatalf("after %d events: %v", len(got), err)
		}
		got = append(got, m)
	}
	return got
}

// eventually asks until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := within(t)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// detail returns the first detail of type T in err's status.
func detail[T any](err error) (T, bool) {
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(T); ok {
			return d, true
		}
	}
	var none T
	return none, false
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("code = %v, want %v (%v)", got, want, err)
	}
}

func wantInfo(t *testing.T, err error, code codes.Code, reason string) map[string]string {
	t.Helper()
	wantCode(t, err, code)
	info, ok := detail[*errdetails.ErrorInfo](err)
	if !ok || info.Reason != reason {
		t.Fatalf("ErrorInfo of %v = %v, want reason %s", err, info, reason)
	}
	return info.Metadata
}
