// Package probe is a gRPC server that does what each request asks for and records what it saw.
package probe

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
)

// UnknownField and UnknownText are the field that the contract does not know and what it holds, in requests and, on demand, in answers.
const (
	UnknownField = 1999
	UnknownText  = "from a newer contract"
)

// Unknown is the wire form of the field that the contract does not know.
func Unknown() []byte {
	return protowire.AppendString(protowire.AppendTag(nil, UnknownField, protowire.BytesType), UnknownText)
}

// Hostile is a LabelRequest or LabelResponse at which dynamicpb panics: a map entry's key comes twice, the second time as a varint.
var Hostile = []byte{0x32, 0x05, 0x0a, 0x01, 0x61, 0x08, 0x00}

// Call is what the server saw of one call. Its fields may be read once Done is closed; Ended, Metadata and Deadline as soon as it is there.
type Call struct {
	// Method is the full method.
	Method string
	// Metadata is what came with the call.
	Metadata metadata.MD
	// Deadline is the call's; zero if it has none.
	Deadline time.Time
	// Ended is closed when the call's context ends.
	Ended <-chan struct{}
	// Done is closed when the handler has returned.
	Done chan struct{}
	// Err is why the context had ended when the handler returned, if it had.
	Err error
	// Unknown holds the unknown fields of the first request.
	Unknown protoreflect.RawFields
	// Received counts requests.
	Received int

	pass chan struct{}
	sent atomic.Int64
}

// Sent is how many messages a stream has answered with so far, as far as the server could send them.
func (c *Call) Sent() int { return int(c.sent.Load()) }

// Pass lets one answer of a gated call out. It waits until the server has come to it, or the call has ended.
func (c *Call) Pass() {
	select {
	case c.pass <- struct{}{}:
	case <-c.Done:
	}
}

// Server is the server and its record.
type Server struct {
	probev1.UnimplementedProbeServer

	found sync.Map // from a count to the *probev1.SearchResponse with as many entries

	mu    sync.Mutex
	calls map[string]*Call
	came  chan struct{} // closed and replaced when a call comes in
	total int
}

// New returns a server without calls.
func New() *Server {
	return &Server{calls: map[string]*Call{}, came: make(chan struct{})}
}

// Total is how many calls came in.
func (s *Server) Total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Call waits for the call that its request named id.
func (s *Server) Call(ctx context.Context, id string) (*Call, error) {
	for {
		s.mu.Lock()
		c, came := s.calls[id], s.came
		s.mu.Unlock()
		if c != nil {
			return c, nil
		}
		select {
		case <-came:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Saw says whether a call named id has come in.
func (s *Server) Saw(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[id] != nil
}

func (s *Server) begin(ctx context.Context, method string, first request) (*Call, func()) {
	md, _ := metadata.FromIncomingContext(ctx)
	deadline, _ := ctx.Deadline()
	c := &Call{Method: method, Metadata: md, Deadline: deadline, Ended: ctx.Done(), Done: make(chan struct{}), pass: make(chan struct{})}
	c.Unknown = first.ProtoReflect().GetUnknown()
	c.Received = 1
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total++
	if id := first.GetId(); id != "" {
		s.calls[id] = c
	}
	close(s.came)
	s.came = make(chan struct{})
	return c, func() {
		c.Err = ctx.Err()
		close(c.Done)
	}
}

type request interface {
	proto.Message
	GetId() string
}

func text(plan *probev1.Plan, s string) string {
	if n := plan.GetSize(); n > 0 {
		return strings.Repeat("x", int(n))
	}
	return s
}

func unknown[M proto.Message](plan *probev1.Plan, m M) M {
	if plan.GetUnknown() {
		m.ProtoReflect().SetUnknown(Unknown())
	}
	return m
}

// end does what the plan says of a call's end.
func end(ctx context.Context, plan *probev1.Plan) error {
	if plan.GetHang() {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	if plan.GetCode() == 0 {
		return nil
	}
	return Failure(codes.Code(plan.GetCode()))
}

// Failure is the error of a plan with a code, with one detail of each kind that a caller acts on.
func Failure(code codes.Code) error {
	st, err := status.New(code, "the plan says so: \"quoted\", ümläut").WithDetails(
		&errdetails.ErrorInfo{Reason: "PLANNED", Domain: "probe.toolway.example", Metadata: map[string]string{"plan": "fail"}},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "text", Description: "must be friendlier"}}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)},
	)
	if err != nil {
		return err
	}
	return st.Err()
}

