package metrics_test

import (
	"encoding/json"
	"testing"

	"github.com/toolway/toolway/services/metrics"
)

// Pages come from what is scraped: nothing in them may end the process.
func FuzzParsePage(f *testing.F) {
	for _, seed := range []struct{ body, contentType string }{
		{"# TYPE a counter\na_total{b=\"c\"} 1 # {id=\"x\"} 2\n# EOF\n", "application/openmetrics-text; version=1.0.0"},
		{"a{b=\"c\"} 1 1395066363000\nb NaN\n", "text/plain; version=0.0.4"},
		{`{"quoted name", x="y"} +Inf` + "\n", "text/plain; version=1.0.0; escaping=allow-utf-8"},
		{"\x0a\x04name", "application/vnd.google.protobuf"},
		{"", ""},
	} {
		f.Add([]byte(seed.body), seed.contentType)
	}
	f.Fuzz(func(_ *testing.T, body []byte, contentType string) {
		_ = metrics.ParsePage(body, contentType)
	})
}

// Tokens come from callers. What is accepted is canonical.
func FuzzTokens(f *testing.F) {
	f.Add(metrics.CursorAt(begin))
	f.Add("cwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEBYQFi")
	f.Fuzz(func(t *testing.T, s string) {
		if at, err := metrics.CursorTime(s); err == nil && metrics.CursorAt(at) != s {
			t.Errorf("cursor %q is accepted, and is %q", s, metrics.CursorAt(at))
		}
		if again, err := metrics.ParsePageToken(s); err == nil {
			if twice, err := metrics.ParsePageToken(again); err != nil || twice != again {
				t.Errorf("page token %q becomes %q, then %q, %v", s, again, twice, err)
			}
		}
	})
}

// Queries come from callers, and are read before any engine sees them.
func FuzzShape(f *testing.F) {
	f.Add("sort(rate(a{b=~\"c\"}[5m] offset 1h)) by (x)")
	f.Fuzz(func(_ *testing.T, query string) { metrics.ShapeOf(query) })
}

// Answers come from a server that may be anything.
func FuzzRemoteAnswer(f *testing.F) {
	f.Add([]byte(`{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1435781451.781,"1"]}]}`))
	f.Add([]byte(`{"resultType":"matrix","result":[{"metric":{},"values":[[1,"NaN"]],"histograms":[[1,{"count":"1","sum":"2"}]]}]}`))
	f.Add([]byte(`{"resultType":"scalar","result":[1,"+Inf"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			return
		}
		answer, err := metrics.ReadAnswer(b)
		if err != nil {
			return
		}
		for _, s := range answer.Series {
			if len(s.Samples) == 0 {
				t.Errorf("a series without samples: %v", s)
			}
		}
	})
}
