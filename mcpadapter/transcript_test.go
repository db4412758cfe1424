package mcpadapter_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/toolway/toolway/mcpadapter"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// TestHTTPTranscripts plays testdata/http_*.txtar: files named "request…" are sent one after the other on one door, each followed by a
// file with what must come back.
func TestHTTPTranscripts(t *testing.T) {
	forTranscripts(t, "http_*.txtar", func(t *testing.T, w *world) func(request []byte) []byte {
		url := w.serve()
		return func(request []byte) []byte { return exchange(t, url, request) }
	})
}

// TestStdioTranscripts plays testdata/stdio_*.txtar: each file "request…" is a number of lines, after which one line comes back for
// each line that wants one.
func TestStdioTranscripts(t *testing.T) {
	forTranscripts(t, "stdio_*.txtar", func(t *testing.T, w *world) func(request []byte) []byte {
		in, out, wait := w.pipe(t.Context())
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		t.Cleanup(func() {
			_ = in.Close()
			if lines.Scan() {
				t.Errorf("line after the end: %s", lines.Text())
			}
			if err := wait(); err != nil {
				t.Errorf("ServeStdio() = %v, want nil", err)
			}
		})
		return func(request []byte) []byte {
			var got bytes.Buffer
			for line := range bytes.Lines(request) {
				silent := bytes.HasPrefix(line, []byte("!")) // wants no answer
				if _, err := in.Write(bytes.TrimPrefix(line, []byte("!"))); err != nil {
					t.Fatal(err)
				}
				if silent {
					continue
				}
				if !lines.Scan() {
					t.Fatalf("no answer to %s: %v", line, lines.Err())
				}
				got.Write(append(lines.Bytes(), '\n'))
			}
			return sessionID.ReplaceAll(got.Bytes(), []byte("RANDOM"))
		}
	})
}

func forTranscripts(t *testing.T, pattern string, open func(*testing.T, *world) func([]byte) []byte) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no transcripts %s: %v", pattern, err)
	}
	for _, name := range names {
		forPaths(t, strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T, path func(*mcpadapter.Config)) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, func(c *mcpadapter.Config) {
				path(c)
				c.MaxRequestBytes = 4096
				c.AllowedOrigins = []string{"https://console.example.com"}
				c.Sessions = bytes.Contains(archive.Comment, []byte("with sessions"))
			})
			play := open(t, w)
			out := &txtar.Archive{Comment: archive.Comment}
			for i, f := range archive.Files {
				if !strings.HasPrefix(f.Name, "request") {
					continue
				}
				got := play(f.Data)
				out.Files = append(out.Files, f, txtar.File{Name: strings.Replace(f.Name, "request", "response", 1), Data: got})
				if *update {
					continue
				}
				var want []byte
				if i+1 < len(archive.Files) {
					want = archive.Files[i+1].Data
				}
				if diff := cmp.Diff(string(want), string(got)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", f.Name, diff)
				}
			}
			if *update {
				if err := os.WriteFile(name, txtar.Format(out), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// forPaths runs f for the fast path, which is the default, and for the SDK alone.
func forPaths(t *testing.T, name string, f func(*testing.T, func(*mcpadapter.Config))) {
	t.Helper()
	if name != "" {
		name += "/"
	}
	t.Run(name+"fast", func(t *testing.T) { f(t, func(*mcpadapter.Config) {}) })
	t.Run(name+"sdk", func(t *testing.T) { f(t, mcpadapter.SDKOnly) })
}

// sessionID is what differs from run to run: ids of sessions and calls.
var sessionID = regexp.MustCompile(`(caller-)?[A-Z2-7]{26}(_[0-9]+)?|\b[0-9a-f]{32}\b`)

// exchange sends a request of the form "METHOD\nName: value\n\nbody" and returns the response in a like form.
func exchange(t *testing.T, url string, request []byte) []byte {
	t.Helper()
	r := textproto.NewReader(bufio.NewReader(bytes.NewReader(request)))
	method, err := r.ReadLine()
	if err != nil {
		t.Fatal(err)
	}
	header, err := r.ReadMIMEHeader()
	if err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	body, err := io.ReadAll(r.R)
	if err != nil {
		t.Fatal(err)
	}
	body = bytes.ReplaceAll(bytes.TrimSpace(body), []byte("LONG"), bytes.Repeat([]byte("x"), 5000))
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header(header)
	if host := header.Get("Host"); host != "" {
		req.Host = host
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var out bytes.Buffer
	fmt.Fprintln(&out, res.StatusCode)
	for _, name := range []string{"Content-Type", "Allow", "Mcp-Session-Id", "Access-Control-Allow-Origin", "X-Accel-Buffering"} {
		if v := res.Header.Get(name); v != "" {
			fmt.Fprintf(&out, "%s: %s\n", name, v)
		}
	}
	out.WriteString("\n")
	if _, err := io.Copy(&out, res.Body); err != nil {
		t.Fatal(err)
	}
	got := append(bytes.TrimRight(out.Bytes(), "\n"), '\n')
	return sessionID.ReplaceAll(got, []byte("RANDOM"))
}
