package relay_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolway/toolway/internal/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is an agent host's side of a relay.
type host struct {
	t    *testing.T
	in   *io.PipeWriter
	out  chan string
	done chan error
}

// start begins to relay to the mesh that answers with handler, or to url.
func start(t *testing.T, handler http.HandlerFunc, change func(*relay.Config)) *host {
	t.Helper()
	conf := relay.Config{Logger: slog.New(slog.DiscardHandler), Retry: 10 * time.Second}
	if handler != nil {
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		conf.URL = s.URL + "/mcp"
	}
	if change != nil {
		change(&conf)
	}
	r, err := relay.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	h := &host{t: t, in: inW, out: make(chan string, 100), done: make(chan error, 1)}
	go func() {
		err := r.Run(context.Background(), inR, outW)
		outW.Close()
		h.done <- err
	}()
	var reading sync.WaitGroup
	reading.Go(func() {
		s := bufio.NewScanner(outR)
		s.Buffer(nil, 64<<20)
		for s.Scan() {
			h.out <- s.Text()
		}
	})
	t.Cleanup(func() {
		inW.Close()
		if err := <-h.done; err != nil {
			t.Errorf("Run() = %v, want nil when the input ends", err)
		}
		reading.Wait()
	})
	return h
}

func (h *host) say(line string) {
	h.t.Helper()
	if _, err := io.WriteString(h.in, line+"\n"); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) hear() string {
	h.t.Helper()
	select {
	case line := <-h.out:
		return line
	case <-time.After(30 * time.Second):
		h.t.Fatal("the host heard nothing within 30 seconds")
		return ""
	}
}

// request is a JSON-RPC message as the mesh reads it.
type request struct {
	ID     json.RawMessage
	Method string
	Params struct{ Name string }
}

func read(r *http.Request) request {
	var m request
	_ = json.NewDecoder(r.Body).Decode(&m)
	return m
}

func result(w http.ResponseWriter, id json.RawMessage, text string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"text":%q}}`, id, text)
}

const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func callOf(id, name string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":{},` + modern + `}}`
}

func TestHeadersAndIDs(t *testing.T) {
	heads := make(chan http.Header, 10)
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		heads <- r.Header.Clone()
		m := read(r)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "{\n  \"jsonrpc\": \"2.0\",\n  \"id\": %s, \"result\": {}\n}", m.ID)
	}, func(c *relay.Config) {
		c.Credential = func(h http.Header) error { h.Set("Authorization", "Bearer t"); return nil }
	})
	for _, id := range []string{"9007199254740993", `"a b"`, "1.50"} {
		h.say(callOf(id, "größe"))
		if got := h.hear(); got != `{"jsonrpc":"2.0","id":`+id+`,"result":{}}` {
			t.Errorf("answer %s, want one line with the id as it was", got)
		}
		head := <-heads
		for k, want := range map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "=?base64?Z3LDtsOfZQ==?=", "Authorization": "Bearer t", "Mcp-Session-Id": ""} {
			if head.Get(k) != want {
				t.Errorf("%s: %q, want %q", k, head.Get(k), want)
			}
		}
	}
}

func TestBadLines(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) { result(w, read(r).ID, "") }, nil)
	for _, line := range []string{`{"jsonrpc":`, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `"x"`} {
		h.say(line)
		if got := h.hear(); !strings.Contains(got, `"code":-32700`) {
			t.Errorf("after %s: %s, want a parse error", line, got)
		}
	}
}

func TestEvents(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		m := read(r)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, ": hello\n\ndata: garbage\n\ndata:   \n\nid: 1\ndata:\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\ndata: \"params\":{}}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\r\n\r\n", m.ID)
	}, nil)
	h.say(callOf("7", "x"))
	if got := h.hear(); got != `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}` {
		t.Errorf("notice %s, want it on one line", got)
	}
	if got := h.hear(); got != `{"jsonrpc":"2.0","id":7,"result":{}}` {
		t.Errorf("answer %s", got)
	}
}

