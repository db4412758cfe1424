package live_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/protoset"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestForeignPages refuses what a page of another site could make a browser send (Origin), and a name that was made to point here (Host).
func TestForeignPages(t *testing.T) {
	t.Parallel()
	server, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	ctx := patience(t)
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	accept := "application/json, text/event-stream"
	for _, path := range []struct{ name, url, body string }{
		{"mcp", mesh.URL("/mcp"), initialize},
		{"route", mesh.URL("/v1/probe/x:ask"), `{}`},
		{"method", mesh.URL("/probe.v1.Probe/Ask"), `{}`},
		{"stream", mesh.URL("/probe.v1.Probe/Watch"), `{}`},
	} {
		for _, c := range []struct {
			name   string
			header http.Header
			want   int
		}{
			{"none", http.Header{}, http.StatusOK},
			{"own origin", http.Header{"Origin": {"http://" + mesh.HTTP}}, http.StatusOK},
			{"foreign origin", http.Header{"Origin": {"https://evil.example"}}, http.StatusForbidden},
			{"null origin", http.Header{"Origin": {"null"}}, http.StatusForbidden},
			{"other port", http.Header{"Origin": {"http://127.0.0.1:1"}}, http.StatusForbidden},
			{"foreign host", http.Header{"Host": {"evil.example"}}, http.StatusForbidden},
			{"foreign host and its origin", http.Header{"Host": {"evil.example"}, "Origin": {"http://evil.example"}}, http.StatusForbidden},
		} {
			t.Run(path.name+"/"+c.name, func(t *testing.T) {
				h := c.header.Clone()
				h.Set("Accept", accept)
				if path.name != "mcp" {
					h.Set("Accept", "application/json")
				}
				if got := post(ctx, path.url, path.body, h); got.code != c.want {
					t.Errorf("%v, want %d", got, c.want)
				}
			})
		}
		t.Run(path.name+"/form", func(t *testing.T) {
			// These two a page may send without asking.
			for _, typ := range []string{"text/plain", "application/x-www-form-urlencoded"} {
				before := server.Total()
				got := post(ctx, path.url, path.body, http.Header{"Content-Type": {typ}, "Accept": {accept}})
				if got.code < 400 || got.code > 499 || server.Total() != before {
					t.Errorf("content type %q: %v, want it refused before the backend", typ, got)
				}
			}
		})
	}
	for _, url := range []string{mesh.URL("/openapi.json"), mesh.URL("/v1/probe/x"), "http://" + mesh.Admin + "/metrics"} {
		t.Run("GET "+url[strings.LastIndex(url, "/"):], func(t *testing.T) {
			for _, c := range []struct {
				host string
				want int
			}{{"", http.StatusOK}, {"evil.example", http.StatusForbidden}} {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				req.Host = c.host
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != c.want {
					t.Errorf("GET %s with host %q: %s, want %d", url, c.host, resp.Status, c.want)
				}
			}
		})
	}
}

// identity are headers by which a caller could claim to be somebody.
var identity = map[string]string{
	"authorization": "Bearer x", "proxy-authorization": "Basic eA==", "cookie": "session=x",
	"x-user-id": "admin", "x-user": "admin", "x-tenant": "acme", "x-tenant-id": "acme", "x-api-key": "x", "x-forwarded-user": "admin",
	"x-forwarded-for": "10.0.0.1", "x-forwarded-email": "a@b.example", "x-forwarded-access-token": "x", "forwarded": "for=10.0.0.1", "x-real-ip": "10.0.0.1",
	"x-auth-request-user": "admin", "x-authenticated-user": "admin", "x-remote-user": "admin", "x-goog-iap-jwt-assertion": "x",
	"x-amzn-oidc-identity": "admin", "x-ms-client-principal": "x", "x-toolway-principal": "admin", "toolway-principal": "admin",
	"grpc-metadata-x-user-id": "admin", "grpc-metadata-authorization": "Bearer x", "grpcgateway-authorization": "Bearer x", "mcp-session-user": "admin",
}

// passing are headers that cross by default, or because the operator says so.
var passing = map[string]string{
	"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "idempotency-key": "key-1", "x-acme-region": "eu",
}

