package mcpadapter_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/mcpadapter"
)

// post sends a message by hand and returns the open response.
func post(ctx context.Context, t *testing.T, url, message string, header map[string]string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func closed(t *testing.T, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// TestCloseCancels pins that closing the response of a call ends it at the backend, in every version without a session.
func TestCloseCancels(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		w := newWorld(t, path)
		url := w.serve()
		for _, tc := range []struct {
			version, meta string
			accept        string
		}{
			{"2025-06-18", `"_meta":{}`, "application/json"},
			{"2025-06-18", `"_meta":{}`, "application/json, text/event-stream"},
			{"2025-11-25", `"_meta":{"progressToken":1}`, "application/json, text/event-stream"},
			{"2026-07-28", modernMeta, "application/json, text/event-stream"},
			{"2026-07-28", modernMeta, "application/json"},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(
					`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"orders_watch","arguments":{"count":1,"hang":true},`+tc.meta+`}}`))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {tc.accept}, "Mcp-Protocol-Version": {tc.version}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"orders_watch"}}
				if res, err := http.DefaultClient.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
			}()
			await(t, "the call at the backend", w.hung)
			cancel()
			await(t, "the cancellation at the backend", w.ended)
			<-gone
		}
	})
}

// TestCancelNotice pins how a client of an older version cancels: with a notice beside the open call. Only its own very id counts.
func TestCancelNotice(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		for _, sessions := range []bool{false, true} {
			w := newWorld(t, func(c *mcpadapter.Config) { path(c); c.Sessions = sessions })
			url := w.serve()
			session := func() string {
				res := post(t.Context(), t, url, helloLine, nil)
				closed(t, res)
				return res.Header.Get("Mcp-Session-Id")
			}
			own, foreign := session(), session()
			done := make(chan string, 1)
			go func() {
				done <- closed(t, post(t.Context(), t, url, callLine("7", "hang"), map[string]string{"Mcp-Session-Id": own}))
			}()
			await(t, "the call at the backend", w.hung)
			notice := func(session, id string) {
				res := post(t.Context(), t, url, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`, map[string]string{"Mcp-Session-Id": session})
				if closed(t, res); res.StatusCode != http.StatusAccepted {
					t.Errorf("status of a notice = %d, want 202", res.StatusCode)
				}
			}
			notice(foreign, "7")
			notice(own, `"7"`)
			notice(own, "8")
			if len(w.ended) > 0 {
				t.Error("another id or client cancelled the call")
			}
			notice(own, "7")
			await(t, "the cancellation at the backend", w.ended)
			await(t, "the end of the call", done)
		}
	})
}

// TestReplicas pins that without sessions any instance serves any request of a client.
func TestReplicas(t *testing.T) {
	a, b := newWorld(t, nil).serve(), newWorld(t, nil).serve()
	res := post(t.Context(), t, a, helloLine, nil)
	closed(t, res)
	header := map[string]string{"Mcp-Protocol-Version": "2025-11-25", "Mcp-Session-Id": res.Header.Get("Mcp-Session-Id")}
	for _, step := range []struct{ url, message, want string }{
		{b, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""},
		{b, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"orders_get"`},
		{a, callLine("2", ""), `"note":"fine"`},
		{b, callLine("3", ""), `"note":"fine"`},
	} {
		if body := closed(t, post(t.Context(), t, step.url, step.message, header)); !strings.Contains(body, step.want) {
			t.Errorf("%s = %s, want %s", step.message, body, step.want)
		}
	}
	del := func(url string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Mcp-Session-Id", header["Mcp-Session-Id"])
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		closed(t, res)
		return res.StatusCode
	}
	if got := del(b); got != http.StatusNoContent {
		t.Errorf("DELETE at the other instance = %d, want 204", got)
	}
	for url, want := range map[string]int{a: http.StatusOK, b: http.StatusNotFound} {
		res := post(t.Context(), t, url, callLine("4", ""), header)
		if body := closed(t, res); res.StatusCode != want || !strings.Contains(body, `"jsonrpc":"2.0","id":4,`) {
			t.Errorf("call after DELETE = %d %s, want %d; only the instance that was told knows of it", res.StatusCode, body, want)
		}
	}
	for _, want := range []int{http.StatusNoContent, http.StatusNotFound} {
		if got := del(a); got != want {
			t.Errorf("DELETE = %d, want %d", got, want)
		}
	}
}

// TestEndedIsBounded pins that an instance remembers 1,024 ended ids and no more.
func TestEndedIsBounded(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		door := newWorld(t, path).adapter.HTTPHandler()
		send := func(method string, n int) int {
			req := httptest.NewRequestWithContext(t.Context(), method, "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
			id := strings.NewReplacer("0", "A", "1", "B", "8", "C", "9", "D").Replace(fmt.Sprintf("%026d", n))
			req.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Session-Id": {"caller-" + id}}
			rec := httptest.NewRecorder()
			door.ServeHTTP(rec, req)
			return rec.Code
		}
		for n := range 1025 {
			if got := send(http.MethodDelete, n); got != http.StatusNoContent {
				t.Fatalf("DELETE of id %d = %d, want 204", n, got)
			}
		}
		for n, want := range map[int]int{0: http.StatusOK, 1: http.StatusNotFound, 1024: http.StatusNotFound} {
			if got := send(http.MethodPost, n); got != want {
				t.Errorf("POST with id %d = %d, want %d", n, got, want)
			}
		}
	})
}