// TestUnknownOutcome breaks the connection while a call is under way: a call of a tool is not sent again, a list is.
func TestUnknownOutcome(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		m := read(r)
		mu.Lock()
		seen[m.Method]++
		n := seen[m.Method]
		mu.Unlock()
		if m.Method == "tools/call" || n == 1 {
			panic(http.ErrAbortHandler)
		}
		result(w, m.ID, "second")
	}, nil)
	h.say(callOf("1", "x"))
	if got := h.hear(); !strings.Contains(got, `"isError":true`) || !strings.Contains(got, "whether it took effect is not known") || !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("a call whose connection broke: %s, want a tool error that says so", got)
	}
	h.say(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{` + modern + `}}`)
	if got := h.hear(); !strings.Contains(got, "second") {
		t.Errorf("a list whose connection broke: %s, want it sent again", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if seen["tools/call"] != 1 || seen["tools/list"] != 2 {
		t.Errorf("the mesh saw %v, want one call and two lists", seen)
	}
}

// TestMeshComesLater has a mesh that is not there yet. A call that was never sent may wait for it.
func TestMeshComesLater(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	tries := make(chan struct{}, 1000)
	h := start(t, nil, func(c *relay.Config) {
		c.URL = "http://" + addr + "/mcp"
		c.Retry = time.Minute
		c.Credential = func(http.Header) error { tries <- struct{}{}; return nil }
	})
	h.say(callOf("1", "x"))
	<-tries
	<-tries // it was refused once
	if l, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { result(w, read(r).ID, "there") })}}
	s.Start()
	defer s.Close()
	if got := h.hear(); !strings.Contains(got, "there") {
		t.Errorf("answer %s, want that of the mesh that came later", got)
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, id json.RawMessage)
		want   string
	}{
		"401":       {func(w http.ResponseWriter, _ json.RawMessage) { w.WriteHeader(http.StatusUnauthorized) }, "TOOLWAY_TOKEN"},
		"403 plain": {func(w http.ResponseWriter, _ json.RawMessage) { w.WriteHeader(http.StatusForbidden) }, "does not allow"},
		"403 of the protocol": {func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"isError":true,"content":[{"type":"text","text":"step up"}]}}`, id)
		}, "step up"},
		"error without id": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"odd"}}`)
		}, `"id":1,"error":{"code":-32600`},
		"404": {func(w http.ResponseWriter, _ json.RawMessage) { w.WriteHeader(http.StatusNotFound) }, "usually ends in /mcp"},
		"redirect": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Location", "https://x/")
			w.WriteHeader(http.StatusFound)
		}, "https://x/"},
		"502":   {func(w http.ResponseWriter, _ json.RawMessage) { w.WriteHeader(http.StatusBadGateway) }, "whether it took effect is not known"},
		"empty": {func(w http.ResponseWriter, _ json.RawMessage) { w.Header().Set("Content-Type", "application/json") }, "200 OK"},
		"a proxy's 401": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_token"}`)
		}, "TOOLWAY_TOKEN"},
		"a proxy's 500": {func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":"boom"}`, id)
		}, `"isError":true`},
		"html": {func(w http.ResponseWriter, _ json.RawMessage) { fmt.Fprint(w, "<html>") }, "200 OK"},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, func(w http.ResponseWriter, r *http.Request) { c.answer(w, read(r).ID) }, nil)
			h.say(callOf("1", "x"))
			if got := h.hear(); !strings.Contains(got, c.want) {
				t.Errorf("answer %s, want %q in it", got, c.want)
			}
		})
	}
}

func TestOverloadedMesh(t *testing.T) {
	first := true
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		result(w, read(r).ID, "second")
	}, nil)
	h.say(callOf("1", "x"))
	if got := h.hear(); !strings.Contains(got, "second") {
		t.Errorf("answer %s, want the one after 503", got)
	}
}

