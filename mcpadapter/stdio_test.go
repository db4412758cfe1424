package mcpadapter_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/toolway/toolway/mcpadapter"
)

const helloLine = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// talker is a client by hand over stdio.
type talker struct {
	t     *testing.T
	in    *io.PipeWriter
	lines *bufio.Scanner
	wait  func() error
}

func (w *world) talk(ctx context.Context) *talker {
	in, out, wait := w.pipe(ctx)
	k := &talker{t: w.t, in: in, lines: bufio.NewScanner(out), wait: wait}
	k.lines.Buffer(nil, 16<<20)
	k.say(helloLine)
	k.hear(`"id":"hello"`)
	return k
}

func (k *talker) say(line string) {
	k.t.Helper()
	if _, err := io.WriteString(k.in, line+"\n"); err != nil {
		k.t.Fatal(err)
	}
}

func (k *talker) hear(want string) {
	k.t.Helper()
	if !k.lines.Scan() {
		k.t.Fatalf("output ended, want a line with %s: %v", want, k.lines.Err())
	}
	if !strings.Contains(k.lines.Text(), want) {
		k.t.Fatalf("line = %s, want %s", k.lines.Text(), want)
	}
}

func (k *talker) end() {
	k.t.Helper()
	if k.lines.Scan() {
		k.t.Errorf("line after the end: %s", k.lines.Text())
	}
	if err := k.wait(); err != nil {
		k.t.Errorf("ServeStdio() = %v, want nil", err)
	}
}

func callLine(id, act string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"orders_get","arguments":{"act":%q}}}`, id, act)
}

// TestStdioCancel pins that a cancelled call gets no answer, and that only the very id cancels.
func TestStdioCancel(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		w := newWorld(t, path)
		k := w.talk(t.Context())
		k.say(callLine("7", "hang"))
		await(t, "the call at the backend", w.hung)
		for _, other := range []string{`"7"`, `8`, `null`, `{}`} {
			k.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + other + `}}`)
		}
		k.say(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		k.hear(`"id":1`)
		if len(w.ended) > 0 {
			t.Fatal("another id cancelled the call")
		}
		k.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		await(t, "the cancellation at the backend", w.ended)
		k.say(callLine("8", ""))
		k.hear(`"id":8`)
		_ = k.in.Close()
		k.end()
	})
}

// TestStdioSecondInitialize has a session begun twice: the SDK refuses the second time, and the client hears that, not of a panic.
func TestStdioSecondInitialize(t *testing.T) {
	w := newWorld(t, func(*mcpadapter.Config) {})
	k := w.talk(t.Context())
	k.say(strings.Replace(helloLine, "hello", "again", 1))
	k.hear(`duplicate`)
	_ = k.in.Close()
	k.end()
}

// TestStdioParallel pins that a call does not wait for the one before it.
func TestStdioParallel(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		w := newWorld(t, path)
		k := w.talk(t.Context())
		k.say(callLine("1", "hang"))
		await(t, "the call at the backend", w.hung)
		k.say(callLine("1", ""))
		k.hear(`"error":{"code":-32600,"message":"id 1 is in use`)
		k.say(callLine("2", ""))
		k.hear(`"id":2`)
		k.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		await(t, "the cancellation at the backend", w.ended)
		_ = k.in.Close()
		k.end()
	})
}

// TestStdioDrain pins that calls in flight are answered after the input has ended.
func TestStdioDrain(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		w := newWorld(t, path)
		in, out, wait := w.pipe(t.Context())
		go func() {
			var all strings.Builder
			all.WriteString(helloLine + "\n")
			for i := range 50 {
				all.WriteString(callLine(fmt.Sprint(i), "") + "\n")
			}
			_, _ = io.WriteString(in, strings.TrimSuffix(all.String(), "\n")) // the last line ends with the input
			_ = in.Close()
		}()
		answers := 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			answers++
		}
		if answers != 51 {
			t.Errorf("%d answers, want 51", answers)
		}
		if err := wait(); err != nil {
			t.Errorf("ServeStdio() = %v, want nil", err)
		}
	})
}

// TestStdioDrainIsBounded pins that a call that does not end is cancelled.
func TestStdioDrainIsBounded(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		for _, how := range []string{"input ends", "context ends"} {
			t.Run(how, func(t *testing.T) {
				w := newWorld(t, func(c *mcpadapter.Config) { path(c); c.DrainTimeout = 50 * time.Millisecond })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				k := w.talk(ctx)
				k.say(callLine("1", "hang"))
				await(t, "the call at the backend", w.hung)
				if how == "input ends" {
					_ = k.in.Close()
				} else {
					cancel()
				}
				await(t, "the cancellation at the backend", w.ended)
				for k.lines.Scan() { // an answer that says so is allowed
					continue
				}
				if err := k.wait(); err != nil {
					t.Errorf("ServeStdio() = %v, want nil", err)
				}
			})
		}
	})
}

