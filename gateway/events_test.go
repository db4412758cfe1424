package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/catalog"
)

const feed = "/feed.v1.Feed/"

// log is a backend that keeps numbered events, sends those after a position, and breaks as a test says.
type log struct {
	b      *backend
	breaks func(after uint64) int // after how many events of a stream; negative: never

	mu      sync.Mutex
	last    uint64
	changed chan struct{}
}

func newLog(t testing.TB, breaks func(uint64) int) *log {
	t.Helper()
	set, err := compileSet("feed.proto")
	if err != nil {
		t.Fatal(err)
	}
	s, err := catalog.Static("feed", set)
	if err != nil {
		t.Fatal(err)
	}
	l := &log{b: &backend{snapshot: s}, breaks: breaks, changed: make(chan struct{})}
	l.b.handle = map[string]grpc.StreamHandler{feed + "Watch": l.watch}
	return l
}

func (l *log) add() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *log) state() (last uint64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, l.changed
}

func (l *log) watch(_ any, stream grpc.ServerStream) error {
	m := l.b.snapshot.Method(feed + "Watch")
	in := dynamicpb.NewMessage(m.Desc.Input())
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	position := in.Get(m.Desc.Input().Fields().ByName("position")).Message()
	after := position.Get(position.Descriptor().Fields().ByName("after")).Uint()
	left := l.breaks(after)
	for {
		last, changed := l.state()
		for ; after < last; after++ {
			if left == 0 {
				return status.Error(codes.Unavailable, "the backend broke")
			}
			left--
			out := dynamicpb.NewMessage(m.Desc.Output())
			json := fmt.Sprintf(`{"meta":{"seq":%d},"text":"event %d","kind":"KIND_ADDED"}`, after+1, after+1)
			if err := protojson.Unmarshal([]byte(json), out); err != nil {
				return err
			}
			if err := stream.SendMsg(out); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// event is one server-sent event.
type event struct{ id, name, data string }

// reader reads events as a browser's EventSource does: an event that is not complete does not count.
type reader struct {
	lines *bufio.Reader
	last  string // the id to come back with
}

func (r *reader) next() (event, error) {
	e, id := event{name: "message"}, r.last
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			return event{}, err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "\n":
			r.last = id
			if e.data != "" {
				e.id = id
				return e, nil
			}
		case field == "id":
			id = value
		case field == "event":
			e.name = value
		case field == "data":
			e.data += value
		}
	}
}

// TestResumeWithoutGap cuts the connection at any byte, and breaks the backend at any event, while events are written: each reader comes
// back with the last id it has, and gets each event once and in order.
func TestResumeWithoutGap(t *testing.T) {
	const events, readers = 200, 6
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(seed, 0))
			l := newLog(t, func(after uint64) int {
				mu.Lock()
				defer mu.Unlock()
				if after == 0 { // a reader who has nothing yet cannot come back by itself
					return 1 + random.IntN(20)
				}
				return random.IntN(40)
			})
			srv := startServer(t, l.b, serverOptions{http2: http2})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var all sync.WaitGroup
			for i := range readers {
				all.Go(func() {
					if err := follow(ctx, srv, rand.New(rand.NewPCG(seed, uint64(i+1))), events); err != nil {
						t.Errorf("reader %d: %v", i, err)
					}
				})
			}
			for range events {
				l.add()
			}
			all.Wait()
		})
	}
}

// follow reads events 1 to n over as many connections as it takes.
func follow(ctx context.Context, srv *server, random *rand.Rand, n uint64) error {
	var seen uint64
	r := &reader{}
	for seen < n {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/v1/feed", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Accept", "text/event-stream")
		if r.last != "" {
			req.Header.Set("Last-Event-ID", r.last)
		}
		res, err := srv.Client().Do(req)
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s: EventSource would give up", res.Status)
		}
		r.lines = bufio.NewReader(io.LimitReader(res.Body, random.Int64N(3000)))
		for seen < n {
			e, err := r.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if e.name == "error" {
				continue
			}
			seen++
			if want := strconv.FormatUint(seen, 10); e.id != want || e.name != "KIND_ADDED" || !strings.Contains(e.data, `"event `+want+`"`) {
				return fmt.Errorf("event %+v, want %s", e, want)
			}
		}
		if err := res.Body.Close(); err != nil {
			return err
		}
	}
	return nil
}

// once answers one request and gives up the stream, so that what came is all there is.
func (l *log) once(t *testing.T, srv *server, path string, header ...string) []event {
	t.Helper()
	res := srv.open(t.Context(), "GET", path, nil, append([]string{"Accept", "text/event-stream"}, header...)...)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s", path, res.Status, text(t, res))
	}
	r := &reader{lines: bufio.NewReader(res.Body)}
	var out []event
	for {
		e, err := r.next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
}