// TestOnlyWhatIsAllowedCrosses pins that a header which nobody has named stays.
func TestOnlyWhatIsAllowedCrosses(t *testing.T) {
	t.Parallel()
	server, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr, "--allow-metadata", "x-acme-*")
	ctx := patience(t)
	out := metadata.AppendToOutgoingContext(ctx, "x-not-on-any-list", "1", "x-acme-region", "eu")
	if _, err := probev1.NewProbeClient(run.Dial(t, mesh.GRPC)).Ask(out, &probev1.AskRequest{Id: "only"}); err != nil {
		t.Fatal(err)
	}
	md := mustSee(ctx, t, server, "only").Metadata
	if len(md.Get("x-not-on-any-list")) != 0 || len(md.Get("x-acme-region")) != 1 {
		t.Errorf("metadata = %v, want x-acme-region alone of the two", md)
	}
}

// TestIdentityStays sends every header that could name a caller through every door. None reaches the backend, even with an allowlist that
// would let it.
func TestIdentityStays(t *testing.T) {
	t.Parallel()
	server, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr, "--allow-metadata", "*")
	ctx := patience(t)
	all := map[string]string{}
	header := http.Header{}
	for _, m := range []map[string]string{identity, passing} {
		for k, v := range m {
			all[k] = v
			header.Set(k, v)
		}
	}
	cases := map[string]func(t *testing.T, id string, all map[string]string, header http.Header){
		"grpc": func(t *testing.T, id string, all map[string]string, _ http.Header) {
			md := metadata.New(all)
			ctx := metadata.NewOutgoingContext(ctx, md)
			if _, err := probev1.NewProbeClient(run.Dial(t, mesh.GRPC)).Ask(ctx, &probev1.AskRequest{Id: id}); err != nil {
				t.Fatal(err)
			}
		},
		"http": func(t *testing.T, id string, _ map[string]string, header http.Header) {
			if got := post(ctx, mesh.URL("/v1/probe/"+id+":ask"), `{}`, header); got.code != http.StatusOK {
				t.Fatal(got)
			}
		},
		"sse": func(t *testing.T, id string, _ map[string]string, header http.Header) {
			h := header.Clone()
			h.Set("Accept", "text/event-stream")
			if got := post(ctx, mesh.URL("/probe.v1.Probe/Watch"), `{"id":"`+id+`"}`, h); got.code != http.StatusOK {
				t.Fatal(got)
			}
		},
	}
	for _, v := range versions {
		cases["mcp "+v] = func(t *testing.T, id string, all map[string]string, header http.Header) {
			a := mcp(ctx, t, mesh, v, header)
			meta := map[string]any{}
			for k, v := range all {
				meta[k] = v
			}
			params := map[string]any{"name": "probe_ask", "arguments": map[string]any{"id": id}, "_meta": meta}
			if _, err := a.Request(ctx, "tools/call", params, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, call := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := "identity-" + strings.ReplaceAll(name, " ", "-")
			own, header := maps.Clone(all), header.Clone() // a key stands for one call
			own["idempotency-key"] = id
			header.Set("idempotency-key", id)
			call(t, id, own, header)
			md := mustSee(ctx, t, server, id).Metadata
			for k, vs := range md {
				// Whatever the mesh itself sets is fine; what it has from the caller shows by the value.
				if identity[k] != "" || slices.ContainsFunc(vs, func(v string) bool { return strings.Contains(v, "admin") || strings.HasPrefix(v, "Bearer ") }) {
					t.Errorf("%q: %q reached the backend", k, vs)
				}
			}
			if got := md.Get("x-acme-region"); len(got) != 1 || got[0] != "eu" {
				t.Errorf("x-acme-region = %q, want what was allowed to cross", got)
			}
			if got := md.Get("idempotency-key"); len(got) != 1 || got[0] != id {
				t.Errorf("idempotency-key = %q, want %q", got, id)
			}
			if got := md.Get("traceparent"); len(got) != 1 || !strings.HasPrefix(got[0], "00-4bf92f3577b34da6a3ce929d0e0e4736-") {
				t.Errorf("traceparent = %q, want the caller's trace", got)
			}
		})
	}
}

