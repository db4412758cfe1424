package mcpadapter_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/mcpadapter"
)

// paths are two doors before the same backend: one as it is by default, one that leaves everything to the SDK.
type paths struct{ fast, sdk *mcpadapter.Adapter }

func newPaths(t testing.TB) paths {
	t.Helper()
	snapshot, err := catalog.Static("shop", compile(t, shopProto))
	if err != nil {
		t.Fatal(err)
	}
	cat := &mutableCatalog{}
	cat.current.Store(snapshot)
	conf := mcpadapter.Config{Catalog: cat, Handler: mirror, Version: "v<1>", Instructions: "Be kind & brief.", PageTools: 4, MaxStreamItems: 20, MaxResultBytes: 2000}
	p := paths{fast: mcpadapter.New(conf)}
	mcpadapter.SDKOnly(&conf)
	p.sdk = mcpadapter.New(conf)
	return p
}

// mirror is a backend without state: its answer follows from the request alone. The request of Get has the form of an order.
func mirror(stream grpc.ServerStream) error {
	m := call.FromContext(stream.Context()).Method
	var last *call.Frame
	for {
		f := &call.Frame{}
		if err := stream.RecvMsg(f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		last = f
		if m.Desc.Name() == "Chat" {
			if err := stream.SendMsg(f); err != nil {
				return err
			}
		}
		if !m.Kind().Client {
			break
		}
	}
	send := func(wire string) error { return stream.SendMsg(call.NewFrame(nil, []byte(wire))) }
	switch m.Desc.Name() {
	case "Get":
		return stream.SendMsg(last)
	case "Show":
		wire, err := proto.Marshal(shown)
		if err != nil {
			return err
		}
		return send(string(wire))
	case "Follow":
		for _, event := range followed {
			wire, err := proto.Marshal(event)
			if err != nil {
				return err
			}
			if err := send(string(wire)); err != nil {
				return err
			}
		}
		return nil
	case "Cancel":
		return askReason("")
	case "Import":
		return send("\x08\x02\x10\x07")
	case "Judge":
		st, err := status.New(codes.FailedPrecondition, "not now \"<&>\" \u2028").WithDetails(&errdetails.ErrorInfo{Reason: "R", Domain: "d", Metadata: map[string]string{"k": "v"}})
		if err != nil {
			return err
		}
		return st.Err()
	case "Picture":
		return send("\x0a\x09image/png\x12\x02ab")
	case "Watch":
		n, hang := 0, false
		if wire := last.Bytes(); len(wire) >= 2 && wire[0] == 0x08 {
			n, hang = int(wire[1]&0x7f), bytes.Contains(wire, []byte{0x10})
		}
		for range n {
			if err := send("\x08\x01\x12\x06a\n\"\\\xc3\xa4"); err != nil {
				return err
			}
		}
		if hang {
			return status.Error(codes.Aborted, "the stream broke")
		}
	}
	return nil
}

// overHTTP returns what came back, in a form in which equal answers are equal.
func (p paths) overHTTP(ctx context.Context, a *mcpadapter.Adapter, header http.Header, body []byte) string {
	return sealedState.ReplaceAllString(sessionID.ReplaceAllString(exchanged(ctx, a, header, body), "RANDOM"), `"requestState":"SEALED"`)
}

func exchanged(ctx context.Context, a *mcpadapter.Adapter, header http.Header, body []byte) string {
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", bytes.NewReader(body))
	req.Header = header.Clone()
	rec := httptest.NewRecorder()
	a.HTTPHandler().ServeHTTP(rec, req)
	var out strings.Builder
	fmt.Fprintln(&out, rec.Code)
	for _, name := range []string{"Content-Type", "Cache-Control", "Allow", "Mcp-Session-Id", "X-Accel-Buffering", "Vary"} {
		fmt.Fprintf(&out, "%s: %q\n", name, rec.Header().Values(name))
	}
	text := rec.Body.String()
	if rec.Header().Get("Content-Type") == "text/event-stream" {
		for event := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
			begin, data, _ := strings.Cut(event, "data: ")
			fmt.Fprintf(&out, "%q %s\n", begin, canonical(data))
		}
	} else {
		out.WriteString(canonical(text))
	}
	return out.String()
}

