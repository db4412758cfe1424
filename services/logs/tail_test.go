package logs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/logs"
)

// A reader that breaks off and resumes with the last cursor, over and over, sees every matching entry once and in order of
// arrival, while a producer writes, whatever times the entries bear.
func TestTailResumes(t *testing.T) {
	client, _ := start(t, openEmbedded(t), logs.Options{})
	const count = 300
	random := rand.New(rand.NewPCG(1, 2))
	base := time.Now().Add(-10 * time.Minute)
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		for i := 0; i < count; {
			var batch []*logsv1.LogEntry
			for range 1 + random.IntN(20) {
				if i == count {
					break
				}
				at := base.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
				batch = append(batch, entry(at, fmt.Sprint(i), "kind", "counted"), entry(at, "noise", "kind", "other"))
				i++
			}
			ingest(t, client, batch...)
		}
	}()
	var got []string
	req := &logsv1.TailLogsRequest{Query: "kind:counted", StartTime: timestamppb.New(base.Add(-time.Minute))}
	steps := rand.New(rand.NewPCG(3, 4))
	for len(got) < count {
		for _, msg := range tail(t, client, req, min(1+steps.IntN(40), count-len(got))) {
			got = append(got, msg.Entry.Message)
			// As a reader of events comes back, with the URL it began with.
			req = &logsv1.TailLogsRequest{Query: "kind:counted", Cursor: msg.Cursor, StartTime: req.StartTime}
		}
	}
	<-produced
	for i, message := range got {
		if message != fmt.Sprint(i) {
			t.Fatalf("message %d = %s, want %d", i, message, i)
		}
	}
}

// Producers that write at once, with times that disagree, are all seen, each in its own order.
func TestTailOfManyProducers(t *testing.T) {
	client, _ := start(t, openEmbedded(t), logs.Options{})
	const producers, each = 4, 60
	base := time.Now().Add(-10 * time.Minute)
	var producing sync.WaitGroup
	for p := range producers {
		producing.Go(func() {
			for i := range each {
				at := base.Add(time.Duration(i) * time.Millisecond).Add(-time.Duration(p) * time.Second)
				ingest(t, client, entry(at, fmt.Sprint(i), "producer", fmt.Sprint(p)))
			}
		})
	}
	defer producing.Wait()
	next := make(map[string]int)
	req := &logsv1.TailLogsRequest{StartTime: timestamppb.New(base.Add(-time.Minute))}
	for left := producers * each; left > 0; {
		for _, msg := range tail(t, client, req, min(17, left)) {
			p := msg.Entry.Fields["producer"]
			if want := fmt.Sprint(next[p]); msg.Entry.Message != want {
				t.Fatalf("producer %s: entry %s, want %s", p, msg.Entry.Message, want)
			}
			next[p]++
			left--
			req = &logsv1.TailLogsRequest{Cursor: msg.Cursor}
		}
	}
}

func TestTailStartsNow(t *testing.T) {
	client, _ := start(t, openEmbedded(t), logs.Options{})
	ingest(t, client, entry(time.Now(), "before"))
	stream, err := client.TailLogs(within(t), &logsv1.TailLogsRequest{MaxEntries: 2})
	if err != nil {
		t.Fatal(err)
	}
	// The header says that the stream stands.
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	ingest(t, client, entry(time.Now(), "one"), entry(time.Now(), "two"), entry(time.Now(), "three"))
	got, err := ended(stream)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Entry.Message != "one" || got[1].Entry.Message != "two" {
		t.Errorf("entries = %v, want the two that came after the call, then the end", got)
	}
}

// When the server stops, a tail ends with the cursor to go on from, and going on there loses nothing.
func TestTailDrains(t *testing.T) {
	engine := openEmbedded(t)
	client, service := start(t, engine, logs.Options{})
	base := time.Now().Add(-time.Minute)
	stream, err := client.TailLogs(within(t), &logsv1.TailLogsRequest{StartTime: timestamppb.New(base)})
	if err != nil {
		t.Fatal(err)
	}
	ingest(t, client, entry(base, "one"), entry(base.Add(time.Second), "two"))
	for range 2 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	service.Drain()
	_, err = ended(stream)
	wantCode(t, err, codes.Unavailable)
	cursor := wantInfo(t, err, "STORE_UNAVAILABLE")["cursor"]
	if _, ok := detail[*errdetails.RetryInfo](err); !ok {
		t.Errorf("no RetryInfo in %v", err)
	}
	next, _ := start(t, reopened{engine}, logs.Options{})
	ingest(t, next, entry(base.Add(2*time.Second), "three"))
	got := tail(t, next, &logsv1.TailLogsRequest{Cursor: cursor}, 1)
	if got[0].Entry.Message != "three" {
		t.Errorf("after the cursor = %q, want three", got[0].Entry.Message)
	}
}

// reopened lends an engine to a second server; the first closes it.
type reopened struct{ logs.Engine }

func (reopened) Close() error { return nil }

