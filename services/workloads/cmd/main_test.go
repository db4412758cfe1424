package main

import (
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

func TestServes(t *testing.T) {
	dir := t.TempDir()
	v := &victim{t: t, args: []string{"--data", filepath.Join(dir, "data"), "--workload", "web=exec sleep 1000", "--workload", "other=exec sleep 1000"}, log: filepath.Join(dir, "log")}
	v.start()
	resp, err := grpc_health_v1.NewHealthClient(v.client.Load()).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "agentops.workloads.v1.WorkloadService"})
	if err != nil || resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health = %v, %v", resp, err)
	}
	list, err := v.service().ListWorkloads(t.Context(), &workloadsv1.ListWorkloadsRequest{})
	if err != nil || len(list.GetWorkloads()) != 2 || list.GetWorkloads()[0].GetName() != "workloads/other" {
		t.Errorf("list = %v, %v", list, err)
	}
	err = run(t.Context(), []string{"--addr", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--workload", "web=exec sleep 1000"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "is another process using it?") {
		t.Errorf("second run = %v, want an error that says why", err)
	}
	stream, err := v.service().WatchWorkload(t.Context(), &workloadsv1.WatchWorkloadRequest{Name: "workloads/web"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	v.stop()
	for err = nil; err == nil; {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("watch after the stop = %v, want UNAVAILABLE", err)
	}
}

// A service that cannot listen starts no workload.
func TestListensFirst(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	started := filepath.Join(t.TempDir(), "started")
	err = run(t.Context(), []string{"--addr", taken.Addr().String(), "--data", t.TempDir(), "--workload", "web=touch " + started + "; exec sleep 1000"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "choose another address with --addr") {
		t.Errorf("run = %v, want an error about the address", err)
	}
	if _, err := os.Stat(started); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the workload was started: %v", err)
	}
}

func TestRefusesCommandLine(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const web = "--workload=web=sleep 1"
	tests := []struct {
		args []string
		want string
	}{
		{nil, "nothing to supervise"},
		{[]string{web, "serve"}, `unexpected argument "serve"`},
		{[]string{web, "--data", "x", "--database-url", "postgres://x"}, "exclude each other"},
		{[]string{"--driver", "docker"}, "use process or kubernetes"},
		{[]string{"--driver", "kubernetes", web}, "are of --driver process"},
		{[]string{"--workload", "web"}, "name=command"},
		{[]string{"--config", empty}, "no workloads"},
		{[]string{"--config", "nowhere.yaml"}, "nowhere.yaml"},
		{[]string{web, web}, "is there twice"},
		{[]string{web, "--max-replicas", "0"}, "less than 1"},
		{[]string{web, "--action-timeout", "0s"}, "more than 0"},
		{[]string{web, "--webhook", "x"}, "is no URL"},
		{[]string{web, "--auth-issuer", "x"}, "belong together"},
		{[]string{web, "--addr", "nowhere"}, "choose another address with --addr"},
		{[]string{"--driver", "kubernetes", "--kubeconfig", filepath.Join(t.TempDir(), "none")}, "kubeconfig"},
		{[]string{"--unknown"}, "unknown"},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			err := run(t.Context(), test.args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("run(%q) = %v, want an error with %q", test.args, err, test.want)
			}
		})
	}
	if err := run(t.Context(), []string{"--help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("run(--help) = %v, want %v", err, flag.ErrHelp)
	}
}