// overStdio begins a session with the line hello, unless it is empty, and then sends one message.
func (p paths) overStdio(t testing.TB, a *mcpadapter.Adapter, hello string, message []byte) string {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := a.ServeStdio(context.Background(), inR, outW)
		_ = outW.Close()
		done <- err
	}()
	lines := bufio.NewScanner(outR)
	lines.Buffer(nil, 16<<20)
	if hello != "" {
		_, _ = io.WriteString(inW, hello+"\n")
		if !lines.Scan() {
			t.Fatalf("no answer to %s: %v", hello, lines.Err())
		}
	}
	_, _ = inW.Write(append(bytes.ReplaceAll(message, []byte("\n"), []byte(" ")), '\n'))
	_ = inW.Close()
	var got []string
	for lines.Scan() {
		got = append(got, sessionID.ReplaceAllString(canonical(lines.Text()), "RANDOM"))
	}
	if err := <-done; err != nil {
		t.Errorf("ServeStdio() after %q = %v, want nil", message, err)
	}
	return strings.Join(got, "\n")
}

// canonical returns JSON in one form, with numbers as they are, and any other text quoted.
func canonical(text string) string {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil || dec.More() {
		return fmt.Sprintf("%q", text)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprintf("%q", text)
	}
	return out.String()
}

const modernMembers = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`

// messages are requests by their method and the rest of their params: what the fast path takes, and what it must leave alone.
var messages = []struct{ method, params string }{
	{"ping", ``},
	{"server/discover", ``},
	{"tools/list", ``},
	{"tools/list", `"cursor":""`},
	{"tools/list", `"cursor":"b3JkZXJz"`},
	{"tools/list", `"cursor":"\u0041"`},
	{"tools/list", `"cursor":1`},
	{"tools/list", `"other":1`},
	{"tools/call", ``},
	{"tools/call", `"name":""`},
	{"tools/call", `"name":null`},
	{"tools/call", `"name":"orders_gett"`},
	{"tools/call", `"name":"orders_\u0067et"`},
	{"tools/call", `"name":"orders_get"`},
	{"tools/call", `"name":"orders_get","name":"orders_watch"`},
	{"tools/call", `"name":"orders_get","arguments":null`},
	{"tools/call", `"name":"orders_get","arguments":[]`},
	{"tools/call", `"name":"orders_get","arguments":{"id":"9007199254740993","act":"a\"<\u00e4\ud83d\ude00\n>"}`},
	{"tools/call", `"name":"orders_get","arguments":{"id":9007199254740993}`},
	{"tools/call", `"name":"orders_get","arguments":{"id":1e400}`},
	{"tools/call", `"name":"orders_get","arguments":{"act":"\ud800"}`},
	{"tools/call", `"name":"orders_get","arguments":{"act":"` + strings.Repeat("x", 3000) + `"}`},
	{"tools/call", `"name":"orders_get","arguments":{"idd":1}`},
	{"tools/call", `"name":"orders_get","arguments":{"id":1,"id":2}`},
	{"tools/call", `"name":"orders_get","arguments":{"id":1},"inputResponses":{}`},
	{"tools/call", `"name":"orders_get","arguments":{"id":1},"requestState":"s"`},
	{"tools/call", `"name":"orders_get","arguments":{"id":1},"Name":"x"`},
	{"tools/call", `"name":"orders_judge","arguments":{}`},
	{"tools/call", `"name":"orders_picture"`},
	{"tools/call", `"name":"orders_watch","arguments":{"count":3}`},
	{"tools/call", `"name":"orders_watch","arguments":{"count":2,"breakAfter":1}`},
	{"tools/call", `"name":"orders_watch","arguments":{"count":40}`},
	{"tools/call", `"name":"orders_watch"`},
	{"tools/call", `"name":"orders_import","arguments":{"messages":[{"id":1},{}]}`},
	{"tools/call", `"name":"orders_import","arguments":{"message":[]}`},
	{"tools/call", `"name":"orders_chat","arguments":{"messages":[{"id":1},{"note":"x"}]}`},
	{"tools/call", `"name":"orders_show"`},
	{"tools/call", `"name":"orders_follow"`},
	{"tools/call", `"name":"orders_cancel","arguments":{"id":1}`},
	{"tools/call", `"name":"orders_cancel","arguments":{"id":1},"requestState":"forged"`},
	{"tools/call", `"name":"orders_cancel","arguments":{"id":1},"inputResponses":{"reason":7}`},
}

// metas are what is in _meta besides the version; "-" stands for no _meta at all.
var metas = []string{
	`-`, ``,
	`"progressToken":"a"`, `"progressToken":0`, `"progressToken":-0`, `"progressToken":1.5`, `"progressToken":9007199254740993`, `"progressToken":1.0`, `"progressToken":1e2`, `"progressToken":1e400`, `"progressToken":null`, `"progressToken":true`,
	`"progressToken":"\u0061"`, `"progressToken":1,"progressToken":2`,
	`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","idempotency-key":"k"`,
	`"traceparent":1`, `"other":{"a":[1,null,"x"]}`, `"other":1e400`,
	`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}`,
	`"io.modelcontextprotocol/clientInfo":{"name":1}`, `"io.modelcontextprotocol/clientInfo":null`,
	`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1","icons":[{"src":"x","sizes":["1x1"],"theme":"dark"}],"websiteUrl":"u"}`,
	`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1","icons":[{"src":"x","sizes":"1x1"}]}`,
	`"io.modelcontextprotocol/logLevel":"debug"`, `"io.modelcontextprotocol/logLevel":7`,
}

