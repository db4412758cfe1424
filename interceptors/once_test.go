package interceptors_test

import (
	"bytes"
	"cmp"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/dial"
	"github.com/toolway/toolway/internal/identity"
)

const onceContract = `syntax = "proto3"; package shop.v1;
	import "toolway/v1/options.proto";
	message Order { string id = 1; string do = 2; map<string, int32> lines = 3; string card = 4 [debug_redact = true]; }
	message Done { string id = 1; bytes filler = 2; }
	service Shop {
		rpc Place(Order) returns (Done);
		rpc Keyed(Order) returns (Done) { option (toolway.v1.method).idempotency = {key_template: "order:{id}"}; }
		rpc Field(Order) returns (Done) { option (toolway.v1.method).idempotency = {key_field: "id" required: true}; }
		rpc Needs(Order) returns (Done) { option (toolway.v1.method).idempotency.required = true; }
		rpc Again(Order) returns (Done) { option idempotency_level = IDEMPOTENT; }
		rpc Read(Order) returns (Done) { option idempotency_level = NO_SIDE_EFFECTS; }
		rpc Feed(Order) returns (stream Done);
		rpc Import(stream Order) returns (Done);
		rpc Erase(Order) returns (Done) { option (toolway.v1.method) = {title: "Erase an order" approval: APPROVAL_APPROVER approver_scope: "shop:approve"}; }
		rpc Drop(Order) returns (Done) { option (toolway.v1.method).approval = APPROVAL_CONFIRM; }
		rpc Load(stream Order) returns (Done) { option (toolway.v1.method).approval = APPROVAL_APPROVER; }
	}`

// shop is a real backend whose requests say in "do" what it does, and that counts its executions by idempotency key.
type shop struct {
	*catalog.Snapshot
	final grpc.StreamHandler
	hold  chan struct{} // "wait" waits for it

	mu       sync.Mutex
	executed map[string]int
	conns    []net.Conn
}

func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{Snapshot: contract(t, onceContract), executed: map[string]int{}, hold: make(chan struct{})}
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.UnknownServiceHandler(s.serve), grpc.ForceServerCodecV2(call.Codec{}))
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	conn, err := dial.Open(dial.Config{Name: "echo", Targets: []string{"passthrough:///shop"}, MaxRecvBytes: 64 << 10, Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
		c, err := l.DialContext(ctx)
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		return c, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		wg.Wait()
	})
	s.final = backend.New(func(string) *dial.Conn { return conn }, nil, backend.Options{}).Handle
	return s
}

func (s *shop) serve(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	m := s.Method(full)
	if m == nil {
		return status.Error(codes.Unimplemented, full) // the mesh asks for health
	}
	var f call.Frame
	if err := stream.RecvMsg(&f); err != nil {
		return err
	}
	f.Describe(m.Desc.Input())
	msg, err := f.Message()
	if err != nil {
		return err
	}
	id, do := text(msg, "id"), text(msg, "do")
	key := strings.Join(metadata.ValueFromIncomingContext(stream.Context(), "idempotency-key"), ",")
	s.mu.Lock()
	s.executed[key]++
	n := s.executed[key]
	s.mu.Unlock()
	_ = stream.SetHeader(metadata.Pairs("x-shop", "1"))
	stream.SetTrailer(metadata.Pairs("x-till", "2"))
	verb, arg, _ := strings.Cut(do, " ")
	switch verb {
	case "fail", "fail-once":
		if verb == "fail-once" && n > 1 {
			break
		}
		var code codes.Code
		if err := code.UnmarshalJSON([]byte(`"` + strings.TrimSuffix(arg, "+retry") + `"`)); err != nil {
			return err
		}
		st := status.New(code, "the shop says no")
		if strings.HasSuffix(arg, "+retry") {
			st, _ = st.WithDetails(&errdetails.RetryInfo{})
		}
		return st.Err()
	case "ask-once":
		if n == 1 {
			st, err := status.New(codes.FailedPrecondition, "which one?").WithDetails(&toolwayv1.InputRequired{})
			if err != nil {
				return err
			}
			return st.Err()
		}
	case "die", "die-once":
		if verb == "die" || n == 1 {
			s.mu.Lock()
			for _, c := range s.conns {
				_ = c.Close()
			}
			s.conns = nil
			s.mu.Unlock()
		}
	case "wait":
		select {
		case <-s.hold:
		case <-stream.Context().Done():
		}
	case "empty":
		return stream.SendMsg(call.NewFrame(nil, nil))
	case "big":
		return stream.SendMsg(call.NewFrame(nil, append([]byte{0x12, 0x80, 0x80, 0x01}, bytes.Repeat([]byte("x"), 16<<10)...)))
	case "huge":
		return stream.SendMsg(call.NewFrame(nil, append([]byte{0x12, 0x80, 0x80, 0x08}, bytes.Repeat([]byte("x"), 128<<10)...)))
	case "three":
		for range 2 {
			if err := stream.SendMsg(call.NewFrame(nil, append([]byte{10, byte(len(id))}, id...))); err != nil {
				return err
			}
		}
	}
	return stream.SendMsg(call.NewFrame(nil, append([]byte{10, byte(len(id))}, id...)))
}

