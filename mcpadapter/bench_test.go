package mcpadapter_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/mcpadapter"
)

// discard is a response that only counts.
type discard struct {
	header http.Header
	status int
	bytes  int
}

func (d *discard) Header() http.Header    { return d.header }
func (d *discard) WriteHeader(status int) { d.status = status }
func (d *discard) Flush()                 {}

// SetReadDeadline is there because real connections have it.
func (d *discard) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is there because real connections have it.
func (d *discard) SetWriteDeadline(time.Time) error { return nil }

func (d *discard) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}

type rewound struct{ bytes.Reader }

func (rewound) Close() error { return nil }

// small is a backend with a small answer.
func small(stream grpc.ServerStream) error {
	if err := stream.RecvMsg(&call.Frame{}); err != nil {
		return err
	}
	return stream.SendMsg(call.NewFrame(nil, []byte{0x08, 0x07, 0x12, 0x04, 'f', 'i', 'n', 'e'}))
}

var benchPaths = []struct {
	name   string
	change func(*mcpadapter.Config)
}{{"fast", func(*mcpadapter.Config) {}}, {"sdk", mcpadapter.SDKOnly}}

func reportCPU(b *testing.B, began time.Duration) {
	if used := cpuTime() - began; used > 0 {
		b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
	}
}

// BenchmarkStdio measures one call after the other over pipes.
func BenchmarkStdio(b *testing.B) {
	snapshot, err := catalog.Static("shop", compile(b, shopProto))
	if err != nil {
		b.Fatal(err)
	}
	cat := &mutableCatalog{}
	cat.current.Store(snapshot)
	line := append(message("1", "tools/call", `"name":"orders_get","arguments":{"id":7}`, "-", ""), '\n')
	for _, path := range benchPaths {
		b.Run("call/2025-11-25/"+path.name, func(b *testing.B) {
			conf := mcpadapter.Config{Catalog: cat, Handler: small}
			path.change(&conf)
			adapter := mcpadapter.New(conf)
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			done := make(chan error, 1)
			go func() { done <- adapter.ServeStdio(context.Background(), inR, outW) }()
			lines := bufio.NewScanner(outR)
			say := func(line []byte) {
				if _, err := inW.Write(line); err != nil || !lines.Scan() {
					b.Fatal(err, lines.Err())
				}
			}
			say([]byte(helloLine + "\n"))
			b.ReportAllocs()
			began := cpuTime()
			for b.Loop() {
				say(line)
			}
			reportCPU(b, began)
			_ = inW.Close()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkHTTP measures the door alone, on both paths: no socket, no chain, no backend. CPU is that of all goroutines and the collector.
func BenchmarkHTTP(b *testing.B) {
	const orders = `"name":"orders_get","arguments":`
	many := manyTools(1000)
	for _, bc := range []struct {
		name, source, version, method, params, accept string
	}{
		{"call/2025-11-25", shopProto, "2025-11-25", "tools/call", orders + `{"id":7}`, ""},
		{"call/2026-07-28", shopProto, "2026-07-28", "tools/call", orders + `{"id":7}`, ""},
		{"call as event/2025-11-25", shopProto, "2025-11-25", "tools/call", orders + `{"id":7}`, accepts[2]},
		{"call as event/2026-07-28", shopProto, "2026-07-28", "tools/call", orders + `{"id":7}`, accepts[2]},
		{"call 64 KiB/2025-11-25", shopProto, "2025-11-25", "tools/call", orders + `{"act":"` + strings.Repeat("x", 64<<10) + `"}`, ""},
		{"ping/2025-11-25", shopProto, "2025-11-25", "ping", "", ""},
		{"list 1000/2025-11-25", many, "2025-11-25", "tools/list", "", ""},
		{"list 1000/2026-07-28", many, "2026-07-28", "tools/list", "", ""},
	} {
		snapshot, err := catalog.Static("shop", compile(b, bc.source))
		if err != nil {
			b.Fatal(err)
		}
		cat := &mutableCatalog{}
		cat.current.Store(snapshot)
		members := map[string]string{"2026-07-28": modernMembers + `{}`}[bc.version]
		body := message("1", bc.method, bc.params, "-", members)
		header := headerOf(bc.version, bc.method, bc.params, bc.accept)
		for _, path := range benchPaths {
			b.Run(bc.name+"/"+path.name, func(b *testing.B) {
				conf := mcpadapter.Config{Catalog: cat, Handler: small}
				path.change(&conf)
				door := mcpadapter.New(conf).HTTPHandler()
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/mcp", http.NoBody)
				if err != nil {
					b.Fatal(err)
				}
				req.Header, req.ContentLength = header, int64(len(body))
				res, in := &discard{header: http.Header{}}, &rewound{}
				b.ReportAllocs()
				began := cpuTime()
				for b.Loop() {
					in.Reset(body)
					req.Body = in
					clear(res.header)
					door.ServeHTTP(res, req)
					if res.status != http.StatusOK {
						b.Fatal(res.status)
					}
				}
				reportCPU(b, began)
			})
		}
	}
}