// versions are what the header and _meta say.
var versions = []struct{ header, members string }{
	{"", ``}, {"2025-06-18", ``}, {"2025-11-25", ``}, {"2024-11-05", ``}, {"2030-01-01", ``},
	{"2026-07-28", ``},
	{"2026-07-28", modernMembers + `{}`},
	{"2026-07-28", modernMembers + `{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"extensions":{"x/y":{"z":1}},"experimental":{}}`},
	{"2026-07-28", modernMembers + `null`},
	{"2026-07-28", modernMembers + `{"roots":[]}`},
	{"2026-07-28", modernMembers + `{"extensions":7}`},
	{"2026-07-28", modernMembers + `{"unknown":7}`},
	{"2026-07-28", `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`},
	{"2025-11-25", modernMembers + `{}`},
	{"2026-07-28", `"io.modelcontextprotocol/protocolVersion":"2025-11-25","io.modelcontextprotocol/clientCapabilities":{}`},
	{"", modernMembers + `{}`},
}

var accepts = []string{"", "application/json", "application/json, text/event-stream", "text/event-stream", "text/html"}

func message(id, method, params, meta, members string) []byte {
	if meta != "-" || members != "" {
		both := strings.Trim(members+","+strings.TrimPrefix(meta, "-"), ",")
		params = strings.Trim(params+`,"_meta":{`+both+`}`, ",")
	}
	if params != "" {
		params = `,"params":{` + params + `}`
	}
	return []byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"` + params + `}`)
}

func headerOf(version, method, params, accept string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Mcp-Method": {method}}
	if version != "" {
		h.Set("Mcp-Protocol-Version", version)
	}
	if _, after, ok := strings.Cut(params, `"name":"`); ok {
		name, _, _ := strings.Cut(after, `"`)
		h.Set("Mcp-Name", strings.ReplaceAll(name, `\u0067`, "g"))
	}
	if accept != "" {
		h.Set("Accept", accept)
	}
	return h
}