// TestLostSession has a mesh that forgets the session of an older version: it is made again, and the host does not notice.
func TestLostSession(t *testing.T) {
	var mu sync.Mutex
	session, begun := "s1", 0
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		m := read(r)
		switch {
		case m.Method == "subscriptions/listen":
			w.WriteHeader(http.StatusBadRequest)
		case m.Method == "initialize":
			begun++
			w.Header().Set("Mcp-Session-Id", session)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}`, m.ID)
		case r.Header.Get("Mcp-Session-Id") != session || r.Header.Get("Mcp-Protocol-Version") != "2025-11-25":
			w.WriteHeader(http.StatusNotFound)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		default:
			result(w, m.ID, session)
		}
	}, nil)
	h.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	h.hear()
	h.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	h.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	if got := h.hear(); !strings.Contains(got, "s1") {
		t.Fatalf("answer %s, want it under the first session", got)
	}
	mu.Lock()
	session = "s2"
	mu.Unlock()
	for i := range 5 {
		h.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, i+2))
	}
	for range 5 {
		if got := h.hear(); !strings.Contains(got, "s2") {
			t.Errorf("answer %s, want it under a new session", got)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if begun != 2 {
		t.Errorf("initialize was sent %d times, want twice: several calls notice the loss at once", begun)
	}
}

func TestCancel(t *testing.T) {
	ended := make(chan struct{})
	began := make(chan struct{})
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		m := read(r)
		if m.Params.Name == "hang" {
			close(began)
			<-r.Context().Done()
			close(ended)
			return
		}
		result(w, m.ID, "next")
	}, nil)
	h.say(callOf("1", "hang"))
	<-began
	h.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,` + modern + `}}`)
	<-ended
	h.say(callOf("2", "x"))
	if got := h.hear(); !strings.Contains(got, `"id":2`) {
		t.Errorf("heard %s, want nothing of the cancelled call", got)
	}
}

func TestSameID(t *testing.T) {
	began := make(chan struct{})
	release := make(chan struct{})
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		m := read(r)
		close(began)
		<-release
		result(w, m.ID, "one")
	}, nil)
	h.say(callOf("1", "x"))
	<-began
	h.say(callOf("1", "x"))
	if got := h.hear(); !strings.Contains(got, "-32600") {
		t.Errorf("a second request with the same id: %s, want it refused", got)
	}
	close(release)
	if got := h.hear(); !strings.Contains(got, "one") {
		t.Errorf("the first request: %s", got)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, url := range []string{"", "tools.example.com/mcp", "ftp://x/mcp", "https://user:secret@x/mcp", "http://"} {
		if _, err := relay.New(relay.Config{URL: url}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("New(%q) = %v, want an error without the password", url, err)
		}
	}
}

// TestResume breaks the stream of a call after an event with an id: the rest comes after Last-Event-ID.
func TestResume(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		m := read(r)
		switch {
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s")
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`, m.ID)
		case r.Method == http.MethodPost && m.Method == "tools/call":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: e1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") == "e1":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: e2\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")
		default:
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}, nil)
	h.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	h.hear()
	h.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	if got := h.hear(); !strings.Contains(got, "progress") {
		t.Errorf("heard %s, want the progress", got)
	}
	if got := h.hear(); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("heard %s, want the answer from the resumed stream", got)
	}
}

// TestListenAgain breaks a subscription: after the next one the host hears of everything that it listens for, and of nothing else.
func TestListenAgain(t *testing.T) {
	var mu sync.Mutex
	n := 0
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n++
		first := n == 1
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"promptsListChanged":true,"resourceSubscriptions":["x://1"]}}}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		if first {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	}, nil)
	h.say(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":true},` + modern + `}}`)
	for _, want := range []string{"acknowledged", `prompts/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}`, `resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"uri":"x://1"}`} {
		if got := h.hear(); !strings.Contains(got, want) {
			t.Errorf("heard %s, want %s", got, want)
		}
	}
}
