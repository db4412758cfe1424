package logs_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/logs"
)

func TestFeederReads(t *testing.T) {
	engine := openEmbedded(t)
	client, _ := start(t, engine, logs.Options{})
	now := time.Now().UTC()
	tests := []struct {
		line    string
		message string
		fields  map[string]string
	}{
		{`{"time":"` + now.Format(time.RFC3339Nano) + `","level":"INFO","msg":"slog","n":3,"ok":true,"none":null,"g":{"a":1.5,"b":{"c":"x"}},"list":[1,"a"]}`,
			"slog", map[string]string{"level": "INFO", "n": "3", "ok": "true", "g.a": "1.5", "g.b.c": "x", "list": `[1,"a"]`}},
		{`{"ts":1700000000.5,"message":"zap, whose time is not RFC 3339"}`, "zap, whose time is not RFC 3339", map[string]string{}},
		{`plain text: {not json}`, "plain text: {not json}", map[string]string{}},
		{`{"level":"WARN"}`, `{"level":"WARN"}`, map[string]string{"level": "WARN"}},
		{`[1,2]`, `[1,2]`, map[string]string{}},
		{`null`, `null`, map[string]string{}},
		{`{"msg":"again","service":"own","_stream":"{}","ingest_seq":"7"}`, "again", map[string]string{"service": "own"}},
		{"bad \xff bytes", "bad \uFFFD bytes", map[string]string{}},
		{`{"msg":"cut off`, `{"msg":"cut off`, map[string]string{}},
	}
	var input strings.Builder
	for i, test := range tests {
		if i%2 == 0 {
			input.WriteString("\n")
		}
		input.WriteString(test.line + "\r\n")
	}
	input.WriteString(strings.Repeat("x", 300<<10) + "\nlast line without an end")
	feeder := &logs.Feeder{Engine: engine, Fields: map[string]string{"service": "fed"}}
	if err := feeder.Read(t.Context(), strings.NewReader(input.String())); err != nil {
		t.Fatal(err)
	}
	entries := slices.Concat(searchAll(t, client, &logsv1.SearchLogsRequest{}, nil)...)
	byMessage := map[string]*logsv1.LogEntry{}
	for _, e := range entries {
		byMessage[e.Message] = e
	}
	for _, test := range tests {
		e := byMessage[test.message]
		if e == nil {
			t.Errorf("line %q: no entry with message %q", test.line, test.message)
			continue
		}
		if _, own := test.fields["service"]; !own {
			test.fields["service"] = "fed"
		}
		if !maps.Equal(e.Fields, test.fields) {
			t.Errorf("line %q: fields = %q, want %q", test.line, e.Fields, test.fields)
		}
	}
	if got := byMessage["slog"]; got != nil && !got.Time.AsTime().Equal(now) {
		t.Errorf("time = %v, want the line's, %v", got.Time.AsTime(), now)
	}
	if byMessage["last line without an end"] == nil {
		t.Error("the last line is missing")
	}
}

// Lines are stored when they are there, not when a batch is full.
func TestFeederReadsAtOnce(t *testing.T) {
	engine := openEmbedded(t)
	client, _ := start(t, engine, logs.Options{})
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- (&logs.Feeder{Engine: engine}).Read(t.Context(), r) }()
	since := engine.Origin(time.Time{})
	for i := range 3 {
		if _, err := fmt.Fprintf(w, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
		msg := tail(t, client, &logsv1.TailLogsRequest{Cursor: since.String()}, i+1)[i]
		if want := fmt.Sprintf("line %d", i); msg.Entry.Message != want {
			t.Errorf("entry = %q, want %q", msg.Entry.Message, want)
		}
	}
	_ = w.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// follower runs Feeder.Follow on a file, and is asked for the lines that arrived.
type follower struct {
	t      *testing.T
	engine *logs.Embedded
	client logsv1.LogServiceClient
	path   string
	state  string
	since  logs.Position
	stop   func()
}

func newFollower(t *testing.T) *follower {
	engine := openEmbedded(t)
	client, _ := start(t, engine, logs.Options{})
	dir := t.TempDir()
	return &follower{t: t, engine: engine, client: client, since: engine.Origin(time.Time{}),
		path: filepath.Join(dir, "app.log"), state: filepath.Join(dir, "state.json")}
}

func (f *follower) follow(state string) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() { done <- (&logs.Feeder{Engine: f.engine}).Follow(ctx, f.path, state) }()
	f.stop = func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Error(err)
		}
		f.stop = func() {}
	}
	f.t.Cleanup(func() { f.stop() })
}

func (f *follower) write(text string) {
	f.t.Helper()
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		f.t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		f.t.Fatal(err)
	}
}

// want waits until all of these lines, and nothing else, were stored since the beginning.
func (f *follower) want(lines ...string) {
	f.t.Helper()
	var got []string
	for _, msg := range tail(f.t, f.client, &logsv1.TailLogsRequest{Cursor: f.since.String()}, len(lines)) {
		got = append(got, msg.Entry.Message)
	}
	if !slices.Equal(got, lines) {
		f.t.Fatalf("stored = %q, want %q", got, lines)
	}
}

func TestFollowFile(t *testing.T) {
	f := newFollower(t)
	f.follow("")
	f.write("one\ntw")
	f.want("one")
	f.write("o\nthree\n")
	f.want("one", "two", "three")

	// Rotation by renaming: what is still written to the old file counts, even without an end.
	f.write("four\nfive without an end")
	if err := os.Rename(f.path, f.path+".1"); err != nil {
		t.Fatal(err)
	}
	f.write("six\n")
	f.want("one", "two", "three", "four", "five without an end", "six")

	// Rotation by cutting.
	if err := os.Truncate(f.path, 0); err != nil {
		t.Fatal(err)
	}
	f.write("7\n")
	f.want("one", "two", "three", "four", "five without an end", "six", "7")
}

func TestFollowGoesOnAfterRestart(t *testing.T) {
	f := newFollower(t)
	f.follow(f.state)
	f.write("one\ntwo\n")
	f.want("one", "two")
	f.stop()
	f.write("three\n")
	f.follow(f.state)
	f.want("one", "two", "three")
	f.stop()

	// A new file of the same name is read from its start.
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	f.write("four, in a new file that is longer than the old one was\n")
	f.follow(f.state)
	f.want("one", "two", "three", "four, in a new file that is longer than the old one was")
	f.stop()

	// A state file that is not one does not stop anything.
	if err := os.WriteFile(f.state, []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.follow(f.state)
	f.want("one", "two", "three", "four, in a new file that is longer than the old one was", "four, in a new file that is longer than the old one was")
}

func TestFollowFails(t *testing.T) {
	engine := openEmbedded(t)
	t.Cleanup(func() { _ = engine.Close() })
	if err := (&logs.Feeder{Engine: engine}).Follow(within(t), t.TempDir(), ""); err == nil {
		t.Error("following a directory: no error, want one")
	}
}