// TestPathsAgree compares the two paths over HTTP: each method, version and Accept, each kind of params and each kind of _meta, by twos.
func TestPathsAgree(t *testing.T) {
	p := newPaths(t)
	compared, fast := 0, 0
	compare := func(header http.Header, body []byte) {
		t.Helper()
		compared++
		if p.fast.TakesFastPath(header, body) {
			fast++
		}
		want, got := p.overHTTP(t.Context(), p.sdk, header, body), p.overHTTP(t.Context(), p.fast, header, body)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v\n%.300s\n(-SDK +fast path):\n%s", header, body, diff)
		}
	}
	for _, v := range versions {
		for _, m := range messages {
			for _, accept := range accepts {
				compare(headerOf(v.header, m.method, m.params, accept), message(`1`, m.method, m.params, "-", v.members))
			}
		}
		for _, meta := range metas {
			for _, m := range []int{0, 1, 2, 13, 29, 30, len(messages) - 4} {
				m := messages[m]
				compare(headerOf(v.header, m.method, m.params, accepts[2]), message(`"i"`, m.method, m.params, meta, v.members))
			}
		}
	}
	for _, id := range []string{`0`, `-0`, `7`, `-1.5`, `1e3`, `9007199254740993`, `1e400`, `""`, `"a"`, `"\u00e4 \"q\""`, `"\ud800"`, `"\u2028<"`, `null`, `true`, `{}`} {
		for _, m := range []int{0, 2, 13} {
			m := messages[m]
			compare(headerOf("", m.method, m.params, ""), message(id, m.method, m.params, "-", ""))
		}
	}
	if fast < compared/8 {
		t.Errorf("%d of %d messages took the fast path, which are too few to show anything", fast, compared)
	}
}

// TestFastPathIsTaken pins that what clients commonly send needs no SDK.
func TestFastPathIsTaken(t *testing.T) {
	p := newPaths(t)
	for _, version := range []string{"", "2025-06-18", "2025-11-25", "2026-07-28"} {
		members := ""
		if version == "2026-07-28" {
			members = modernMembers + `{"elicitation":{"form":{}}},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1","icons":[{"src":"x","sizes":["1x1"]}]}`
		}
		for _, m := range []struct{ method, params string }{
			{"ping", ``},
			{"server/discover", ``},
			{"tools/list", ``},
			{"tools/list", `"cursor":"b3JkZXJz"`},
			{"tools/call", `"name":"orders_get","arguments":{"id":"7","act":"\u00e4\ud83d\ude00"}`},
			{"tools/call", `"name":"orders_watch"`},
			{"tools/call", `"name":"nothing"`},
		} {
			if m.method == "ping" && members != "" || m.method == "server/discover" && members == "" {
				continue // the version does not have it
			}
			for _, meta := range []string{"-", `"progressToken":3`, `"io.modelcontextprotocol/logLevel":"info"`, `"progressToken":"p","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","some/thing":{"a":1}`} {
				body := message(`1`, m.method, m.params, meta, members)
				header := headerOf(version, m.method, m.params, accepts[2])
				header.Set("Mcp-Session-Id", "caller-ABCDEFGHIJKLMNOPQRSTUVWXYZ")
				if !p.fast.TakesFastPath(header, body) {
					t.Errorf("%s does not take the fast path: %s", version, body)
				}
			}
		}
	}
}