// The header wins over the URL, whose cursor is where the reader began.
func TestLastEventID(t *testing.T) {
	l := newLog(t, func(uint64) int { return 1 })
	for range 9 {
		l.add()
	}
	srv := startServer(t, l.b, serverOptions{})
	for _, c := range []struct {
		path, last, want string
	}{
		{"/v1/feed", "", "1"},
		{"/v1/feed", "3", "4"},
		{"/v1/feed?position.after=5", "", "6"},
		{"/v1/feed?position.after=5", "7", "8"},
		{"/v1/feed?position.after=5", "0", "1"},
		{"/v1/feed/5", "", "6"},
		{"/v1/feed/5", "7", "8"},
		{"/v1/feed:texts", "3", "4"},
	} {
		got := l.once(t, srv, c.path, "Last-Event-ID", c.last)
		if len(got) != 2 || got[0].id != c.want || got[1].name != "error" || !strings.Contains(got[1].data, `"cursor":"`+c.want+`"`) {
			t.Errorf("%s after %q: %+v, want event %s and an error with its cursor", c.path, c.last, got, c.want)
		}
	}
	res := srv.open(t.Context(), "GET", "/v1/feed", nil, "Accept", "text/event-stream", "Last-Event-ID", "x")
	if got := text(t, res); res.StatusCode != http.StatusBadRequest || !strings.Contains(got, `"field":"Last-Event-ID"`) {
		t.Errorf("an id that is no cursor: %d %s", res.StatusCode, got)
	}
	// Lines have no ids to come back with.
	if got := text(t, srv.open(t.Context(), "GET", "/v1/feed?position.after=5", nil, "Last-Event-ID", "7")); !strings.Contains(got, `"seq":"6"`) {
		t.Errorf("lines: %s, want the URL's cursor to count", got)
	}
}

// What is over before it has begun is told in events to those who could not hear of it otherwise.
func TestStreamThatCannotGoOn(t *testing.T) {
	gone := status.Error(codes.OutOfRange, "gone")
	must := func(st *status.Status, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	resync := must(status.New(codes.FailedPrecondition, "gone").WithDetails(&errdetails.ErrorInfo{Reason: "RESYNC_REQUIRED", Domain: "feed"}))
	later := must(status.New(codes.ResourceExhausted, "too many").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)}))
	for _, c := range []struct {
		name, path, accept, last string
		err                      error
		code                     int
		want                     string
	}{
		{"past retention", "/v1/feed", "text/event-stream", "3", gone, 200, "id:\nevent: resync_required\ndata: {\"code\":11,"},
		{"past retention, by URL", "/v1/feed?position.after=3", "text/event-stream", "", gone, 200, "id:\nevent: resync_required\n"},
		{"out of range, with no position", "/v1/feed", "text/event-stream", "", gone, 400, `{"code":11,`},
		{"reason", "/v1/feed", "text/event-stream", "3", resync, 200, "id:\nevent: resync_required\ndata: {\"code\":9,"},
		{"reason, with no position", "/v1/feed", "text/event-stream", "", resync, 200, "id:\nevent: resync_required\n"},
		{"lines", "/v1/feed?position.after=3", "*/*", "", resync, 400, `{"code":9,`},
		{"backend away at first", "/v1/feed", "text/event-stream", "", status.Error(codes.Unavailable, "away"), 503, `{"code":14,`},
		{"backend away", "/v1/feed", "text/event-stream", "3", status.Error(codes.Unavailable, "away"), 200, "event: error\ndata: {\"code\":14,"},
		{"limit", "/v1/feed", "text/event-stream", "3", later, 200, "event: error\ndata: {\"code\":8,"},
		{"not allowed", "/v1/feed", "text/event-stream", "3", status.Error(codes.PermissionDenied, "no"), 403, `{"code":7,`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLog(t, nil)
			l.b.handle[feed+"Watch"] = func(any, grpc.ServerStream) error { return c.err }
			srv := startServer(t, l.b, serverOptions{config: func(g *gateway.Config) { g.Grace = patience }})
			res := srv.open(t.Context(), "GET", c.path, nil, "Accept", c.accept, "Last-Event-ID", c.last)
			body := text(t, res)
			if got := retryLine.ReplaceAllString(body, ""); res.StatusCode != c.code || !strings.HasPrefix(got, c.want) {
				t.Errorf("%d %q, want %d %q", res.StatusCode, got, c.code, c.want)
			}
			if _, told := retryAfter(body); errors.Is(c.err, later) && (told < 7000 || told > 14000) {
				t.Errorf("body %q: want the delay of the RetryInfo, up to twice as long", body)
			}
			if c.code == http.StatusOK != retryLine.MatchString(body) {
				t.Errorf("body %q: only event streams say when to come back", body)
			}
		})
	}
}

