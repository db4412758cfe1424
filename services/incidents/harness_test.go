package incidents_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
	runbooksv1 "github.com/toolway/toolway/gen/agentops/runbooks/v1"
	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
	"github.com/toolway/toolway/services/incidents"
)

// patience is how long a test waits for what must happen; it is not reached unless something is broken.
const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call is one call that the tools have got.
type call struct {
	method      string
	request     proto.Message
	traceparent string
	key         string
	deadline    time.Time
	begun       time.Time
}

// tools stands where the mesh stands: it serves all methods of all tools by one function for each method. What the mesh itself does (holding, refusing, keys)
// is shown with the real one in tests/demo; here its answers are played, so that each of them comes when it is wanted.
type tools struct {
	conn   *grpc.ClientConn
	server *grpc.Server
	slow   time.Duration // how long each answer takes at least

	mu      sync.Mutex
	calls   []call
	answers map[string]func(context.Context, proto.Message) (proto.Message, error)
}

// on sets what a tool answers. The tool is named by its method alone, such as "SearchLogs".
func (f *tools) on(method string, answer func(context.Context, proto.Message) (proto.Message, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[method] = answer
}

// got returns the calls of a method so far.
func (f *tools) got(method string) []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []call
	for _, c := range f.calls {
		if method == "" || strings.HasSuffix(c.method, "/"+method) {
			out = append(out, c)
		}
	}
	return out
}

// await waits until a method was called so often.
func (f *tools) await(t *testing.T, method string, times int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is called %d times", method, times), func() bool { return len(f.got(method)) >= times })
}

func (f *tools) answer(ctx context.Context, method string, request proto.Message) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	c := call{method: method, request: request, begun: time.Now(), traceparent: strings.Join(md.Get("traceparent"), ","), key: strings.Join(md.Get("idempotency-key"), ",")}
	c.deadline, _ = ctx.Deadline()
	f.mu.Lock()
	f.calls = append(f.calls, c)
	answer := f.answers[method[strings.LastIndex(method, "/")+1:]]
	f.mu.Unlock()
	select {
	case <-time.After(f.slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if answer == nil {
		return nil, status.Errorf(codes.NotFound, "nothing is known of %s", method)
	}
	return answer(ctx, request)
}

// unary has every method of a service answered by answer.
func (f *tools) register(server *grpc.Server, desc *grpc.ServiceDesc) {
	all := *desc
	all.HandlerType, all.Streams = (*any)(nil), nil
	all.Methods = nil
	for _, m := range desc.Methods {
		method := "/" + desc.ServiceName + "/" + m.MethodName
		all.Methods = append(all.Methods, grpc.MethodDesc{MethodName: m.MethodName, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			request := requests[method].ProtoReflect().New().Interface()
			if err := decode(request); err != nil {
				return nil, err
			}
			return f.answer(ctx, method, request)
		}})
	}
	server.RegisterService(&all, struct{}{})
}

var requests = map[string]proto.Message{
	logsv1.LogService_SearchLogs_FullMethodName:                &logsv1.SearchLogsRequest{},
	metricsv1.MetricService_QueryInstant_FullMethodName:        &metricsv1.QueryInstantRequest{},
	metricsv1.MetricService_QueryRange_FullMethodName:          &metricsv1.QueryRangeRequest{},
	metricsv1.MetricService_ListSeries_FullMethodName:          &metricsv1.ListSeriesRequest{},
	runbooksv1.RunbookService_SearchRunbooks_FullMethodName:    &runbooksv1.SearchRunbooksRequest{},
	runbooksv1.RunbookService_GetRunbook_FullMethodName:        &runbooksv1.GetRunbookRequest{},
	runbooksv1.RunbookService_ListRunbooks_FullMethodName:      &runbooksv1.ListRunbooksRequest{},
	workloadsv1.WorkloadService_GetWorkload_FullMethodName:     &workloadsv1.GetWorkloadRequest{},
	workloadsv1.WorkloadService_ListWorkloads_FullMethodName:   &workloadsv1.ListWorkloadsRequest{},
	workloadsv1.WorkloadService_RestartWorkload_FullMethodName: &workloadsv1.RestartWorkloadRequest{},
	workloadsv1.WorkloadService_ScaleWorkload_FullMethodName:   &workloadsv1.ScaleWorkloadRequest{},
	workloadsv1.WorkloadService_LookupAction_FullMethodName:    &workloadsv1.LookupActionRequest{},
}

// startTools serves tools of a shop in which payment leaks connections, until the test ends.
func startTools(t *testing.T) *tools {
	t.Helper()
	f := &tools{answers: map[string]func(context.Context, proto.Message) (proto.Message, error){}}
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	f.server = server
	for _, desc := range []*grpc.ServiceDesc{&logsv1.LogService_ServiceDesc, &metricsv1.MetricService_ServiceDesc, &runbooksv1.RunbookService_ServiceDesc, &workloadsv1.WorkloadService_ServiceDesc} {
		f.register(server, desc)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:tools",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	f.conn = conn
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			t.Error(err)
		}
	})
	f.shop()
	return f
}

