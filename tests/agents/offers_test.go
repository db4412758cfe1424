package agents_test

import (
	"context"
	"encoding/json"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	conformancev1 "github.com/toolway/toolway/tests/gen/conformance/v1"
	"github.com/toolway/toolway/tests/internal/run"
)

// shelf answers for what is read.
type shelf struct {
	conformancev1.UnimplementedConformanceServer
}

func (shelf) StaticText(context.Context, *conformancev1.Request) (*httpbody.HttpBody, error) {
	return &httpbody.HttpBody{ContentType: "text/plain", Data: []byte("a text")}, nil
}

func (shelf) StaticBinary(context.Context, *conformancev1.Request) (*httpbody.HttpBody, error) {
	return &httpbody.HttpBody{ContentType: "image/png", Data: []byte("\x89PNG")}, nil
}

func (shelf) TemplateData(_ context.Context, r *conformancev1.TemplateDataRequest) (*httpbody.HttpBody, error) {
	return &httpbody.HttpBody{ContentType: "application/json", Data: []byte(`{"id":"` + r.GetId() + `"}`)}, nil
}

// TestOffers runs the official clients over resources, prompts and completion.
func TestOffers(t *testing.T) {
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	conformancev1.RegisterConformanceServer(g, shelf{})
	reflection.Register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	backend := "--backend=shelf=" + l.Addr().String()
	mesh := run.Start(t, backend)
	for _, c := range []struct {
		name, sdk string
		mode      any
		missing   string // the code for a resource that does not exist
	}{
		{"v1", "v1", nil, "-32002 "},
		{"v2 auto", "v2", "auto", "-32602 "},
	} {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(c.name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				job := map[string]any{"sdk": c.sdk, "mode": c.mode}
				if transport == "http" {
					job["url"] = mesh.URL("/mcp")
				} else {
					job["command"] = []string{bin, "mcp", backend}
				}
				r := runOffers(t, job)
				if transport == "stdio" && !strings.Contains(string(r["capabilities"]), `"subscribe":true`) {
					t.Errorf("capabilities = %s", r["capabilities"])
				}
				for member, want := range map[string]string{
					"resources":  `["test://example-resource","test://static-binary","test://static-text","test://watched-resource"]`,
					"templates":  `["test://template/{id}/data"]`,
					"text":       `[{"uri":"test://static-text","mimeType":"text/plain","text":"a text"}]`,
					"binary":     `[{"uri":"test://static-binary","mimeType":"image/png","blob":"iVBORw=="}]`,
					"template":   `[{"uri":"test://template/a%20b/data","mimeType":"application/json","text":"{\"id\":\"a b\"}"}]`,
					"prompt":     `[{"role":"user","content":{"type":"text","text":"Prompt with arguments: arg1='x', arg2='{arg1}'"}}]`,
					"image":      `"content":{"type":"image","data":"iVBORw==","mimeType":"image/png"}`,
					"embedded":   `"content":{"type":"resource","resource":{"uri":"test://static-text","mimeType":"text/plain","text":"a text"}}`,
					"missing":    c.missing,
					"lacking":    `needs the argument \"arg2\"`,
					"completion": `"values":[]`,
				} {
					if got := strings.ReplaceAll(string(r[member]), `\\\"`, `\"`); !strings.Contains(got, want) {
						t.Errorf("%s = %s, want %s in it", member, got, want)
					}
				}
				var prompts []string
				if err := json.Unmarshal(r["prompts"], &prompts); err != nil || !slices.Contains(prompts, "test_simple_prompt") {
					t.Errorf("prompts = %s, %v", r["prompts"], err)
				}
			})
		}
	}
}

func runOffers(t *testing.T, job map[string]any) map[string]json.RawMessage {
	t.Helper()
	arg, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*run.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "offers.mjs", string(arg))
	cmd.Dir = clients
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node offers.mjs %s: %v\n%s%s", arg, err, out, stderr.String())
	}
	var r map[string]json.RawMessage
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("report of offers.mjs: %v\n%s", err, out)
	}
	return r
}
