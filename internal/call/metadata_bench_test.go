package call_test

import (
	"net/http"
	"testing"

	"github.com/toolway/toolway/internal/call"
)

// smallHeader is that of a small request, of which two keys cross.
func smallHeader() http.Header {
	return http.Header{
		"Accept": {"*/*"}, "Accept-Encoding": {"gzip"}, "User-Agent": {"Go-http-client/1.1"}, "Content-Type": {"application/json"}, "Content-Length": {"33"},
		"Authorization": {"Bearer abcdef"}, "Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "X-Request-Id": {"of-the-caller"},
	}
}

// BenchmarkFilterText measures what crosses of a small request, by names and with a pattern.
func BenchmarkFilterText(b *testing.B) {
	h := smallHeader()
	for name, r := range map[string]*call.Rules{"names": call.NewRules(nil), "patterns": call.NewRules([]string{"x-acme-*"})} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if md := r.FilterText(h); len(md) != 2 {
					b.Fatal(md)
				}
			}
		})
	}
}
