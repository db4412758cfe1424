package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/toolway/toolway/internal/store"
)

const patience = time.Minute

// kinds are the stores that must behave alike.
var kinds = map[string]func(t testing.TB) *store.Store{
	"embedded": embedded,
	"single":   func(t testing.TB) *store.Store { return external(t, single(), 1) },
	"cluster":  func(t testing.TB) *store.Store { return external(t, three(), 3) },
}

// The servers are started once for all tests; each test has a prefix of its own.
var single, three = sync.OnceValue(func() []*server.Server { return cluster(1) }), sync.OnceValue(func() []*server.Server { return cluster(3) })

var (
	started   []*server.Server
	startedMu sync.Mutex
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "toolway-store-test-")
	if err != nil {
		panic(err)
	}
	serversDir = dir
	code := m.Run()
	for _, s := range started {
		s.Shutdown()
		s.WaitForShutdown()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var (
	serversDir string
	prefixes   atomic.Int64
)

func embedded(t testing.TB) *store.Store { return open(t, store.Config{Dir: t.TempDir()}) }

func external(t testing.TB, servers []*server.Server, replicas int) *store.Store {
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	return open(t, store.Config{URL: strings.Join(urls, ","), Replicas: replicas, Prefix: fmt.Sprintf("t%d", prefixes.Add(1))})
}

func open(t testing.TB, c store.Config) *store.Store {
	t.Helper()
	c.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second // the machine may be busy
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := store.Open(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// cluster starts n NATS servers, as processes would run them, and waits until they have a leader.
func cluster(n int) []*server.Server {
	var out []*server.Server
	for _, o := range nodes(n) {
		out = append(out, launch(o))
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ready := !slices.ContainsFunc(out, func(s *server.Server) bool { return !s.ReadyForConnections(patience) })
		if ready && (n == 1 || slices.ContainsFunc(out, func(s *server.Server) bool { return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == n })) {
			return out
		}
		if time.Now().After(deadline) {
			panic("the servers have no leader")
		}
	}
}

// nodes are n NATS servers, which are a cluster if there are several.
func nodes(n int) []*server.Options {
	dir, ports := must(os.MkdirTemp(serversDir, "")), freePorts(n)
	var routes []string
	for _, p := range ports {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	var out []*server.Options
	for i := range n {
		o := &server.Options{ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(dir, strconv.Itoa(i)), NoLog: true, NoSigs: true,
			JetStreamMaxStore: 1 << 40, // what is reserved, GiBs for each test, is not used; the default is what the disk has free
		}
		if n > 1 {
			o.Cluster = server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i]}
			o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		}
		out = append(out, o)
	}
	return out
}

// launch starts a server that is shut down after all tests.
func launch(o *server.Options) *server.Server {
	s := must(server.NewServer(o))
	s.Start()
	startedMu.Lock()
	defer startedMu.Unlock()
	started = append(started, s)
	return s
}

func freePorts(n int) []int {
	var out []int
	for range n {
		l := must(net.Listen("tcp", "127.0.0.1:0"))
		defer l.Close()
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out
}

// wait polls what cannot be waited for otherwise.
func wait(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// forKinds runs a test against each kind of store.
func forKinds(t *testing.T, f func(t *testing.T, s *store.Store)) {
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, open(t))
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
