package task_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/dial"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/store"
	"github.com/toolway/toolway/internal/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = time.Minute

var (
	alice = &identity.Principal{ID: "alice", Tenant: "acme", Scopes: []string{"*"}, How: "jwt"}
	bob   = &identity.Principal{ID: "bob", Tenant: "acme", Scopes: []string{"*"}, How: "jwt"}
	other = &identity.Principal{ID: "alice", Tenant: "other", Scopes: []string{"*"}, How: "jwt"}
)

// The methods of the backend. UnaryCall may not be repeated, EmptyCall and StreamingOutputCall may.
const (
	unary  = "/grpc.testing.TestService/UnaryCall"
	again  = "/grpc.testing.TestService/CacheableUnaryCall"
	stream = "/grpc.testing.TestService/StreamingOutputCall"
)

// server is a backend whose calls do what their payload says: "echo", "wait" (until released, or the call is cancelled), "fail". It counts them.
type server struct {
	testpb.UnimplementedTestServiceServer

	mu    sync.Mutex
	calls map[string]int // by payload
	keys  []string       // idempotency keys that came

	release          chan struct{}
	begun, cancelled chan string
}

func (s *server) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	text := string(in.GetPayload().GetBody())
	md, _ := metadata.FromIncomingContext(ctx)
	s.mu.Lock()
	s.calls[text]++
	s.keys = append(s.keys, md["idempotency-key"]...)
	s.mu.Unlock()
	switch verb, _, _ := strings.Cut(text, " "); verb {
	case "wait":
		s.begun <- text
		select {
		case <-s.release:
		case <-ctx.Done():
			s.cancelled <- text
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	case "stubborn": // does not heed that it is cancelled
		s.begun <- text
		<-s.release
	case "ask":
		return s.ask(strings.Fields(text)[1:], strings.Join(md[call.InputResponsesKey], ""))
	case "fail":
		return nil, status.Error(codes.FailedPrecondition, "as you like")
	}
	return &testpb.SimpleResponse{Payload: in.GetPayload()}, nil
}

// ask asks for what the words name, each of which may end with "?" (optional), "!" (of the model, not the person), or both, until it has an answer to each
// that is not optional, and answers with all. "again" has it ask once more.
func (s *server) ask(words []string, given string) (*testpb.SimpleResponse, error) {
	answers := &toolwayv1.InputResponses{}
	if err := proto.Unmarshal([]byte(given), answers); err != nil {
		return nil, err
	}
	ask := &toolwayv1.InputRequired{Requests: map[string]*toolwayv1.InputRequest{}, State: append(answers.GetState(), '+')}
	again, missing := false, given == ""
	for _, word := range words {
		name := strings.TrimRight(word, "?!")
		if again = again || name == "again"; name == "again" {
			continue
		}
		r := &toolwayv1.InputRequest{Optional: strings.Contains(word, "?"), Kind: &toolwayv1.InputRequest_Elicitation{Elicitation: &toolwayv1.Elicitation{Message: name}}}
		if strings.Contains(word, "!") {
			r.Kind = &toolwayv1.InputRequest_Sampling{}
		}
		ask.Requests[name] = r
		missing = missing || !r.GetOptional() && answers.GetResponses()[name] == nil
	}
	if missing || again && string(answers.GetState()) == "+" {
		st, err := status.New(codes.FailedPrecondition, "more is to be known").WithDetails(ask)
		if err != nil {
			return nil, err
		}
		return nil, st.Err()
	}
	said := []string{string(answers.GetState())}
	for _, name := range slices.Sorted(maps.Keys(answers.GetResponses())) {
		said = append(said, name+"="+answers.GetResponses()[name].GetContent().GetFields()["is"].GetStringValue())
	}
	return &testpb.SimpleResponse{Username: strings.Join(said, " ")}, nil
}

func (s *server) CacheableUnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return s.UnaryCall(ctx, in)
}

func (s *server) StreamingOutputCall(in *testpb.StreamingOutputCallRequest, out grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	for range in.GetResponseParameters() {
		if err := out.Send(&testpb.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) sawKey(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.keys, key)
}

func (s *server) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[text]
}

// fixture is a backend behind a connection, a store, and a catalog.
type fixture struct {
	t        testing.TB
	server   *server
	snapshot *catalog.Snapshot
	router   *backend.Router
	store    *store.Store
	log      *slog.Logger
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, server: &server{calls: map[string]int{}, release: make(chan struct{}), begun: make(chan string, 1000), cancelled: make(chan string, 1000)}, log: discard}
	f.serve(func(r grpc.ServiceRegistrar) { testpb.RegisterTestServiceServer(r, f.server) })
	local := backend.NewLocal()
	testpb.RegisterTestServiceServer(local, f.server)
	set, err := local.Descriptors()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range set.GetFile() {
		for _, s := range file.GetService() {
			for _, m := range s.GetMethod() {
				if n := m.GetName(); n == "CacheableUnaryCall" || n == "StreamingOutputCall" {
					m.Options = &descriptorpb.MethodOptions{IdempotencyLevel: descriptorpb.MethodOptions_IDEMPOTENT.Enum()}
				}
			}
		}
	}
	if f.snapshot, err = catalog.Static("b", set); err != nil {
		t.Fatal(err)
	}
	f.open()
	return f
}