// TestSessions pins the session mode: an id that was not handed out, and one that was ended, is unknown.
func TestSessions(t *testing.T) {
	w := newWorld(t, func(c *mcpadapter.Config) { c.Sessions = true })
	url := w.serve()
	res := post(t.Context(), t, url, helloLine, nil)
	closed(t, res)
	session := res.Header.Get("Mcp-Session-Id")
	list := func(session string) (int, string) {
		res := post(t.Context(), t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, map[string]string{"Mcp-Session-Id": session})
		return res.StatusCode, closed(t, res)
	}
	if status, body := list(session); status != http.StatusOK || !strings.Contains(body, "orders_get") {
		t.Errorf("list in a session = %d %s", status, body)
	}
	if status, body := list("gone"); status != http.StatusNotFound || !strings.Contains(body, `"jsonrpc":"2.0","id":1,"error"`) {
		t.Errorf("list in an unknown session = %d %s, want 404 and a JSON-RPC error", status, body)
	}
	del, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	del.Header.Set("Mcp-Session-Id", session)
	ended, err := http.DefaultClient.Do(del)
	if err != nil {
		t.Fatal(err)
	}
	if closed(t, ended); ended.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE = %d, want 204", ended.StatusCode)
	}
	if status, _ := list(session); status != http.StatusNotFound {
		t.Errorf("list in an ended session = %d, want 404", status)
	}
	// Clients of 2026-07-28 have no session there either.
	res = post(t.Context(), t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`, map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"})
	if body := closed(t, res); res.StatusCode != http.StatusOK || !strings.Contains(body, `"cacheScope":"private"`) {
		t.Errorf("modern list beside sessions = %d %s", res.StatusCode, body)
	}
}

// TestCancelInASession pins that a call in a session is not answered after it was cancelled, in either form.
func TestCancelInASession(t *testing.T) {
	for _, accept := range []string{"application/json, text/event-stream", "application/json"} {
		w := newWorld(t, func(c *mcpadapter.Config) { c.Sessions = true })
		url := w.serve()
		res := post(t.Context(), t, url, helloLine, nil)
		closed(t, res)
		header := map[string]string{"Mcp-Session-Id": res.Header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": "2025-11-25", "Accept": accept}
		answers := make(chan string, 1)
		go func() { answers <- closed(t, post(t.Context(), t, url, callLine("7", "hang"), header)) }()
		await(t, "the call at the backend", w.hung)
		closed(t, post(t.Context(), t, url, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, header))
		await(t, "the cancellation at the backend", w.ended)
		if answer := await(t, "the end of the call", answers); strings.Contains(answer, `"jsonrpc"`) {
			t.Errorf("with Accept: %s: a cancelled call is answered: %s", accept, answer)
		}
		if answer := closed(t, post(t.Context(), t, url, callLine("7", ""), header)); !strings.Contains(answer, `"result"`) {
			t.Errorf("the next call under the same id = %s, want its result", answer)
		}
	}
}

// TestSilence runs a long silent call in bubble time: with a token there is progress at least every 20 seconds, without there is
// none, and the stream has comments either way.
func TestSilence(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		for _, token := range []string{"", `"_meta":{"progressToken":0}`} {
			synctest.Test(t, func(t *testing.T) {
				handler := func(stream grpc.ServerStream) error {
					time.Sleep(89 * time.Second)
					return status.Error(codes.DeadlineExceeded, "too long")
				}
				cat := &mutableCatalog{}
				cat.current.Store(snapshotOf(t, shopProto))
				conf := mcpadapter.Config{Catalog: cat, Handler: handler, Rules: call.NewRules(nil)}
				path(&conf)
				adapter := mcpadapter.New(conf)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(
					`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"orders_get","arguments":{}`+strings.TrimSuffix(","+token, ",")+`}}`))
				if err != nil {
					t.Fatal(err)
				}
				req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
				rec := &timedRecorder{header: http.Header{}, began: time.Now()}
				adapter.HTTPHandler().ServeHTTP(rec, req)

				last, lastProgress, progress, comments := time.Duration(0), time.Duration(0), 0.0, 0
				for _, wrote := range rec.writes {
					if gap := wrote.at - last; gap > 20*time.Second {
						t.Errorf("nothing was written for %s before %q", gap, wrote.text)
					}
					last = wrote.at
					if strings.HasPrefix(wrote.text, ":") {
						comments++
						continue
					}
					var msg struct {
						Method string `json:"method"`
						Params struct {
							ProgressToken *float64 `json:"progressToken"`
							Progress      float64  `json:"progress"`
						} `json:"params"`
					}
					for line := range strings.Lines(wrote.text) {
						if data, ok := strings.CutPrefix(line, "data: "); ok {
							if err := json.Unmarshal([]byte(data), &msg); err != nil {
								t.Fatal(err)
							}
						}
					}
					if msg.Method == "" {
						continue
					}
					if msg.Params.Progress <= progress || msg.Params.ProgressToken == nil || *msg.Params.ProgressToken != 0 || wrote.at-lastProgress > 20*time.Second {
						t.Errorf("progress %v after %v, %s after the last: %s", msg.Params.Progress, progress, wrote.at-lastProgress, wrote.text)
					}
					progress, lastProgress = msg.Params.Progress, wrote.at
				}
				if (progress > 0) != (token != "") || comments < 4 {
					t.Errorf("token %q: progress up to %v, %d comments", token, progress, comments)
				}
				if end := rec.writes[len(rec.writes)-1]; end.at != 89*time.Second || !strings.Contains(end.text, "DEADLINE_EXCEEDED") {
					t.Errorf("last write = %+v, want the result after 89s", end)
				}
			})
		}
	})
}

// TestStreamBegins pins that a client which asked for progress on a stream hears at once that its call was taken, before the backend says anything.
func TestStreamBegins(t *testing.T) {
	for _, d := range doors {
		if d.stdio {
			continue
		}
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			w := newWorld(t, func(c *mcpadapter.Config) {
				c.Sessions = d.session
				if d.sdkOnly {
					mcpadapter.SDKOnly(c)
				}
			})
			url := w.serve()
			header, members := map[string]string{"Mcp-Protocol-Version": d.version, "Mcp-Method": "tools/call", "Mcp-Name": "orders_watch"}, ""
			if d.version == "2026-07-28" {
				members = modernMembers + `{}`
			}
			if d.session {
				hello := post(t.Context(), t, url, helloLine, nil)
				closed(t, hello)
				header["Mcp-Session-Id"] = hello.Header.Get("Mcp-Session-Id")
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			// post returns when the header is there, and the backend sends nothing until it is cancelled.
			res := post(ctx, t, url, string(message(`1`, "tools/call", `"name":"orders_watch","arguments":{"hang":true}`, `"progressToken":1`, members)), header)
			await(t, "the call", w.hung)
			if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("header = %d %v, want that of a stream", res.StatusCode, res.Header)
			}
			if d.session { // where the call goes on without its stream, to be resumed
				closed(t, post(t.Context(), t, url, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, header))
			}
			cancel()
			_ = res.Body.Close()
			await(t, "the cancellation at the backend", w.ended)
			// What is no stream keeps its status and length.
			header["Mcp-Name"] = "orders_gone"
			bad := post(t.Context(), t, url, string(message(`2`, "tools/call", `"name":"orders_gone"`, `"progressToken":1`, members)), header)
			if body := closed(t, bad); !strings.Contains(body, `"code":-32602`) || strings.Contains(body, ": taken") {
				t.Errorf("call of an unknown tool = %d %s", bad.StatusCode, body)
			}
		})
	}
}

// timedRecorder is a response that notes when it was written to.
type timedRecorder struct {
	header http.Header
	began  time.Time

	mu     sync.Mutex
	writes []timedWrite
}

type timedWrite struct {
	at   time.Duration
	text string
}

func (r *timedRecorder) Header() http.Header { return r.header }
func (r *timedRecorder) WriteHeader(int)     {}
func (r *timedRecorder) Flush()              {}
func (r *timedRecorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, timedWrite{time.Since(r.began), string(p)})
	return len(p), nil
}

// TestEventsAreFlushed reads a stream while the call runs.
func TestEventsAreFlushed(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		w := newWorld(t, path)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		res := post(ctx, t, w.serve(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"orders_watch","arguments":{"count":1,"hang":true},"_meta":{"progressToken":"p"}}}`, nil)
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() && !strings.Contains(lines.Text(), `"progress":1`) {
			continue
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
		await(t, "the call at the backend", w.hung)
		cancel()
		await(t, "the cancellation at the backend", w.ended)
	})
}

