package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	runbooksv1 "github.com/toolway/toolway/gen/agentops/runbooks/v1"
	"github.com/toolway/toolway/services/internal/launch"
)

const patience = 30 * time.Second

// The program says where it serves, is well, names a file that is not, and ends a watch with UNAVAILABLE when it is told to stop.
func TestServes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"good.md": "# Good\n", "bad.md": "---\ntitle: [\n---\n# Bad\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	service := launch.Run(t, run, "--dir", dir, "--poll", "20ms")
	if log := service.Log(); !strings.Contains(log, "front matter ignored") || !strings.Contains(log, "file=bad.md") {
		t.Errorf("log = %q, want a warning of bad.md", log)
	}
	health, err := grpc_health_v1.NewHealthClient(service.Conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "agentops.runbooks.v1.RunbookService"})
	if err != nil || health.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health = %v, %v; want SERVING", health, err)
	}
	client := runbooksv1.NewRunbookServiceClient(service.Conn)
	stream, err := client.WatchRunbooks(ctx, &runbooksv1.WatchRunbooksRequest{Name: "runbooks/-"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new.md"), []byte("# New\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if msg, err := stream.Recv(); err != nil || msg.Name != "runbooks/new" {
		t.Errorf("change = %v, %v; want the new runbook", msg, err)
	}
	if err := service.Stop(); err != nil {
		t.Errorf("stop = %v, want nil", err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("watch after the stop = %v, want UNAVAILABLE", err)
	}
}

func TestRefusesCommandLine(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		args []string
		want string
	}{
		{nil, "--dir is missing"},
		{[]string{"serve"}, `unexpected argument "serve"`},
		{[]string{"--dir", dir + "/none"}, "name another folder with --dir"},
		{[]string{"--dir", dir, "--poll", "1ms"}, "less than 10ms"},
		{[]string{"--dir", dir, "--addr", "nowhere"}, "choose another address with --addr"},
		{[]string{"--dir", dir, "--auth-issuer", "x"}, "belong together"},
	}
	for _, test := range tests {
		err := run(t.Context(), test.args, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("run(%q) = %v, want an error with %q", test.args, err, test.want)
		}
	}
	if err := run(t.Context(), []string{"--help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("run(--help) = %v, want flag.ErrHelp", err)
	}
}