func (c *Call) wait(ctx context.Context, plan *probev1.Plan) error {
	if !plan.GetGate() {
		return nil
	}
	select {
	case <-c.pass:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// Ask answers one message with one.
func (s *Server) Ask(ctx context.Context, req *probev1.AskRequest) (*probev1.AskResponse, error) {
	c, done := s.begin(ctx, probev1.Probe_Ask_FullMethodName, req)
	defer done()
	if err := c.wait(ctx, req.GetPlan()); err != nil {
		return nil, err
	}
	if err := end(ctx, req.GetPlan()); err != nil {
		return nil, err
	}
	return unknown(req.GetPlan(), &probev1.AskResponse{Text: text(req.GetPlan(), req.GetText()), Number: req.GetNumber()}), nil
}

// Watch answers one message with a stream.
func (s *Server) Watch(req *probev1.WatchRequest, stream grpc.ServerStreamingServer[probev1.WatchResponse]) error {
	ctx, plan := stream.Context(), req.GetPlan()
	c, done := s.begin(ctx, probev1.Probe_Watch_FullMethodName, req)
	defer done()
	for i := range plan.GetCount() {
		if err := c.wait(ctx, plan); err != nil {
			return err
		}
		if err := stream.Send(unknown(plan, &probev1.WatchResponse{Index: i, Text: text(plan, req.GetText())})); err != nil {
			return err
		}
		c.sent.Add(1)
	}
	return end(ctx, plan)
}

// Collect answers a stream with one message.
func (s *Server) Collect(stream grpc.ClientStreamingServer[probev1.CollectRequest, probev1.CollectResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return status.Error(codes.InvalidArgument, "no message")
	}
	ctx, plan := stream.Context(), first.GetPlan()
	c, done := s.begin(ctx, probev1.Probe_Collect_FullMethodName, first)
	defer done()
	texts := []string{first.GetText()}
	for {
		req, err := stream.Recv()
		if err != nil {
			break
		}
		c.Received++
		texts = append(texts, req.GetText())
	}
	if err := end(ctx, plan); err != nil {
		return err
	}
	return stream.SendAndClose(unknown(plan, &probev1.CollectResponse{Count: int32(c.Received), Text: text(plan, strings.Join(texts, ","))}))
}

// Chat answers each message of a stream with one.
func (s *Server) Chat(stream grpc.BidiStreamingServer[probev1.ChatRequest, probev1.ChatResponse]) error {
	req, err := stream.Recv()
	if err != nil {
		return status.Error(codes.InvalidArgument, "no message")
	}
	ctx, plan := stream.Context(), req.GetPlan()
	c, done := s.begin(ctx, probev1.Probe_Chat_FullMethodName, req)
	defer done()
	for i := int32(0); ; i++ {
		if err := c.wait(ctx, plan); err != nil {
			return err
		}
		if err := stream.Send(unknown(plan, &probev1.ChatResponse{Index: i, Text: text(plan, req.GetText())})); err != nil {
			return err
		}
		if req, err = stream.Recv(); err != nil {
			break
		}
		c.Received++
	}
	return end(ctx, plan)
}

// Label answers with the labels it was sent.
func (s *Server) Label(ctx context.Context, req *probev1.LabelRequest) (*probev1.LabelResponse, error) {
	_, done := s.begin(ctx, probev1.Probe_Label_FullMethodName, req)
	defer done()
	if req.GetHostile() {
		// Raw bytes, which the codec writes as they are: unknown fields come last and the message has nothing else.
		resp := &probev1.LabelResponse{}
		resp.ProtoReflect().SetUnknown(Hostile)
		return resp, nil
	}
	return &probev1.LabelResponse{Labels: req.GetLabels()}, nil
}
