package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/internal/launch"
)

const patience = 30 * time.Second

// launched runs the program with a standard input.
func launched(t *testing.T, stdin io.Reader, args ...string) *launch.Command {
	t.Helper()
	return launch.Run(t, func(ctx context.Context, args []string, stderr io.Writer) error { return run(ctx, args, stdin, stderr) }, args...)
}

func TestServes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.log")
	if err := os.WriteFile(file, []byte(`{"level":"INFO","msg":"from a file"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	logs := launched(t, strings.NewReader("from standard input\n"), "--ingest-stdin", "--ingest-file", file, "--ingest-service", "demo")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for _, service := range []string{"", "agentops.logs.v1.LogService", "agentops.logs.v2.LogService"} {
		resp, err := grpc_health_v1.NewHealthClient(logs.Conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || resp.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q = %v, %v; want SERVING", service, resp, err)
		}
	}
	reflected(ctx, t, logs.Conn)

	var got []string
	for ctx.Err() == nil && len(got) < 2 {
		resp, err := logsv1.NewLogServiceClient(logs.Conn).SearchLogs(ctx, &logsv1.SearchLogsRequest{Query: "service:demo"})
		if err != nil {
			t.Fatal(err)
		}
		got = got[:0]
		for _, e := range resp.Entries {
			got = append(got, e.Message)
		}
	}
	slices.Sort(got)
	if want := []string{"from a file", "from standard input"}; !slices.Equal(got, want) {
		t.Errorf("entries = %q, want %q", got, want)
	}

	stream, err := logsv1.NewLogServiceClient(logs.Conn).TailLogs(ctx, &logsv1.TailLogsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	if err := logs.Stop(); err != nil {
		t.Errorf("stop = %v, want nil", err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("tail after the stop = %v, want UNAVAILABLE", err)
	}
}

func reflected(ctx context.Context, t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	v1, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := v1.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "agentops.logs.v1.LogService"}}); err != nil {
		t.Fatal(err)
	}
	if resp, err := v1.Recv(); err != nil || len(resp.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection v1 = %v, %v; want the contract", resp, err)
	}
	// Its generated code is deprecated, so the services that are listed show that clients of v1alpha are served too.
	if err := v1.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	resp, err := v1.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range resp.GetListServicesResponse().GetService() {
		names = append(names, s.Name)
	}
	want := []string{"agentops.logs.v1.LogService", "agentops.logs.v2.LogService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
	if !slices.Equal(names, want) {
		t.Errorf("services = %q, want %q", names, want)
	}
	_ = v1.CloseSend()
}

// A second process on the same directory is told so and ends, and does not take the first one down.
func TestDataInUse(t *testing.T) {
	dir := t.TempDir()
	first := launched(t, nil, "--data", dir)
	err := run(t.Context(), []string{"--addr", "127.0.0.1:0", "--data", dir}, nil, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "is another process using it?") {
		t.Errorf("second run = %v, want an error that says why", err)
	}
	if _, err := logsv1.NewLogServiceClient(first.Conn).SearchLogs(t.Context(), &logsv1.SearchLogsRequest{}); err != nil {
		t.Errorf("search on the first: %v", err)
	}
}

func TestRefusesCommandLine(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"serve"}, `unexpected argument "serve"`},
		{[]string{"--data", "x", "--victorialogs-url", "http://x"}, "exclude each other"},
		{[]string{"--retention", "1h"}, "less than 24h"},
		{[]string{"--victorialogs-url", "x:9428"}, "use one like http://"},
		{[]string{"--addr", "nowhere"}, "choose another address with --addr"},
		{[]string{"--loki-url", "loki:3100"}, "use one like http://"},
		{[]string{"--loki-url", "http://x", "--data", "x"}, "entries are in one store"},
		{[]string{"--loki-tenant", "x"}, "without --loki-url"},
		{[]string{"--redact", "everything"}, "use secrets or pii"},
		{[]string{"--redact-pattern", "x"}, "NAME=REGEXP"},
		{[]string{"--redact-pattern", "x=("}, "missing closing )"},
		{[]string{"--auth-issuer", "x"}, "belong together"},
		{[]string{"--addr", "127.0.0.1:0", "--ingest-file", "."}, "is a directory"},
		{[]string{"--unknown"}, "unknown"},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			err := run(t.Context(), test.args, nil, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("run(%q) = %v, want an error with %q", test.args, err, test.want)
			}
		})
	}
	if err := run(t.Context(), []string{"--help"}, nil, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("run(--help) = %v, want %v", err, flag.ErrHelp)
	}
}