// listen serves the tools at a TCP address too, for other processes, and returns it.
func (f *tools) listen(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(listener) }()
	t.Cleanup(func() {
		f.server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// shop has the tools answer as those of a shop in which payment leaks connections, and a restart mends it.
func (f *tools) shop() {
	f.on("GetWorkload", func(_ context.Context, r proto.Message) (proto.Message, error) {
		return &workloadsv1.Workload{Name: r.(*workloadsv1.GetWorkloadRequest).GetName(), Replicas: 1, ReadyReplicas: 1, Generation: 7, State: workloadsv1.Workload_STATE_RUNNING}, nil
	})
	f.on("SearchLogs", func(_ context.Context, r proto.Message) (proto.Message, error) {
		if strings.Contains(r.(*logsv1.SearchLogsRequest).GetQuery(), "checkout") {
			return &logsv1.SearchLogsResponse{Entries: []*logsv1.LogEntry{
				{Message: "order failed: payment answered 503", Fields: map[string]string{"peer": "payment", "level": "ERROR"}},
				{Message: "order failed: payment answered 503", Fields: map[string]string{"peer": "payment", "level": "ERROR"}},
				{Message: "cart is empty", Fields: map[string]string{"level": "ERROR"}},
			}}, nil
		}
		return &logsv1.SearchLogsResponse{Entries: []*logsv1.LogEntry{{Message: "charge failed: no free connection in the pool after 250ms", Fields: map[string]string{"level": "ERROR"}}}}, nil
	})
	f.on("QueryInstant", func(_ context.Context, r proto.Message) (proto.Message, error) {
		query := r.(*metricsv1.QueryInstantRequest).GetQuery()
		value := 0.0
		switch {
		case strings.Contains(query, "5.."):
			value = 0.8
			if f.restarted() {
				value = 0
			}
		case strings.Contains(query, "quantile"):
			value = 0.4
		case strings.Contains(query, "connections_in_use"):
			value = 1
		}
		return numbers(value), nil
	})
	f.on("SearchRunbooks", func(context.Context, proto.Message) (proto.Message, error) {
		return &runbooksv1.SearchRunbooksResponse{Matches: []*runbooksv1.SearchRunbooksResponse_Match{
			{Runbook: &runbooksv1.Runbook{Name: "runbooks/payment-connections", Title: "Payment runs out of connections", Services: []string{"payment"}}, Score: 1},
		}}, nil
	})
	f.on("RestartWorkload", func(_ context.Context, r proto.Message) (proto.Message, error) {
		return action(r, workloadsv1.Action_STATE_SUCCEEDED), nil
	})
}

func (f *tools) restarted() bool { return len(f.got("RestartWorkload")) > 0 }

func numbers(v float64) *metricsv1.QueryInstantResponse {
	return &metricsv1.QueryInstantResponse{Series: []*metricsv1.Series{{Samples: []*metricsv1.Sample{{Value: proto.Float64(v)}}}}}
}

func action(r proto.Message, state workloadsv1.Action_State) *workloadsv1.Action {
	a := &workloadsv1.Action{Id: "a1", Kind: workloadsv1.Action_KIND_RESTART, State: state}
	switch r := r.(type) {
	case *workloadsv1.RestartWorkloadRequest:
		a.Workload, a.Incident, a.Generation = r.GetName(), r.GetIncident(), r.GetGeneration()
	case *workloadsv1.LookupActionRequest:
		a.Workload, a.Incident, a.Generation = r.GetName(), r.GetIncident(), r.GetGeneration()
	}
	return a
}

// refusal is an error as the mesh answers it.
func refusal(code codes.Code, message, reason string, pairs ...string) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: "toolway", Metadata: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		info.Metadata[pairs[i]] = pairs[i+1]
	}
	s, err := status.New(code, message).WithDetails(info)
	if err != nil {
		return err
	}
	return s.Err()
}

func held(id string) error {
	return refusal(codes.FailedPrecondition, "somebody else has to approve", "APPROVAL_REQUIRED", "approval_id", id, "expires", "2030-01-02T03:04:05Z")
}

// service is an incident service that runs until the test ends.
type service struct {
	incidentsv1.IncidentServiceClient

	server *incidents.Server
	stop   func()
}

// quick has a service wait little for what a fake decides at once.
func quick(o incidents.Options) incidents.Options {
	if o.Poll == 0 {
		o.Poll = 4 * time.Millisecond
	}
	if o.Planner == nil {
		o.Planner = incidents.Rules{Window: 4 * time.Millisecond}
	}
	return o
}