// serve serves what register registers behind the router.
func (f *fixture) serve(register func(grpc.ServiceRegistrar), options ...grpc.ServerOption) {
	l, err := new(net.ListenConfig).Listen(f.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	register(s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	conn, err := dial.Open(dial.Config{Name: "b", Targets: []string{l.Addr().String()}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		wg.Wait()
	})
	f.router = backend.New(func(string) *dial.Conn { return conn }, nil, backend.Options{})
}

func (f *fixture) open() {
	var err error
	if f.store, err = store.Open(f.t.Context(), store.Config{Dir: f.t.TempDir(), Timeout: 30 * time.Second, Logger: f.log}); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(f.store.Close)
}

func (f *fixture) tasks(c task.Config) *task.Tasks {
	f.t.Helper()
	c.Store, c.Catalog, c.Logger = f.store, catalog.Fixed(f.snapshot), f.log
	if c.Lease == 0 {
		c.Lease = 5 * time.Second
	}
	t, err := task.Open(f.t.Context(), c)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(t.Close)
	return t
}

// options are the chain's.
func (f *fixture) options(t *task.Tasks) interceptors.Options {
	return interceptors.Options{Logger: f.log, Task: interceptors.TaskOptions{Submitter: t}}
}

// runs is what makes the calls of tasks.
func (f *fixture) runs(t *task.Tasks) call.Handler {
	o := f.options(t)
	return interceptors.Chain(f.router.Handle, interceptors.Runs(interceptors.Default(o), o)...)
}

// start starts workers that are drained at the end of the test.
func (f *fixture) start(t *task.Tasks) *task.Pool {
	p := t.Start(f.runs(t))
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		p.Drain(ctx)
	})
	return p
}

// submit makes a call through the whole chain that wants a task.
func (f *fixture) submit(t *task.Tasks, p *identity.Principal, method string, in proto.Message, key string) (string, error) {
	f.t.Helper()
	m := f.snapshot.Method(method)
	wire, err := proto.Marshal(in)
	if err != nil {
		f.t.Fatal(err)
	}
	c := call.New(m, call.GRPC)
	c.Principal, c.Async = p, &call.Async{}
	if key != "" {
		c.Forward = metadata.Pairs(call.KeyHeader, key)
	}
	s := call.NewStream(f.t.Context(), c, call.One(call.NewFrame(m.Desc.Input(), wire)), func(*call.Frame) error { return nil }, nil)
	err = interceptors.Chain(f.router.Handle, interceptors.Default(f.options(t))...)(s)
	if err == nil && (c.Task == "" || strings.Join(s.Header()[call.TaskHeader], "") != c.Task) {
		f.t.Fatalf("task %q, header %v: want one id", c.Task, s.Header())
	}
	return c.Task, err
}

func (f *fixture) must(t *task.Tasks, p *identity.Principal, method, text, key string) string {
	f.t.Helper()
	id, err := f.submit(t, p, method, request(text), key)
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

func request(text string) *testpb.SimpleRequest {
	return &testpb.SimpleRequest{Payload: &testpb.Payload{Body: []byte(text)}}
}

// ended waits until a task has ended, by its events, and returns it and their types.
func (f *fixture) ended(t *task.Tasks, p *identity.Principal, id string) (*task.Task, []string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	var types []string
	if err := t.Watch(ctx, p, id, 0, func(e task.Event) error {
		types = append(types, e.Type)
		return nil
	}); err != nil {
		f.t.Fatalf("watch %s: %v, after %v", id, err, types)
	}
	got, err := t.Get(ctx, p, id)
	if err != nil {
		f.t.Fatal(err)
	}
	return got, types
}

// begun waits until the backend has begun a call that waits.
func (f *fixture) begun() {
	f.t.Helper()
	f.wait(f.server.begun, "begun")
}

func (f *fixture) wait(from chan string, what string) {
	f.t.Helper()
	select {
	case <-from:
	case <-time.After(patience):
		f.t.Fatalf("no call at the backend was %s", what)
	}
}

func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("error %v, want code %v", err, want)
	}
}

var discard = slog.New(slog.DiscardHandler)

var errStop = errors.New("stop")