// TestBadHeaderBytes sends header values that gRPC metadata cannot carry. They are dropped or refused; nothing is an internal error, and
// the log stays clean.
func TestBadHeaderBytes(t *testing.T) {
	t.Parallel()
	server, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr, "--allow-metadata", "x-acme-*", "--log-level", "debug")
	ctx := patience(t)
	for i, line := range []string{
		"X-Acme-Note: bad\x7fvalue", "X-Acme-Note: tok\x01en", "X-Acme-Note: caf\xe9", "X-Acme-Data-Bin: !!not base64!!",
		"X-Forwarded-For: 1.2.3.4\r\n 5.6.7.8", "Authorization: tok\x01en", "X-Request-Id: id\x1b[31m", "Traceparent: \x00",
	} {
		t.Run(fmt.Sprintf("%q", line), func(t *testing.T) {
			id := fmt.Sprintf("bytes-%d", i)
			c, err := net.Dial("tcp", mesh.HTTP)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprintf(c, "POST /v1/probe/%s:ask HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 2\r\n%s\r\n\r\n{}", id, mesh.HTTP, line)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s %s, want 200 without the value or 400", resp.Status, b)
			}
			if resp.StatusCode == http.StatusOK {
				md := mustSee(ctx, t, server, id).Metadata
				for k, vs := range md {
					if strings.HasPrefix(k, "x-acme-") {
						t.Errorf("%q: %q reached the backend", k, vs)
					}
				}
			}
		})
	}
	if l := mesh.Log(); strings.ContainsFunc(l, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
		t.Errorf("the log has raw control characters: %q", l)
	}
}

// TestStdoutIsOnlyProtocol runs toolway mcp with everything that could make a library talk, and reads every line of its standard output.
func TestStdoutIsOnlyProtocol(t *testing.T) {
	t.Parallel()
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	_, up := startProbe(t)
	loud := []string{"GRPC_GO_LOG_VERBOSITY_LEVEL=99", "GRPC_GO_LOG_SEVERITY_LEVEL=info", "GODEBUG=http2debug=2"}
	for _, c := range []struct {
		name string
		args []string
		up   bool
	}{
		{"backend up", []string{"--backend", "probe=" + up}, true},
		{"backend down", []string{"--backend", "probe=127.0.0.1:1"}, false},
		{"not a gRPC server", []string{"--backend", "probe=" + httpServer(t)}, false},
		{"TLS to a plaintext server", []string{"--backend", "probe=grpcs://" + up}, false},
		{"debug log", []string{"--backend", "probe=" + up, "--log-level", "debug", "--log-format", "text"}, true},
	} {
		for _, version := range versions {
			t.Run(c.name+"/"+version, func(t *testing.T) {
				t.Parallel()
				a, err := agent.NewStdio(version, loud, nil, bin, append([]string{"mcp"}, c.args...)...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(a.Kill)
				ctx := patience(t)
				if err := a.Initialize(ctx); err != nil {
					t.Fatal(err)
				}
				run.Eventually(t, fmt.Sprintf("tools are listed: want %v", c.up), func() bool {
					tools, err := agent.Tools(ctx, a)
					if err != nil {
						t.Fatal(err)
					}
					return (len(tools) > 0) == c.up
				})
				if _, err := agent.Call(ctx, a, "probe_ask", map[string]any{"plan": map[string]any{"code": 13}}, nil); (err == nil) != c.up {
					t.Errorf("probe_ask: error %v, want one: %v", err, !c.up)
				}
				if _, err := agent.Call(ctx, a, "no_such_tool", map[string]any{}, nil); err == nil {
					t.Error("an unknown tool was called")
				}
				if _, err := a.Request(ctx, "no/such/method", nil, nil); err == nil {
					t.Error("an unknown method was answered")
				}
				if err := a.Send("this is no JSON-RPC message"); err != nil {
					t.Error(err)
				}
				// The process answers or ends; either way it says nothing else.
				if _, err := agent.Tools(ctx, a); err != nil {
					t.Logf("after a line that is no message: %v", err)
				}
				if err := a.Close(); err != nil {
					t.Errorf("%v\n%s", err, a.Stderr())
				}
				for _, line := range a.Lines() {
					var m agent.Message
					if err := json.Unmarshal([]byte(line), &m); err != nil || m.JSONRPC != "2.0" {
						t.Errorf("standard output has %q, which is no JSON-RPC message", line)
					}
				}
			})
		}
	}
	t.Run("mistakes in the command line", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{"mcp"}, {"mcp", "--backend", "nonsense"}, {"mcp", "--config", "/no/such/file"}, {"mcp", "--bakend", up}} {
			code, stdout, stderr, err := run.Output(nil, bin, args...)
			if err != nil || code != 2 || len(stdout) > 0 || len(stderr) == 0 {
				t.Errorf("toolway %q: exit code %d, %v, standard output %q, standard error %q; want 2, nothing, and a word", args, code, err, stdout, stderr)
			}
		}
	})
}