func text(m proto.Message, field protoreflect.Name) string {
	r := m.ProtoReflect()
	return r.Get(r.Descriptor().Fields().ByName(field)).String()
}

// executions returns how often the shop has executed anything.
func (s *shop) executions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, k := range s.executed {
		n += k
	}
	return n
}

// keys returns the keys that the shop has seen.
func (s *shop) keys() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for k, n := range s.executed {
		out[k] = n
	}
	return out
}

// order is one call of the shop.
type order struct {
	method, json string
	keys         []string
	by           *identity.Principal
	confirm      string
	asker        call.Asker
	ctx          context.Context
	door         call.Door // default gRPC
}

// got is what a caller gets.
type got struct {
	c       *call.Call
	header  metadata.MD
	trailer metadata.MD
	replies [][]byte
	err     error
}

func (g got) reason() string { return reasonOf(g.err) }

// reasonOf returns code and reason of an error.
func reasonOf(err error) string {
	st := status.Convert(err)
	out := st.Code().String()
	if i := infoOf(err); i.GetReason() != "" {
		out += " " + i.GetReason()
	}
	return out
}

func infoOf(err error) *errdetails.ErrorInfo {
	for _, d := range status.Convert(err).Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			return i
		}
	}
	return nil
}

func (s *shop) do(t testing.TB, handler call.Handler, o order) got {
	t.Helper()
	m := s.Method("/shop.v1.Shop/" + o.method)
	if m == nil {
		t.Fatalf("no method %q", o.method)
	}
	g := got{c: call.New(m, cmp.Or(o.door, call.GRPC))}
	g.c.Principal, g.c.Confirm, g.c.Asker = o.by, o.confirm, o.asker
	if len(o.keys) > 0 {
		g.c.Forward = metadata.MD{"idempotency-key": o.keys}
	}
	ctx := o.ctx
	if ctx == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
	}
	stream := call.NewStream(ctx, g.c, call.One(call.NewFrame(nil, requestOf(t, m, o.json))), func(f *call.Frame) error {
		g.replies = append(g.replies, bytes.Clone(f.Bytes()))
		return nil
	}, nil)
	g.err = handler(stream)
	g.header, g.trailer = stream.Header(), stream.Trailer()
	return g
}

// chain returns the shop behind idempotency and approval, with more policies inside.
func (s *shop) chain(o interceptors.Options, inner ...interceptors.Policy) call.Handler {
	o.Logger = discard()
	return interceptors.Chain(s.final, append([]interceptors.Policy{interceptors.Recover(o), interceptors.Errors(o), interceptors.Idempotency(o), interceptors.Approval(o)}, inner...)...)
}