// TestPathsAgreeOnHeaders varies the headers of a good call of 2026-07-28 and of an older one.
func TestPathsAgreeOnHeaders(t *testing.T) {
	p := newPaths(t)
	const params = `"name":"orders_get","arguments":{"id":1}`
	for name, values := range map[string][]string{
		"Mcp-Method":     {"", "tools/list", "Tools/Call", " tools/call"},
		"Mcp-Name":       {"", "orders_watch", "ORDERS_GET", "=?base64?b3JkZXJzX2dldA==?=", "=?base64?b3JkZXJzX3dhdGNo?=", "=?base64?!?=", "=?base64?/w==?=", "=?base64?b3JkZXJzX2dldA==", "=?BASE64?b3JkZXJzX2dldA==?="},
		"Content-Type":   {"", "application/json; charset=utf-8", "application/json; charset", "APPLICATION/JSON", "application/json;", "text/json", "application/jsonx"},
		"Last-Event-Id":  {"", "x"},
		"Mcp-Session-Id": {"", "x", "caller-ABCDEFGHIJKLMNOPQRSTUVWXYZ", "caller-abcdefghijklmnopqrstuvwxyz"},
		"Mcp-Param-Id":   {"1"},
		"Accept":         {"*/*", "text/*", "application/*;q=0.1", "application/json;q=1, text/event-stream;q=0.5", ","},
		"Origin":         {"https://evil.example.com", "null"},
	} {
		for _, value := range values {
			for _, version := range []string{"2025-11-25", "2026-07-28"} {
				members := map[string]string{"2026-07-28": modernMembers + `{}`}[version]
				header := headerOf(version, "tools/call", params, accepts[2])
				header.Set(name, value)
				body := message(`1`, "tools/call", params, "-", members)
				if diff := cmp.Diff(p.overHTTP(t.Context(), p.sdk, header, body), p.overHTTP(t.Context(), p.fast, header, body)); diff != "" {
					t.Errorf("%s: %q, %s (-SDK +fast path):\n%s", name, value, version, diff)
				}
			}
		}
	}
	header := headerOf("2026-07-28", "tools/call", params, "")
	header.Set("Mcp-Name", "=?base64?b3JkZXJzX2dldA==?=")
	body := message(`1`, "tools/call", params, "-", modernMembers+`{}`)
	if got := p.overHTTP(t.Context(), p.sdk, header, body); !strings.HasPrefix(got, "200") || !p.fast.TakesFastPath(header, body) {
		t.Errorf("a name in base64 is not taken: %s", got)
	}
}

const discoverLine = `{"jsonrpc":"2.0","id":"hello","method":"server/discover","params":{"_meta":{` + modernMembers + `{}}}}`

// TestPathsAgreeOnStdio compares the two paths over stdio, in sessions that began in each way.
func TestPathsAgreeOnStdio(t *testing.T) {
	p := newPaths(t)
	for _, hello := range []string{"", helloLine, strings.Replace(helloLine, "2025-11-25", "2025-06-18", 1), discoverLine} {
		compare := func(body []byte) {
			t.Helper()
			if diff := cmp.Diff(p.overStdio(t, p.sdk, hello, body), p.overStdio(t, p.fast, hello, body)); diff != "" {
				t.Errorf("%s\n%.300s\n(-SDK +fast path):\n%s", hello, body, diff)
			}
		}
		for _, members := range []string{"", modernMembers + `{}`, modernMembers + `7`, `"io.modelcontextprotocol/protocolVersion":"2025-11-25"`} {
			for _, m := range messages {
				compare(message(`"hello"`, m.method, m.params, "-", members))
			}
			for _, meta := range metas {
				compare(message(`1`, messages[29].method, messages[29].params, meta, members))
			}
		}
		for _, id := range []string{`0`, `-0`, `-1.5`, `9007199254740993`, `"\u00e4 \"q\""`, `"\ud800"`, `null`} {
			compare(message(id, "ping", "", "-", ""))
		}
	}
}