// A stream that breaks before its first message gives its reader an id to come back with, if the backend says where it was.
func TestBreakBeforeTheFirstMessage(t *testing.T) {
	for _, c := range []struct{ last, cursor, want string }{
		{"", "5", "id: 5\nevent: error\n"},
		{"", "", "event: error\n"},
		{"", "a\nb", "event: error\n"},
		{"3", "5", "event: error\n"}, // it comes back with 3
	} {
		l := newLog(t, nil)
		broken, err := status.New(codes.Unavailable, "stopping").WithDetails(&errdetails.ErrorInfo{Reason: "STOPPING", Domain: "feed", Metadata: map[string]string{"cursor": c.cursor}})
		if err != nil {
			t.Fatal(err)
		}
		l.b.handle[feed+"Watch"] = func(_ any, s grpc.ServerStream) error {
			if err := s.SendHeader(nil); err != nil {
				return err
			}
			return broken.Err()
		}
		srv := startServer(t, l.b, serverOptions{})
		body := text(t, srv.open(t.Context(), "GET", "/v1/feed", nil, "Accept", "text/event-stream", "Last-Event-ID", c.last))
		if got := retryLine.ReplaceAllString(body, ""); !strings.HasPrefix(got, c.want) {
			t.Errorf("after %q, broken at %q: %q, want %q first", c.last, c.cursor, got, c.want)
		}
	}
}

// retryAfter returns the first and the last time that a stream says to wait, in ms.
func retryAfter(body string) (first, last int) {
	for line := range strings.SplitSeq(body, "\n") {
		if ms, err := strconv.Atoi(strings.TrimPrefix(line, "retry: ")); err == nil && strings.HasPrefix(line, "retry: ") {
			if first == 0 {
				first = ms
			}
			last = ms
		}
	}
	return first, last
}

// Ids and types that cannot stand in an event, or come back in a header, are left out; the message is not.
func TestEventHead(t *testing.T) {
	l := newLog(t, nil)
	l.b.handle[feed+"Follow"] = func(_ any, stream grpc.ServerStream) error {
		m := l.b.snapshot.Method(feed + "Follow")
		in := dynamicpb.NewMessage(m.Desc.Input())
		if err := stream.RecvMsg(in); err != nil {
			return err
		}
		out := dynamicpb.NewMessage(m.Desc.Output())
		if err := protojson.Unmarshal([]byte(in.Get(m.Desc.Input().Fields().ByName("cursor")).String()), out); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		return stream.SendMsg(out)
	}
	srv := startServer(t, l.b, serverOptions{})
	long := strings.Repeat("x", 5000)
	for _, c := range []struct{ cursor, typ, want string }{
		{"a b", "moved", "id: a b\nevent: moved\n"},
		{"ä:\u2028", "", "id: ä:\u2028\n"},
		{`a\nevent: x`, `b\r`, ""},
		{`a\u0000`, `a\u0000`, ""},
		{" a", "a ", ""},
		{"", "", ""},
		{long, long, ""},
		{"1", "end", "id: 1\n"},
		{"1", "error", "id: 1\n"},
		{"1", "resync_required", "id: 1\n"},
		{"1", "server_draining", "id: 1\n"},
		{"1", "message", "id: 1\nevent: message\n"},
	} {
		ask := fmt.Sprintf(`{"cursor":"%s","type":"%s"}`, c.cursor, c.typ)
		res := srv.open(t.Context(), "POST", feed+"Follow", strings.NewReader(`{"cursor":`+strconv.Quote(ask)+`}`), "Accept", "text/event-stream", "Content-Type", "application/json")
		got := retryLine.ReplaceAllString(text(t, res), "")
		if head, rest, _ := strings.Cut(got, "data: "); head != c.want || !strings.HasPrefix(rest, "{") || !strings.HasSuffix(rest, "\n\nevent: end\ndata: {}\n\n") {
			t.Errorf("%.60q: %.120q, want %q before the data", ask, got, c.want)
		}
	}
}

// Readers are told to come back at different times, within bounds.
func TestReconnectIsSpread(t *testing.T) {
	l := newLog(t, func(uint64) int { return 0 })
	l.add()
	srv := startServer(t, l.b, serverOptions{config: func(c *gateway.Config) { c.Reconnect = 3 * time.Second }})
	seen := map[int]bool{}
	for range 20 {
		body := text(t, srv.open(t.Context(), "GET", "/v1/feed", nil, "Accept", "text/event-stream", "Last-Event-ID", "0"))
		ms, _ := retryAfter(body)
		if ms < 3000 || ms > 6000 {
			t.Fatalf("%q: want 3000 to 6000 ms at first", body)
		}
		seen[ms] = true
	}
	if len(seen) < 2 {
		t.Errorf("all readers come back after %v ms", seen)
	}
}
