package servers_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	rpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	rapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/protoset"
	"github.com/toolway/toolway/tests/internal/run"
)

// startProbe serves a probe from this process.
func startProbe(t *testing.T, r probe.Reflection, opts ...grpc.ServerOption) (*probe.Server, string) {
	t.Helper()
	s := probe.New()
	g, err := s.NewGRPC(r, opts...)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

// TestReflection puts the mesh before servers with every kind of reflection. However the contract came, all doors work, and the mesh's own
// reflection has both versions.
func TestReflection(t *testing.T) {
	t.Parallel()
	const comment = "Ask answers one message with one."
	set := filepath.Join(t.TempDir(), "probe.binpb")
	if err := protoset.Write(set, probev1.File_probe_v1_probe_proto); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "probe-comments.binpb")
	if err := protoset.Write(image, compiled(t)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name        string
		reflection  probe.Reflection
		descriptors string
		commented   bool
	}{
		{"v1", probe.V1, "", false},
		{"v1alpha", probe.V1Alpha, "", false},
		{"both", probe.Both, "", false},
		{"none", probe.None, set, false},
		{"none, with comments", probe.None, image, true},
		{"v1, comments from a file", probe.V1, image, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx := patience(t)
			_, addr := startProbe(t, c.reflection)
			args := []string{"--backend", "probe=" + addr}
			if c.descriptors != "" {
				args = append(args, "--descriptors", "probe="+c.descriptors)
			}
			mesh := run.Start(t, args...)
			cc := run.Dial(t, mesh.GRPC)
			if got, err := probev1.NewProbeClient(cc).Ask(ctx, &probev1.AskRequest{Text: "hi"}); err != nil || got.GetText() != "hi" {
				t.Errorf("gRPC: Ask = %v, %v", got, err)
			}
			if code, v := post(t, mesh.URL("/v1/probe/x:ask"), `{"text":"hi"}`); code != http.StatusOK || v["text"] != "hi" {
				t.Errorf("HTTP: %d %v", code, v)
			}
			a, err := agent.NewHTTP(ctx, mesh.URL("/mcp"), agent.V20251125, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			tools, err := agent.Tools(ctx, a)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(tools, func(t agent.Tool) bool { return t.Name == "probe_ask" })
			if i < 0 {
				t.Fatalf("no tool probe_ask among %v", tools)
			}
			if d := tools[i].Description; d == "" || strings.Contains(d, comment) != c.commented {
				t.Errorf("description = %q, with the comment: want %v", d, c.commented)
			}
			if res, err := agent.Call(ctx, a, "probe_ask", map[string]any{"text": "hi"}, nil); err != nil || res.IsError {
				t.Errorf("MCP: probe_ask = %+v, %v", res, err)
			}
			services, err := listV1(ctx, cc)
			if err != nil || !slices.Contains(services, "probe.v1.Probe") {
				t.Errorf("reflection v1: services %v, %v", services, err)
			}
			alpha, err := listV1Alpha(ctx, cc)
			if err != nil || !slices.Equal(alpha, services) {
				t.Errorf("reflection v1alpha: services %v, %v, want %v", alpha, err, services)
			}
		})
	}
}

// A server without reflection and without descriptors cannot be served. The mesh says so, and serves the others.
func TestNothingToGoBy(t *testing.T) {
	t.Parallel()
	_, dumb := startProbe(t, probe.None)
	_, good := startProbe(t, probe.V1)
	mesh := run.Start(t, "--backend", "dumb="+dumb, "--backend", "good="+good)
	ctx := patience(t)
	run.Eventually(t, "the other backend is served", func() bool {
		_, err := probev1.NewProbeClient(run.Dial(t, mesh.GRPC)).Ask(ctx, &probev1.AskRequest{})
		return err == nil
	})
	run.Eventually(t, "the log names the backend and the mend", func() bool {
		return slices.ContainsFunc(strings.Split(mesh.Log(), "\n"), func(l string) bool {
			return strings.Contains(l, "dumb") && strings.Contains(l, "reflection") && strings.Contains(l, "--descriptors")
		})
	})
}

// A service that no backend has is not implemented, at once and with a word about what there is.
func TestUnknownService(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t, probe.V1)
	mesh := run.Start(t, "--backend", "probe="+addr)
	ctx := patience(t)
	cc := run.Dial(t, mesh.GRPC)
	err := cc.Invoke(ctx, "/probe.v1.Prob/Ask", &probev1.AskRequest{}, &probev1.AskResponse{})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "probe.v1.Prob") {
		t.Errorf("unknown service: error %v, want UNIMPLEMENTED that names it", err)
	}
	err = cc.Invoke(ctx, "/probe.v1.Probe/Asq", &probev1.AskRequest{}, &probev1.AskResponse{})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "Ask") {
		t.Errorf("unknown method: error %v, want UNIMPLEMENTED with the near miss", err)
	}
}

func listV1(ctx context.Context, cc *grpc.ClientConn) ([]string, error) {
	s, err := rpb.NewServerReflectionClient(cc).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Send(&rpb.ServerReflectionRequest{MessageRequest: &rpb.ServerReflectionRequest_ListServices{}}); err != nil {
		return nil, err
	}
	resp, err := s.Recv()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, svc := range resp.GetListServicesResponse().GetService() {
		names = append(names, svc.GetName())
	}
	slices.Sort(names)
	return names, s.CloseSend()
}

func listV1Alpha(ctx context.Context, cc *grpc.ClientConn) ([]string, error) {
	s, err := rapb.NewServerReflectionClient(cc).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	//nolint:staticcheck // The old version is what is tested.
	if err := s.Send(&rapb.ServerReflectionRequest{MessageRequest: &rapb.ServerReflectionRequest_ListServices{}}); err != nil {
		return nil, err
	}
	resp, err := s.Recv()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, svc := range resp.GetListServicesResponse().GetService() { //nolint:staticcheck // As above.
		names = append(names, svc.GetName()) //nolint:staticcheck // As above.
	}
	slices.Sort(names)
	return names, s.CloseSend()
}

// compiled is the probe's contract with its comments, as a compiler leaves it.
func compiled(t *testing.T) protoreflect.FileDescriptor {
	t.Helper()
	module, err := run.Module()
	if err != nil {
		t.Fatal(err)
	}
	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{
			filepath.Join(module, "proto"), filepath.Join(module, "..", "third_party", "googleapis"),
		}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := c.Compile(t.Context(), "probe/v1/probe.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0]
}
