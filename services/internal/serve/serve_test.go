package serve_test

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/services/internal/serve"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// started is a server that runs until the test ends.
type started struct {
	conn *grpc.ClientConn
	stop context.CancelFunc
	done chan error
}

// start runs a server with one service, demo.Wait, whose method Forever is a stream that ends when its caller goes or the server drains.
func start(t *testing.T, flags serve.Flags) *started {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	flags.Addr = "127.0.0.1:0"
	draining, drain := context.WithCancel(context.Background())
	forever := func(_ any, stream grpc.ServerStream) error {
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
		select {
		case <-draining.Done():
			return status.Error(codes.Unavailable, "drained")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
	desc := &grpc.ServiceDesc{ServiceName: "demo.Wait", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{StreamName: "Forever", Handler: forever, ServerStreams: true}}}
	var log safeBuffer
	s := &started{stop: stop, done: make(chan error, 1)}
	go func() {
		s.done <- serve.Run(ctx, flags, func(r grpc.ServiceRegistrar) { r.RegisterService(desc, struct{}{}) },
			serve.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Drain: drain})
	}()
	serving := regexp.MustCompile(`msg=serving addr=(\S+)\n`)
	for end := time.Now().Add(patience); ; {
		if m := serving.FindStringSubmatch(log.String()); m != nil {
			conn, err := grpc.NewClient(m[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			s.conn = conn
			break
		}
		if time.Now().After(end) {
			t.Fatalf("does not serve: %s", log.String())
		}
		time.Sleep(time.Millisecond)
	}
	t.Cleanup(func() {
		if err := s.conn.Close(); err != nil {
			t.Error(err)
		}
		s.wait(t)
		drain()
	})
	return s
}

// wait ends the server.
func (s *started) wait(t *testing.T) {
	t.Helper()
	s.stop()
	select {
	case err := <-s.done:
		s.done <- err
		if err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	case <-time.After(patience):
		t.Fatal("does not end")
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func forever(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(within(t), &grpc.StreamDesc{ServerStreams: true}, "/demo.Wait/Forever")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestRun(t *testing.T) {
	s := start(t, serve.Flags{})
	for _, service := range []string{"", "demo.Wait"} {
		resp, err := grpc_health_v1.NewHealthClient(s.conn).Check(within(t), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || resp.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q = %v, %v; want SERVING", service, resp, err)
		}
	}
	reflected, err := reflectionv1.NewServerReflectionClient(s.conn).ServerReflectionInfo(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := reflected.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	resp, err := reflected.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, service := range resp.GetListServicesResponse().GetService() {
		names = append(names, service.Name)
	}
	if want := []string{"demo.Wait", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}; !slices.Equal(names, want) {
		t.Errorf("services = %q, want %q", names, want)
	}
	if err := reflected.CloseSend(); err != nil {
		t.Fatal(err)
	}
	stream := forever(t, s.conn)
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	s.wait(t)
	if err := stream.RecvMsg(&grpc_health_v1.HealthCheckResponse{}); status.Code(err) != codes.Unavailable {
		t.Errorf("stream after the end = %v, want UNAVAILABLE, as it was drained", err)
	}
}

// With the flags set, health stays open and all else needs a credential. That good ones pass is shown through a mesh, in tests/servers.
func TestRunTakesCredentials(t *testing.T) {
	s := start(t, serve.Flags{AuthIssuer: "mesh", AuthAudience: "demo", AuthJWKS: "http://127.0.0.1:1/keys"})
	if _, err := grpc_health_v1.NewHealthClient(s.conn).Check(within(t), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	if err := forever(t, s.conn).RecvMsg(&grpc_health_v1.HealthCheckResponse{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("call without a credential = %v, want UNAUTHENTICATED", err)
	}
}

func TestFlags(t *testing.T) {
	tests := []struct {
		args string
		want string
	}{
		{"", ""},
		{"--addr :1 --auth-issuer a --auth-audience b --auth-jwks http://c", ""},
		{"--auth-issuer a", "belong together"},
		{"--auth-audience b --auth-jwks http://c", "belong together"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			var f serve.Flags
			set := flag.NewFlagSet("demo", flag.ContinueOnError)
			f.Add(set, "127.0.0.1:7")
			if err := set.Parse(strings.Fields(test.args)); err != nil {
				t.Fatal(err)
			}
			if test.args == "" && f.Addr != "127.0.0.1:7" {
				t.Errorf("Addr = %q, want the default", f.Addr)
			}
			err := f.Check()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("Check = %v, want %q", err, test.want)
			}
		})
	}
}

func TestRunSaysWhyNot(t *testing.T) {
	none := func(grpc.ServiceRegistrar) {}
	if err := serve.Run(t.Context(), serve.Flags{Addr: "nowhere"}, none, serve.Options{}); err == nil || !strings.Contains(err.Error(), "choose another address with --addr") {
		t.Errorf("Run on a bad address = %v", err)
	}
}