// httpServer is something that listens and is no gRPC server.
func httpServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.NotFoundHandler()}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// TestSevenBytes sends, in both directions, the message at which dynamicpb panics. What generated code makes of it, or a clear status, is
// right; the mesh lives.
func TestSevenBytes(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	ctx := patience(t)
	wire := &probev1.LabelRequest{}
	wire.ProtoReflect().SetUnknown(probe.Hostile)
	for _, path := range []struct{ name, addr string }{{"direct", addr}, {"grpc", mesh.GRPC}} {
		cc := run.Dial(t, path.addr)
		if got, err := probev1.NewProbeClient(cc).Label(ctx, wire); err != nil || got.GetLabels() == nil {
			t.Errorf("%s, request: %v, %v, want labels", path.name, got, err)
		}
		var raw rawMessage
		if err := cc.Invoke(ctx, probev1.Probe_Label_FullMethodName, &probev1.LabelRequest{Hostile: true}, &raw, grpc.ForceCodec(rawCodec{})); err != nil || string(raw) != string(probe.Hostile) {
			t.Errorf("%s, answer: % x, %v, want the seven bytes", path.name, raw, err)
		}
	}
	got := post(ctx, mesh.URL("/probe.v1.Probe/Label"), `{"hostile":true}`, nil)
	asGenerated := got.code == http.StatusOK && strings.Contains(fmt.Sprint(got.body), "a:")
	refused := got.code == http.StatusInternalServerError && strings.Contains(fmt.Sprint(got.body["message"]), "LabelResponse")
	if !asGenerated && !refused {
		t.Errorf("http: %v, want the label or an error that names the message", got)
	}
	for _, v := range versions {
		res, err := agent.Call(ctx, mcp(ctx, t, mesh, v, nil), "probe_label", map[string]any{"hostile": true}, nil)
		if err != nil || !res.IsError && !strings.Contains(string(res.StructuredContent), `"a"`) || res.IsError && !strings.Contains(res.Text(), "INTERNAL") {
			t.Errorf("mcp %s: %+v, %v, want the label or INTERNAL", v, res, err)
		}
	}
	if got := post(ctx, mesh.URL("/v1/probe/x:ask"), `{"text":"alive"}`, nil); got.body["text"] != "alive" {
		t.Errorf("after all: %v, want an answer", got)
	}
}

// rawMessage is a message's bytes; rawCodec reads and writes them as they are.
type rawMessage []byte

type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case *rawMessage:
		return *v, nil
	case proto.Message:
		return proto.Marshal(v)
	}
	return nil, fmt.Errorf("cannot marshal %T", v)
}

func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*rawMessage) = slices.Clone(b)
	return nil
}

// TestBytesUntouched sends wire bytes that no encoder would make, and hostile frames, through the gRPC door.
func TestBytesUntouched(t *testing.T) {
	t.Parallel()
	// A server that answers with the request's bytes, whatever they are.
	echo := func(_ any, stream grpc.ServerStream) error {
		var m rawMessage
		if err := stream.RecvMsg(&m); err != nil {
			return err
		}
		return stream.SendMsg(&m)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(echo))
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	set := filepath.Join(t.TempDir(), "probe.binpb")
	if err := protoset.Write(set, probev1.File_probe_v1_probe_proto); err != nil {
		t.Fatal(err)
	}
	mesh := run.Start(t, "--backend", "echo="+l.Addr().String(), "--descriptors", "echo="+set)
	ctx := patience(t)
	cc := run.Dial(t, mesh.GRPC)
	for name, wire := range map[string]rawMessage{
		"empty":              {},
		"seven bytes":        probe.Hostile,
		"fields out of turn": []byte("\x12\x01b\x0a\x01a\x12\x01c"),
		"overlong varint":    []byte("\x20\x81\x80\x80\x00"),
		"unknown group":      []byte("\x9b\x3e\x08\x01\x9c\x3e"),
		"not UTF-8":          []byte("\x0a\x02\xff\xfe"),
		"cut short":          []byte("\x0a\x05ab"),
		"no message at all":  []byte("\xff\xff\xff\xff\xff"),
	} {
		var got rawMessage
		if err := cc.Invoke(ctx, probev1.Probe_Ask_FullMethodName, &wire, &got, grpc.ForceCodec(rawCodec{})); err != nil || string(got) != string(wire) {
			t.Errorf("%s: sent % x, got % x, %v", name, wire, got, err)
		}
	}
	err = cc.Invoke(ctx, probev1.Probe_Ask_FullMethodName, &rawMessage{}, &rawMessage{}, grpc.ForceCodec(rawCodec{}), grpc.CallContentSubtype("json"))
	if status.Code(err) == codes.OK {
		t.Error("a call with content subtype json was let through")
	}
}