// TestDrain pins that streams that wait for changes end, and that calls do not.
func TestDrain(t *testing.T) {
	w := newWorld(t, func(c *mcpadapter.Config) { c.Sessions = true })
	url := w.serve()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listen := post(ctx, t, url, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+modernMeta+`}}`,
		map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"})
	hello := post(ctx, t, url, helloLine, nil)
	closed(t, hello)
	get, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	get.Header = http.Header{"Accept": {"text/event-stream"}, "Mcp-Session-Id": {hello.Header.Get("Mcp-Session-Id")}}
	stream, err := http.DefaultClient.Do(get)
	if err != nil {
		t.Fatal(err)
	}
	call := post(ctx, t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"orders_watch","arguments":{"count":1,"hang":true},"_meta":{"progressToken":1,`+
		strings.TrimPrefix(modernMeta, `"_meta":{`)+`}}`, map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "orders_watch"})
	defer call.Body.Close()
	await(t, "the call at the backend", w.hung)
	w.adapter.Drain()
	if body := closed(t, listen); !strings.Contains(body, "notifications/subscriptions/acknowledged") {
		t.Errorf("listen = %q, want an acknowledgement", body)
	}
	closed(t, stream)
	if len(w.ended) > 0 {
		t.Error("Drain ended a call")
	}
	cancel()
	await(t, "the cancellation at the backend", w.ended)
}

// TestHeaders pins which headers of an HTTP caller reach the backend, and in which form.
func TestHeaders(t *testing.T) {
	w := newWorld(t, nil)
	body := closed(t, post(t.Context(), t, w.serve(), callLine("1", ""), map[string]string{
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Idempotency-Key": "k", "X-Request-Id": "bad\xff",
		"X-Grpc-Test-Echo-Trailing-Bin": "AQI=", "X-Grpc-Test-Echo-Initial": "plain",
		"Authorization": "Bearer x", "Cookie": "a=b", "Grpc-Metadata-X-User-Id": "admin", "X-User-Id": "admin", "X-Forwarded-For": "1.2.3.4", "X-Other": "y",
	}))
	if !strings.Contains(body, "fine") {
		t.Fatalf("call = %s", body)
	}
	md := *w.seen.Load()
	for key, want := range map[string]string{
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "idempotency-key": "k",
		"x-grpc-test-echo-trailing-bin": "\x01\x02", "x-grpc-test-echo-initial": "plain",
		"x-request-id": "", "authorization": "", "cookie": "", "grpc-metadata-x-user-id": "", "x-user-id": "", "x-forwarded-for": "", "x-other": "", "mcp-protocol-version": "",
	} {
		if got := strings.Join(md.Get(key), ","); got != want {
			t.Errorf("%s at the backend = %q, want %q", key, got, want)
		}
	}
	body = closed(t, post(t.Context(), t, w.serve(), callLine("1", ""), map[string]string{"X-Grpc-Test-Echo-Trailing-Bin": "not base64!"}))
	if got := w.seen.Load().Get("x-grpc-test-echo-trailing-bin"); !strings.Contains(body, "fine") || got != nil {
		t.Errorf("bad base64 reached the backend as %q, or failed the call: %s", got, body)
	}
}