// A deadline that passes at the server says where to go on; here an interceptor sets it, as a mesh in front would.
func TestTailDeadlineSaysCursor(t *testing.T) {
	short := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, cancel := context.WithTimeout(stream.Context(), 2*time.Second)
		defer cancel()
		return next(srv, bounded{stream, ctx})
	}
	engine := openEmbedded(t)
	client, _ := start(t, engine, logs.Options{}, grpc.StreamInterceptor(short))
	base := time.Now().Add(-time.Minute)
	if err := engine.Append(t.Context(), []logs.Entry{{Time: base, Message: "one"}}); err != nil {
		t.Fatal(err)
	}
	stream, err := client.TailLogs(within(t), &logsv1.TailLogsRequest{StartTime: timestamppb.New(base)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ended(stream)
	wantCode(t, err, codes.DeadlineExceeded)
	cursor := wantInfo(t, err, "TAIL_INTERRUPTED")["cursor"]
	var seen []string
	for _, msg := range got {
		seen = append(seen, msg.Entry.Message)
	}
	if err := engine.Append(t.Context(), []logs.Entry{{Time: base, Message: "two"}}); err != nil {
		t.Fatal(err)
	}
	// However far it came, going on at the cursor completes it.
	for len(seen) < 2 {
		rest, err := client.TailLogs(within(t), &logsv1.TailLogsRequest{Cursor: cursor, MaxEntries: int32(2 - len(seen))})
		if err != nil {
			t.Fatal(err)
		}
		got, err := ended(rest)
		if err != nil && status.Code(err) != codes.DeadlineExceeded {
			t.Fatal(err)
		}
		for _, msg := range got {
			seen, cursor = append(seen, msg.Entry.Message), msg.Cursor
		}
	}
	if want := []string{"one", "two"}; !slices.Equal(seen, want) {
		t.Errorf("messages over the break = %q, want %q", seen, want)
	}
}

// bounded is a stream with another context.
type bounded struct {
	grpc.ServerStream
	ctx context.Context
}

func (b bounded) Context() context.Context { return b.ctx }

func TestTailRefuses(t *testing.T) {
	client, _ := start(t, openEmbedded(t), logs.Options{})
	now := time.Now()
	tests := []struct {
		name  string
		req   *logsv1.TailLogsRequest
		field string
	}{
		{"query", &logsv1.TailLogsRequest{Query: "a:in("}, "query"},
		{"cursor", &logsv1.TailLogsRequest{Cursor: "Y29uZmlkZW50"}, "cursor"},
		{"cursor beside a start", &logsv1.TailLogsRequest{Cursor: "x", StartTime: timestamppb.New(now)}, "cursor"},
		{"start too old", &logsv1.TailLogsRequest{StartTime: timestamppb.New(now.Add(-40 * 24 * time.Hour))}, "start_time"},
		{"max entries", &logsv1.TailLogsRequest{MaxEntries: -1}, "max_entries"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			stream, err := client.TailLogs(within(t), test.req)
			if err != nil {
				t.Fatal(err)
			}
			_, err = ended(stream)
			wantCode(t, err, codes.InvalidArgument)
			bad, ok := detail[*errdetails.BadRequest](err)
			if !ok || bad.FieldViolations[0].Field != test.field {
				t.Errorf("details of %v: want a violation of %q", err, test.field)
			}
		})
	}
}

func TestTailCursorOutOfRange(t *testing.T) {
	engine := openEmbedded(t)
	client, _ := start(t, engine, logs.Options{})
	ingest(t, client, entry(time.Now(), "kept"))
	own := engine.Origin(time.Time{})
	foreign, old, ahead := own, own, own
	foreign.Store++
	old.Sequence = uint64(time.Now().Add(-40 * 24 * time.Hour).UnixMicro())
	ahead.Sequence += 1 << 40
	for name, at := range map[string]logs.Position{"another store": foreign, "past retention": old, "never given": ahead} {
		t.Run(name, func(t *testing.T) {
			stream, err := client.TailLogs(within(t), &logsv1.TailLogsRequest{Cursor: at.String()})
			if err != nil {
				t.Fatal(err)
			}
			_, err = ended(stream)
			wantCode(t, err, codes.OutOfRange)
			oldest := wantInfo(t, err, "CURSOR_OUT_OF_RANGE")["oldest_cursor"]
			got := tail(t, client, &logsv1.TailLogsRequest{Cursor: oldest}, 1)
			if got[0].Entry.Message != "kept" {
				t.Errorf("after oldest_cursor = %q, want kept", got[0].Entry.Message)
			}
		})
	}
}

func TestTailEndsWhenEngineCloses(t *testing.T) {
	engine := openEmbedded(t)
	client, _ := start(t, engine, logs.Options{})
	base := time.Now().Add(-time.Minute)
	ingest(t, client, entry(base, "one"))
	stream, err := client.TailLogs(within(t), &logsv1.TailLogsRequest{StartTime: timestamppb.New(base)})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = ended(stream)
	wantCode(t, err, codes.Unavailable)
	if cursor := wantInfo(t, err, "STORE_UNAVAILABLE")["cursor"]; cursor == "" || first.Cursor == "" {
		t.Errorf("cursors %q and %q, want both", first.Cursor, cursor)
	}
}

// A data directory that is opened again holds what was appended, and cursors of before still work.
func TestTailResumesAfterRestart(t *testing.T) {
	dir := t.TempDir()
	open := func() *logs.Embedded {
		engine, err := logs.OpenEmbedded(dir, logs.EmbeddedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return engine
	}
	now := time.Now()
	engine := open()
	var cursor string
	t.Run("before", func(t *testing.T) {
		client, _ := start(t, engine, logs.Options{})
		ingest(t, client, entry(now, "one"), entry(now, "two"), entry(now, "three"))
		cursor = tail(t, client, &logsv1.TailLogsRequest{StartTime: timestamppb.New(now)}, 1)[0].Cursor
	})
	t.Run("after", func(t *testing.T) {
		client, _ := start(t, open(), logs.Options{})
		ingest(t, client, entry(now, "four"))
		var got []string
		for _, msg := range tail(t, client, &logsv1.TailLogsRequest{Cursor: cursor}, 3) {
			got = append(got, msg.Entry.Message)
		}
		if want := []string{"two", "three", "four"}; !slices.Equal(got, want) {
			t.Errorf("after the cursor = %q, want %q", got, want)
		}
	})
}
