package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	"github.com/toolway/toolway/services/internal/launch"
)

const patience = 30 * time.Second

func TestRefuses(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("tw_key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ args, want string }{
		{"", "--mesh is required"},
		{"--mesh nowhere", "want host:port"},
		{"--mesh 127.0.0.1:1 more", "unexpected argument"},
		{"--mesh 127.0.0.1:1 --window 1ms", "--window"},
		{"--mesh 127.0.0.1:1 --threshold 0", "--threshold"},
		{"--mesh 127.0.0.1:1 --threshold NaN", "--threshold"},
		{"--mesh 127.0.0.1:1 --max-running 0", "--max-running"},
		{"--mesh 127.0.0.1:1 --poll 0s", "--poll"},
		{"--mesh 127.0.0.1:1 --auth-issuer mesh", "belong together"},
		{"--mesh mesh.example.com:443 --mesh-token-file " + token, "in the clear; use --mesh-tls"},
		{"--mesh 127.0.0.1:1 --mesh-token-file " + token + ".none", "--mesh-token-file"},
		{"--mesh 127.0.0.1:1 --mesh-token-file " + empty, "has no token"},
		{"--mesh 127.0.0.1:1 --mesh-key x", "add --mesh-tls"},
		{"--mesh 127.0.0.1:1 --mesh-cert x", "go together"},
		{"--mesh 127.0.0.1:1 --mesh-ca " + token, "has no certificate"},
		{"--mesh 127.0.0.1:1 --addr nowhere", "choose another address with --addr"},
		{"--mesh 127.0.0.1:1 --data " + token, "data directory"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := run(ctx, strings.Fields(test.args), io.Discard); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("run = %v, want %q", err, test.want)
			}
		})
	}
}

// The program calls the mesh with the token that is in the file then, and keeps its diagnoses where it is told to.
func TestServes(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("tw_first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	credentials := make(chan string, 100)
	mesh := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		credentials <- strings.Join(metadata.ValueFromIncomingContext(stream.Context(), "authorization"), ",")
		return status.Error(codes.Unimplemented, "there are no tools here")
	}))
	go func() { _ = mesh.Serve(listener) }()
	defer mesh.Stop()

	service := launch.Run(t, run, "--mesh", listener.Addr().String(), "--mesh-token-file", token)
	client := incidentsv1.NewIncidentServiceClient(service.Conn)
	calling, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for i, want := range []string{"Bearer tw_first", "Bearer tw_second"} {
		d, err := client.StartDiagnosis(calling, &incidentsv1.StartDiagnosisRequest{Incident: "inc-1", RequestId: want, Service: "checkout"})
		if err != nil {
			t.Fatal(err)
		}
		events, err := client.WatchDiagnosis(calling, &incidentsv1.WatchDiagnosisRequest{Name: d.GetName()})
		for err == nil {
			_, err = events.Recv()
		}
		if got := <-credentials; got != want {
			t.Errorf("diagnosis %d: the mesh was called with %q, want %q", i+1, got, want)
		}
		for len(credentials) > 0 {
			<-credentials
		}
		if err := os.WriteFile(token, []byte("tw_second\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := service.Stop(); err != nil {
		t.Error(err)
	}
}
