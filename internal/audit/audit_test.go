package audit_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/audit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func example(id string) *toolwayv1.AuditRecord {
	return &toolwayv1.AuditRecord{CallId: id, Door: "mcp", Method: "shop.Orders/Get", StartedAt: &timestamppb.Timestamp{Seconds: 1, Nanos: 5000000}, LatencyMs: 1.25,
		Outcome: toolwayv1.AuditRecord_OUTCOME_REFUSED, Arguments: `{"a":"ü"}`, Scopes: []string{"x"}, Steps: []*toolwayv1.AuditStep{{Name: "rules", Verdict: "denied"}}}
}

// record is the example as sinks get it.
func record(t testing.TB, id string) audit.Record {
	t.Helper()
	r, err := audit.Encode(example(id))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t *testing.T, path string) (ids []string, failed int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range audit.Read(bytes.NewReader(data)) {
		if err != nil {
			failed++
			continue
		}
		ids = append(ids, r.GetCallId())
	}
	return ids, failed
}

func TestJSON(t *testing.T) {
	line, err := audit.AppendJSON(nil, example("c1"))
	want := `{"callId":"c1","door":"mcp","method":"shop.Orders/Get","scopes":["x"],"arguments":"{\"a\":\"ü\"}","startedAt":"1970-01-01T00:00:01.005Z","latencyMs":1.25,"outcome":"OUTCOME_REFUSED","steps":[{"name":"rules","verdict":"denied"}]}`
	if err != nil || string(line) != want {
		t.Errorf("line = %s, %v\nwant   %s", line, err, want)
	}
	back, err := audit.ParseJSON([]byte(strings.TrimSuffix(want, "}") + `,"later":1}`))
	if err != nil || !proto.Equal(back, example("c1")) {
		t.Errorf("back = %v, %v", back, err)
	}
}