// TestCompression has a caller that compresses, and one whose little becomes much.
func TestCompression(t *testing.T) {
	t.Parallel()
	server, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	ctx := patience(t)
	client := probev1.NewProbeClient(run.Dial(t, mesh.GRPC, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name))))
	if got, err := client.Ask(ctx, &probev1.AskRequest{Text: strings.Repeat("zip", 1000)}); err != nil || got.GetText() != strings.Repeat("zip", 1000) {
		t.Errorf("compressed request: %d bytes, %v", len(got.GetText()), err)
	}
	before := server.Total()
	if _, err := client.Ask(ctx, &probev1.AskRequest{Text: strings.Repeat("0", 64<<20)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("64 MiB in a few KB: %v, want RESOURCE_EXHAUSTED", err)
	}
	if server.Total() != before {
		t.Error("the call reached the backend")
	}
}

// TestCardinality breaks the promise of a unary method: no request, or two. The mesh refuses, as a gRPC server does.
func TestCardinality(t *testing.T) {
	t.Parallel()
	server, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	for _, path := range []struct{ name, addr string }{{"direct", addr}, {"grpc", mesh.GRPC}} {
		cc := run.Dial(t, path.addr)
		for _, n := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s/%d requests", path.name, n), func(t *testing.T) {
				ctx := patience(t)
				before := server.Total()
				s, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, probev1.Probe_Ask_FullMethodName)
				if err != nil {
					t.Fatal(err)
				}
				for range n {
					if err := s.SendMsg(&probev1.AskRequest{}); err != nil {
						break // the end of the call says why
					}
				}
				_ = s.CloseSend()
				if err := s.RecvMsg(&probev1.AskResponse{}); status.Code(err) != codes.Internal && status.Code(err) != codes.Unimplemented {
					t.Errorf("%d requests on a unary method: %v, want INTERNAL", n, err)
				}
				if server.Total() != before && path.name == "grpc" {
					t.Error("the call reached the backend")
				}
			})
		}
	}
}

// TestHostileRequests sends bodies that are meant to hurt. Each is refused with a 4xx, at once, and the mesh lives.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr)
	deep := strings.Repeat(`{"plan":`, 100_000)
	for name, body := range map[string]string{
		"deep objects":     deep,
		"deep arrays":      `{"text":` + strings.Repeat("[", 1_000_000),
		"deep struct":      `{"labels":` + strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000) + "}",
		"not JSON":         "text=hello",
		"not UTF-8":        "{\"text\":\"\xff\xfe\"}",
		"lone surrogate":   `{"text":"\ud800"}`,
		"two values":       `{"text":"a"}{"text":"b"}`,
		"duplicate key":    `{"text":"a","text":"b"}`,
		"huge number":      `{"number":1` + strings.Repeat("0", 100_000) + `}`,
		"huge exponent":    `{"number":1e999999999}`,
		"fraction":         `{"number":1.5}`,
		"unknown field":    `{"txt":"a"}`,
		"array":            `[]`,
		"above the limit":  `{"text":"` + strings.Repeat("x", 5<<20) + `"}`,
		"number for text":  `{"text":1}`,
		"null byte escape": `{"plan":"\u0000"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := patience(t)
			got := post(ctx, mesh.URL("/probe.v1.Probe/Ask"), body, nil)
			if got.code < 400 || got.code > 499 {
				t.Errorf("http: %v, want 4xx", got)
			}
			a, err := agent.NewHTTP(ctx, mesh.URL("/mcp"), agent.V20251125, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if json.Valid([]byte(body)) {
				res, err := agent.Call(ctx, a, "probe_ask", json.RawMessage(body), nil)
				if err == nil && !res.IsError {
					t.Errorf("mcp: %+v, want an error", res)
				}
			} else {
				envelope := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"probe_ask","arguments":` + body + `}}`
				got := post(ctx, mesh.URL("/mcp"), envelope, http.Header{"Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"}})
				if got.code == http.StatusInternalServerError || got.err != nil {
					t.Errorf("mcp: %v, want a JSON-RPC error", got)
				}
			}
		})
	}
	t.Cleanup(func() {
		if got := post(context.Background(), mesh.URL("/v1/probe/x:ask"), `{"text":"alive"}`, nil); got.body["text"] != "alive" {
			t.Errorf("after all: %v, want an answer", got)
		}
	})
}
