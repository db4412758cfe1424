package logs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/logs"
)

// slowQuery is an expensive filter: with 350 terms it takes the better part of a minute over what fillSlow stored, hundreds of
// expressions over a line of text in each of thousands of blocks.
func slowQuery(terms int) string {
	all := make([]string, terms)
	for i := range all {
		all[i] = fmt.Sprintf(`_msg:~"(x.*y.*)+z%d"`, i)
	}
	return strings.Join(all, " or ")
}

func fillSlow(t *testing.T, engine logs.Engine) {
	t.Helper()
	text := strings.Repeat("xy ", 100)
	var entries []logs.Entry
	for i := range 15_000 {
		// Each service is a stream of its own, and so a block: the engine looks at the context between blocks.
		entries = append(entries, logs.Entry{Time: time.Now(), Message: text, Fields: map[string]string{"service": fmt.Sprint("s", i)}})
	}
	if err := engine.Append(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
}

func slowSelection() logs.Selection {
	now := time.Now()
	return logs.Selection{Filter: slowQuery(350), Start: now.Add(-time.Hour), End: now.Add(time.Hour), At: now, Limit: 10, MaxBytes: 1 << 20}
}

// A query that would run for minutes returns soon after its context ends, in the engine and not only at the caller.
func TestCancelReachesEngine(t *testing.T) {
	engine := openEmbedded(t)
	client, _ := start(t, engine, logs.Options{})
	fillSlow(t, engine)
	stop := errors.New("caller had enough")
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
		returned := make(chan error, 1)
		go func() {
			_, _, err := engine.Select(ctx, slowSelection())
			returned <- err
		}()
		select {
		case err := <-returned:
			if !errors.Is(err, stop) {
				t.Errorf("Select = %v, want %v", err, stop)
			}
		case <-time.After(patience):
			t.Fatalf("Select goes on %s after its context ended", patience)
		}
	})
	t.Run("deadline of a call", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := client.SearchLogs(ctx, &logsv1.SearchLogsRequest{Query: slowQuery(150)})
		wantCode(t, err, codes.DeadlineExceeded)
	})
	t.Run("close", func(t *testing.T) {
		returned := make(chan error, 1)
		go func() {
			_, _, err := engine.Select(t.Context(), slowSelection())
			returned <- err
		}()
		closed := make(chan error, 1)
		time.AfterFunc(50*time.Millisecond, func() { closed <- engine.Close() })
		for range 2 {
			select {
			case err := <-returned:
				if !errors.Is(err, logs.ErrClosed) {
					t.Errorf("Select = %v, want %v", err, logs.ErrClosed)
				}
			case err := <-closed:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Fatal("Close waits for a query that it should have ended")
			}
		}
	})
}

func TestSearchTimeout(t *testing.T) {
	engine := openEmbedded(t)
	client, _ := start(t, engine, logs.Options{SearchTimeout: 50 * time.Millisecond})
	fillSlow(t, engine)
	_, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{Query: slowQuery(150)})
	wantCode(t, err, codes.DeadlineExceeded)
}

func TestOpenEmbeddedRefuses(t *testing.T) {
	t.Run("in use", func(t *testing.T) {
		dir := t.TempDir()
		engine, err := logs.OpenEmbedded(dir, logs.EmbeddedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = engine.Close() }()
		if second, err := logs.OpenEmbedded(dir, logs.EmbeddedOptions{}); err == nil {
			_ = second.Close()
			t.Error("a directory in use was opened again")
		} else if !strings.Contains(err.Error(), dir) {
			t.Errorf("error %q does not name the directory", err)
		}
	})
	t.Run("a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := logs.OpenEmbedded(path, logs.EmbeddedOptions{}); err == nil {
			t.Error("a file was opened as a directory")
		}
	})
	t.Run("a broken id", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "store.id"), []byte("?"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := logs.OpenEmbedded(dir, logs.EmbeddedOptions{}); err == nil || !strings.Contains(err.Error(), "store.id") {
			t.Errorf("error = %v, want one that names the file", err)
		}
	})
}