// start serves an incident service on a directory, with tools.
func start(t *testing.T, dir string, conn grpc.ClientConnInterface, o incidents.Options, serverOptions ...grpc.ServerOption) *service {
	t.Helper()
	server, err := incidents.Open(dir, conn, quick(o))
	if err != nil {
		t.Fatal(err)
	}
	listener := bufconn.Listen(1 << 20)
	g := grpc.NewServer(serverOptions...)
	server.Register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()
	client, err := grpc.NewClient("passthrough:incidents",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	s := &service{IncidentServiceClient: incidentsv1.NewIncidentServiceClient(client), server: server}
	s.stop = sync.OnceFunc(func() {
		server.Drain()
		g.GracefulStop()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func request() *incidentsv1.StartDiagnosisRequest {
	return &incidentsv1.StartDiagnosisRequest{Incident: "inc-42", Service: "checkout", Symptom: "orders fail", Remediate: true}
}

// begin starts a diagnosis.
func (s *service) begin(t *testing.T, req *incidentsv1.StartDiagnosisRequest) *incidentsv1.Diagnosis {
	t.Helper()
	d, err := s.StartDiagnosis(within(t), req)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// get reads a diagnosis.
func (s *service) get(t *testing.T, name string) *incidentsv1.Diagnosis {
	t.Helper()
	d, err := s.GetDiagnosis(within(t), &incidentsv1.GetDiagnosisRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// await waits until a diagnosis is in a state.
func (s *service) await(t *testing.T, name string, state incidentsv1.Diagnosis_State) *incidentsv1.Diagnosis {
	t.Helper()
	var d *incidentsv1.Diagnosis
	eventually(t, "state "+state.String(), func() bool {
		d = s.get(t, name)
		if d.GetEndTime() != nil && d.GetState() != state {
			t.Fatalf("ended as %v, want %v: %v", d.GetState(), state, d)
		}
		return d.GetState() == state
	})
	return d
}

// follow reads events after a cursor until the stream ends.
func (s *service) follow(t *testing.T, name, cursor string) []*incidentsv1.DiagnosisEvent {
	t.Helper()
	stream, err := s.WatchDiagnosis(within(t), &incidentsv1.WatchDiagnosisRequest{Name: name, Cursor: cursor})
	if err != nil {
		t.Fatal(err)
	}
	events, err := drain(stream)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func drain(stream grpc.ServerStreamingClient[incidentsv1.DiagnosisEvent]) (events []*incidentsv1.DiagnosisEvent, err error) {
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

// cursorOf is the id of the event at a position.
func cursorOf(name string, position int) string {
	return fmt.Sprintf("%d-%.8s", position, strings.TrimPrefix(name, "diagnoses/"))
}

// gapless checks that events are those after a cursor, one after the other, and that tools and agents that began have ended.
func gapless(t *testing.T, events []*incidentsv1.DiagnosisEvent, after int) {
	t.Helper()
	open := map[string]int{}
	for i, e := range events {
		if want := cursorOf(e.GetTaskId(), after+i+1); e.GetEventId() != want {
			t.Fatalf("event %d has the id %q, want %q", i, e.GetEventId(), want)
		}
		if e.GetOccurredAt() == nil || e.GetTaskId() == "" || e.GetMessage() == "" {
			t.Errorf("event %v lacks something", e)
		}
		last := strings.HasPrefix(e.GetEventType(), "task_") && e.GetEventType() != "task_created"
		if last != (i == len(events)-1) {
			t.Errorf("event %d of %d is %s", i+1, len(events), e.GetEventType())
		}
		if after > 0 {
			continue
		}
		subject := e.GetAgent()
		if strings.HasPrefix(e.GetEventType(), "tool_") {
			subject = "call " + e.GetCallId()
		}
		switch {
		case strings.HasSuffix(e.GetEventType(), "_started"):
			open[subject]++
		case strings.HasSuffix(e.GetEventType(), "_completed") && !last:
			open[subject]--
		}
	}
	for subject, n := range open {
		if n != 0 {
			t.Errorf("%s began and ended %+d times", subject, n)
		}
	}
}

// types are the types of events, with tool and code where there are some.
func types(events []*incidentsv1.DiagnosisEvent) []string {
	var out []string
	for _, e := range events {
		out = append(out, strings.Join(strings.Fields(strings.Join([]string{e.GetEventType(), e.GetAgent(), e.GetTool(), e.GetCode()}, " ")), " "))
	}
	return out
}

// eventually asks until ok, for what another goroutine or process decides.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := within(t)
	ticker := time.NewTicker(2 * time.Millisecond)
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
func detail[T protoadapt.MessageV1](err error) (T, bool) {
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

func wantInfo(t *testing.T, err error, reason string) map[string]string {
	t.Helper()
	info, ok := detail[*errdetails.ErrorInfo](err)
	if !ok || info.Reason != reason {
		t.Fatalf("ErrorInfo of %v = %v, want reason %s", err, info, reason)
	}
	return info.Metadata
}
