package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// discard is a response writer without a buffer.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkLookup measures a whole request to a handler that answers at once, behind 10,000 routes, next to grpc-gateway's mux, which scans.
func BenchmarkLookup(b *testing.B) {
	const n = 10_000
	templates := make([]string, n)
	for i := range templates {
		templates[i] = fmt.Sprintf("/v%d/{a=projects/*/things%d/*}:do", i%10, i)
	}
	path := "/v7/projects/p/things5007/x:do"
	b.Run("gateway", func(b *testing.B) {
		g := gateway.New(gateway.Config{Catalog: catalog.Fixed(matchContract(b, templates...)), Handler: instant})
		serveMany(b, g, "GET", path, "")
	})
	b.Run("grpc-gateway-mux", func(b *testing.B) {
		mux := runtime.NewServeMux()
		for _, t := range templates {
			if err := mux.HandlePath("GET", t, func(w http.ResponseWriter, _ *http.Request, _ map[string]string) { _, _ = io.WriteString(w, "{}") }); err != nil {
				b.Fatal(err)
			}
		}
		serveMany(b, mux, "GET", path, "")
	})
}

// instant answers with an empty message.
func instant(stream grpc.ServerStream) error {
	c := call.FromContext(stream.Context())
	var f call.Frame
	if err := stream.RecvMsg(&f); err != nil {
		return err
	}
	return stream.SendMsg(call.NewFrame(c.Method.Desc.Output(), nil))
}

func serveMany(b *testing.B, h http.Handler, verb, path, body string) {
	b.Helper()
	w := &discard{h: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		var src io.Reader
		if body != "" {
			src = strings.NewReader(body)
		}
		r := httptest.NewRequest(verb, path, src)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		clear(w.h)
		h.ServeHTTP(w, r)
	}
}

// BenchmarkUnary measures one small call: the door alone, and with the chain and a real backend behind it.
func BenchmarkUnary(b *testing.B) {
	back := &backend{snapshot: librarySnapshot(b)}
	const body = `{"title":"A Book","author":{"given":"G","family":"F"},"pages":321}`
	b.Run("door", func(b *testing.B) {
		g := gateway.New(gateway.Config{Catalog: catalog.Fixed(back.snapshot), Handler: instant})
		serveMany(b, g, "POST", "/v1/shelves/s1/books?book_id=7", body)
	})
	b.Run("backend", func(b *testing.B) {
		g := gateway.New(gateway.Config{Catalog: catalog.Fixed(back.snapshot), Handler: back.start(b)})
		serveMany(b, g, "POST", "/v1/shelves/s1/books?book_id=7", body)
	})
}

// BenchmarkStream measures the messages of a server stream over loopback sockets: as events and as lines through chain and door, and of the same
// backend without the mesh, turn by turn in one run. Only the ratio to direct carries over to another machine.
func BenchmarkStream(b *testing.B) {
	const messages = 20_000
	back := &backend{snapshot: librarySnapshot(b)}
	reply := call.NewFrame(back.snapshot.Method(watch).Desc.Output(), []byte("\x0a\x04name\x12\x11a title of a book"))
	back.handle = map[string]grpc.StreamHandler{watch: func(_ any, stream grpc.ServerStream) error {
		var f call.Frame
		if err := stream.RecvMsg(&f); err != nil {
			return err
		}
		defer f.Release()
		for range messages {
			if err := stream.SendMsg(reply); err != nil {
				return err
			}
		}
		return nil
	}}
	handler, direct := back.startOnSocket(b)
	srv := httptest.NewServer(gateway.New(gateway.Config{Catalog: catalog.Fixed(back.snapshot), Handler: handler}))
	defer srv.Close()
	read := map[string]func(b *testing.B){
		"direct": func(b *testing.B) {
			stream, err := direct.NewStream(b.Context(), &grpc.StreamDesc{ServerStreams: true}, watch, grpc.ForceCodecV2(call.Codec{}))
			if err == nil {
				err = stream.SendMsg(call.NewFrame(nil, nil))
			}
			if err != nil {
				b.Fatal(err)
			}
			for n := 0; ; n++ {
				var f call.Frame
				if err := stream.RecvMsg(&f); err != nil {
					if !errors.Is(err, io.EOF) || n != messages {
						b.Fatal(n, err)
					}
					return
				}
				f.Release()
			}
		},
	}
	for name, accept := range map[string]string{"events": "text/event-stream", "lines": "application/x-ndjson"} {
		read[name] = func(b *testing.B) {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, srv.URL+"/v1/shelves/s:watch", http.NoBody)
			if err != nil {
				b.Fatal(err)
			}
			r.Header.Set("Accept", accept)
			res, err := srv.Client().Do(r)
			if err != nil {
				b.Fatal(err)
			}
			defer res.Body.Close()
			if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
				b.Fatal(res.Status, err)
			}
		}
	}
	took := map[string]time.Duration{}
	for b.Loop() {
		for name, f := range read {
			began := time.Now()
			f(b)
			took[name] += time.Since(began)
		}
	}
	b.ReportMetric(float64(took["direct"])/float64(took["events"]), "events/direct")
	b.ReportMetric(float64(took["direct"])/float64(took["lines"]), "lines/direct")
	b.ReportMetric(messages*float64(b.N)/took["direct"].Seconds(), "direct/s")
}

// BenchmarkTable measures how long the first request after a change of the catalog waits: 1,750 routes.
func BenchmarkTable(b *testing.B) {
	s := corpus(b, "googleapis-core")
	for b.Loop() {
		g := gateway.New(gateway.Config{Catalog: catalog.Fixed(s), Handler: unreachable})
		if res := do(g, "GET", "/nowhere", ""); res.StatusCode != http.StatusNotFound {
			b.Fatal(res.Status)
		}
	}
}

func BenchmarkOpenAPI(b *testing.B) {
	s := corpus(b, "googleapis-core")
	for b.Loop() {
		g := gateway.New(gateway.Config{Catalog: catalog.Fixed(s), Handler: unreachable})
		if res := do(g, "GET", "/openapi.json", ""); res.StatusCode != http.StatusOK {
			b.Fatal(res.Status)
		}
	}
}