// TestCloseWaits pins that Close lets calls over stdio end.
func TestCloseWaits(t *testing.T) {
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		w := newWorld(t, path)
		k := w.talk(t.Context())
		k.say(callLine("1", "hang"))
		await(t, "the call at the backend", w.hung)
		closed := make(chan error, 1)
		go func() { closed <- w.adapter.Close() }()
		k.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		if len(closed) > 0 || len(w.ended) > 0 {
			t.Error("Close did not wait for the call")
		}
		k.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		await(t, "the cancellation at the backend", w.ended)
		if err := await(t, "the return of Close", closed); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
		k.end()
		_ = k.in.Close()
	})
}

func TestStdioBreaks(t *testing.T) {
	w := newWorld(t, nil)
	boom := errors.New("boom")
	if err := w.adapter.ServeStdio(t.Context(), iotest.ErrReader(boom), io.Discard); !errors.Is(err, boom) {
		t.Errorf("ServeStdio() with a broken input = %v, want %v", err, boom)
	}
	if err := w.adapter.ServeStdio(t.Context(), strings.NewReader(helloLine+"\n"), brokenWriter{boom}); !errors.Is(err, boom) {
		t.Errorf("ServeStdio() with a broken output = %v, want %v", err, boom)
	}
}

type brokenWriter struct{ err error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.err }

// TestStdioLongLine pins that a line beyond the limit costs an error and nothing else, and that its sender hears of it under the id.
func TestStdioLongLine(t *testing.T) {
	pad := strings.Repeat("x", 300<<10)
	forPaths(t, "", func(t *testing.T, path func(*mcpadapter.Config)) {
		w := newWorld(t, func(c *mcpadapter.Config) {
			path(c)
			c.MaxRequestBytes = 200 << 10
		})
		k := w.talk(t.Context())
		for _, c := range []struct{ line, id string }{
			{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"pad":"` + pad + `"}}}`, `1`},
			{`{"method":"ping","params":{"_meta":{"pad":"` + pad + `"}},"jsonrpc":"2.0","id":2}`, `2`},
			{`{"method":"ping","params":{"_meta":{"pad":"` + pad + `"}} , "id" : "a \" b" , "jsonrpc":"2.0" } `, `"a \" b"`},
			{`{"params":{"pad":"` + pad + `"},"id":3,"method":"tools/call","z":{"pad":"` + pad + `"}}`, `null`}, // too far inside
			{`{"method":"ping","params":{"pad":"` + pad + `","id":4}}`, `null`},
			{`{"method":"ping","params":{"id":4,"pad":"` + pad + `"}}`, `null`},
			{`{"method":"ping","params":{"id":4,"pad":"` + pad + `"},"id":5}`, `5`},
			{`{"method":"ping","id":6,"params":{"id":4,"pad":"` + pad + `","id":7}}`, `6`},
			{`{"method":"ping","pad":"` + pad + `,\"id\":7}"}`, `null`},
			{`{"method":"ping","pad":"` + pad + `","id":null}`, `null`},
			{`{"method":"ping","pad":"` + pad + `","id":{"id":7}}`, `null`},
			{`{"id":` + strings.Repeat("7", 300<<10) + `}`, `null`},
			{`["` + pad + `",{"id":7}]`, `null`},
			{`"` + pad, `null`},
			{strings.Repeat(`"id":7},`, 40<<10), `null`},
		} {
			go func() { _, _ = io.WriteString(k.in, c.line+"\n"+`{"jsonrpc":"2.0","id":"next","method":"ping"}`+"\n") }()
			k.hear(`{"jsonrpc":"2.0","id":` + c.id + `,"error":{"code":-32600,"message":"the message is longer than 204800 bytes"}}`)
			k.hear(`"id":"next"`)
		}
		_ = k.in.Close()
		k.end()
	})
}

// TestStdioInputThatCannotBeWoken pins that a read which does not end, as of a terminal, does not keep ServeStdio.
func TestStdioInputThatCannotBeWoken(t *testing.T) {
	w := newWorld(t, nil)
	in := stuck{make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.adapter.ServeStdio(ctx, in, io.Discard) }()
	cancel()
	if err := await(t, "the return of ServeStdio", done); err != nil {
		t.Errorf("ServeStdio() = %v, want nil", err)
	}
	close(in.end)
}

type stuck struct{ end chan struct{} }

func (s stuck) Read([]byte) (int, error) { <-s.end; return 0, io.EOF }
func (s stuck) Close() error             { return nil }

// TestTooDeepHasItsID pins that a message that is nested too deep is answered under its id, where that can be found.
func TestTooDeepHasItsID(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 1100) + "1" + strings.Repeat("}", 1100)
	w := newWorld(t, nil)
	k := w.talk(t.Context())
	url := w.serve()
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":` + deep + `}`,
		`{"jsonrpc":"2.0","method":"tools/call","params":` + deep + `,"id":"a"}`,
	} {
		want := `{"jsonrpc":"2.0","id":"a","error":{"code":-32600,"message":"the message is nested more than 1000 deep`
		k.say(message)
		k.hear(want)
		if got := closed(t, post(t.Context(), t, url, message, nil)); !strings.HasPrefix(got, want) {
			t.Errorf("over HTTP: %s, want %s", got, want)
		}
	}
	_ = k.in.Close()
	k.end()
}