// FuzzFastPathParts puts requests together from parts, so that most of them are nearly right.
func FuzzFastPathParts(f *testing.F) {
	for i, meta := range metas {
		f.Add(uint8(i), uint8(i), `1`, messages[i].params, meta, `{"roots":{"listChanged":true},"sampling":{"tools":{}}}`, `{"name":"t","version":"1"}`)
	}
	f.Add(uint8(2), uint8(13), `-0`, `"name":"orders_watch","arguments":{"count":2}`, `"idempotency-key":"k"`, `{"extensions":{"a":null}}`, `{"title":"\ud83d\ude00"}`)
	p := newPaths(f)
	f.Fuzz(func(t *testing.T, version, method uint8, id, params, meta, capabilities, clientInfo string) {
		v := []string{"", "2025-11-25", "2026-07-28"}[version%3]
		m := messages[int(method)%len(messages)].method
		members := `"io.modelcontextprotocol/clientInfo":` + clientInfo
		if v == "2026-07-28" {
			members = modernMembers + capabilities + "," + members
		}
		body := message(id, m, params, meta, members)
		header := headerOf(v, m, params, accepts[int(version/3)%len(accepts)])
		if p.fast.TakesFastPath(header, body) {
			if diff := cmp.Diff(p.overHTTP(t.Context(), p.sdk, header, body), p.overHTTP(t.Context(), p.fast, header, body)); diff != "" {
				t.Errorf("%v\n%q\n(-SDK +fast path):\n%s", header, body, diff)
			}
		}
	})
}

// FuzzFastPath compares the two paths on whatever comes, over HTTP and over stdio.
func FuzzFastPath(f *testing.F) {
	for i, m := range messages {
		v := versions[i%len(versions)]
		f.Add(message(`1`, m.method, m.params, metas[i%len(metas)], v.members), v.header, m.method, "orders_get", accepts[i%len(accepts)], "")
		f.Add(message(`1`, m.method, m.params, "-", versions[6].members), "2026-07-28", m.method, "orders_get", accepts[2], "")
	}
	p := newPaths(f)
	f.Fuzz(func(t *testing.T, body []byte, version, method, name, accept, session string) {
		fits, isJSON := mcpadapter.FitsFastPath(body)
		if isJSON != json.Valid(body) && len(body) < 1000 { // beyond is a question of depth
			t.Errorf("%q is JSON: %t, want %t", body, isJSON, !isJSON)
		}
		if bytes.Contains(body, []byte("listen")) {
			return // subscriptions/listen waits for changes, and there are none
		}
		header := http.Header{"Content-Type": {"application/json"}, "Mcp-Method": {method}, "Mcp-Name": {name}}
		for key, value := range map[string]string{"Mcp-Protocol-Version": version, "Accept": accept, "Mcp-Session-Id": session} {
			if value != "" {
				header.Set(key, value)
			}
		}
		if p.fast.TakesFastPath(header, body) {
			if diff := cmp.Diff(p.overHTTP(t.Context(), p.sdk, header, body), p.overHTTP(t.Context(), p.fast, header, body)); diff != "" {
				t.Errorf("%v\n%q\n(-SDK +fast path):\n%s", header, body, diff)
			}
		}
		if !fits {
			return
		}
		for _, hello := range []string{helloLine, discoverLine} {
			if diff := cmp.Diff(p.overStdio(t, p.sdk, hello, body), p.overStdio(t, p.fast, hello, body)); diff != "" {
				t.Errorf("%s\n%q\n(-SDK +fast path):\n%s", hello, body, diff)
			}
		}
	})
}

// TestPanicEndsComments pins that nothing is written to a response whose handler has panicked, which net/http recovers from.
func TestPanicEndsComments(t *testing.T) {
	snapshot := snapshotOf(t, shopProto)
	synctest.Test(t, func(t *testing.T) {
		cat := &mutableCatalog{}
		cat.current.Store(snapshot)
		door := mcpadapter.New(mcpadapter.Config{Catalog: cat, Handler: func(grpc.ServerStream) error { panic("a fault in the chain") }}).HTTPHandler()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(callLine("1", "")))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {accepts[2]}}
		rec := &timedRecorder{header: http.Header{}, began: time.Now()}
		func() {
			defer func() { _ = recover() }()
			door.ServeHTTP(rec, req)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		rec.mu.Lock()
		defer rec.mu.Unlock()
		if len(rec.writes) > 0 {
			t.Errorf("after the panic: %+v, want nothing", rec.writes)
		}
	})
}