// TestFile has several writers, a rotation, and a line that a crash has cut short.
func TestFile(t *testing.T) {
	for _, fsync := range []audit.Fsync{audit.FsyncNever, audit.FsyncSecond, audit.FsyncAlways} {
		t.Run(string(fsync), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			if err := os.WriteFile(path, []byte(`{"callId":"cut`), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := audit.OpenFile(path, fsync, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			var writers sync.WaitGroup
			for w := range 4 {
				writers.Go(func() {
					for i := range 25 {
						if err := f.Record(t.Context(), record(t, fmt.Sprintf("%d-%d", w, i))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			writers.Wait()
			if err := os.Rename(path, path+".1"); err != nil {
				t.Fatal(err)
			}
			if err := f.Record(t.Context(), record(t, "still-old")); err != nil {
				t.Error(err)
			}
			if err := f.Reopen(); err != nil {
				t.Fatal(err)
			}
			if err := f.Record(t.Context(), record(t, "new")); err != nil {
				t.Error(err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if err := f.Record(t.Context(), record(t, "late")); !errors.Is(err, os.ErrClosed) {
				t.Errorf("record after close: %v", err)
			}
			if ids, failed := read(t, path+".1"); len(ids) != 101 || failed != 1 || ids[100] != "still-old" {
				t.Errorf("old file: %d records, %d bad lines", len(ids), failed)
			}
			if ids, failed := read(t, path); len(ids) != 1 || failed != 0 || ids[0] != "new" {
				t.Errorf("new file: %q, %d bad lines", ids, failed)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("mode = %v, %v", info.Mode(), err)
			}
		})
	}
}

func TestFileThatCannotBeOpened(t *testing.T) {
	if _, err := audit.OpenFile(filepath.Join(t.TempDir(), "no", "such", "dir"), audit.FsyncNever, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "audit file") {
		t.Errorf("err = %v", err)
	}
}

func TestRing(t *testing.T) {
	r := audit.NewRing(3)
	for i := range 5 {
		if err := r.Record(t.Context(), record(t, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	get := func(id string) *toolwayv1.AuditRecord {
		rec, err := r.Get(t.Context(), id)
		if err != nil {
			t.Error(err)
		}
		return rec
	}
	if get("1") != nil || get("2") == nil || get("4").GetCallId() != "4" {
		t.Error("the ring does not hold the last three")
	}
	all := func(*toolwayv1.AuditRecord) bool { return true }
	list, more, err := r.List(t.Context(), audit.Page{Limit: 2}, all)
	if err != nil || len(list) != 2 || list[0].GetCallId() != "4" || list[1].GetCallId() != "3" || more == 0 {
		t.Errorf("first page = %v, %d", list, more)
	}
	if err := r.Record(t.Context(), record(t, "5")); err != nil {
		t.Fatal(err)
	}
	if list, more, err = r.List(t.Context(), audit.Page{Before: more, Limit: 2}, all); err != nil || len(list) != 0 || more != 0 { // the ring has gone on
		t.Errorf("second page = %v, %d", list, more)
	}
	// The same id again, as a caller who chooses ids may bring about.
	for range 3 {
		if err := r.Record(t.Context(), record(t, "same")); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Record(t.Context(), record(t, "6")); err != nil || get("same") == nil {
		t.Error("an older record took the newer one of the same id along")
	}
}

// TestRingCopies changes a record that the ring has taken, and has the ring use the room of one that a reader has.
func TestRingCopies(t *testing.T) {
	r := audit.NewRing(1)
	mine := record(t, "c1")
	if err := r.Record(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	clear(mine)
	first, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Record(t.Context(), record(t, "c2")); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(first, example("c1")) {
		t.Errorf("record = %v, want %v", first, example("c1"))
	}
	if second, err := r.Get(t.Context(), "c2"); err != nil || !proto.Equal(second, example("c2")) {
		t.Errorf("record = %v, %v, want %v", second, err, example("c2"))
	}
}

// TestRingPages lists a ring so large that one List does not look through it.
func TestRingPages(t *testing.T) {
	const size = 25_000
	r := audit.NewRing(size)
	for i := range size {
		rec, err := audit.Encode(&toolwayv1.AuditRecord{CallId: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Record(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	pages := 0
	for before := uint64(0); ; pages++ {
		list, more, err := r.List(t.Context(), audit.Page{Before: before, Limit: 10}, func(r *toolwayv1.AuditRecord) bool { return strings.HasSuffix(r.GetCallId(), "0000") })
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range list {
			found = append(found, rec.GetCallId())
		}
		if before = more; more == 0 {
			break
		}
	}
	if want := []string{"20000", "10000"}; !slices.Equal(found, want) || pages != 1 {
		t.Errorf("found %q after %d pages, want %q after 1", found, pages, want)
	}
}

type broken struct{ audit.Sink }

func TestTeeAndWriters(t *testing.T) {
	var out, log bytes.Buffer
	closed, err := audit.OpenFile(filepath.Join(t.TempDir(), "a"), audit.FsyncNever, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	tee := audit.Tee(broken{closed}, audit.NewWriter(&out), audit.Log(slog.New(slog.NewTextHandler(&log, nil))))
	if err := tee.Record(t.Context(), record(t, "c")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("err = %v", err)
	}
	if !strings.HasSuffix(out.String(), "}\n") || !strings.Contains(log.String(), "call_id=c") || !strings.Contains(log.String(), "outcome=refused") {
		t.Errorf("out = %s, log = %s", &out, &log)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"callId\":\"x\"}\n\n{\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for r, err := range audit.Read(bytes.NewReader(data)) {
			if (r == nil) == (err == nil) {
				t.Fatalf("%v, %v", r, err)
			}
		}
	})
}

func BenchmarkFile(b *testing.B) {
	f, err := audit.OpenFile(filepath.Join(b.TempDir(), "a"), audit.FsyncSecond, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	r := record(b, "c")
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Record(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
