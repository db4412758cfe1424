package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
)

// remoteData is "data" of the API's answer to a query: https://prometheus.io/docs/prometheus/latest/querying/api/#expression-query-result-formats.
type remoteData struct {
	ResultType string          `json:"resultType"`
	Result     json.RawMessage `json:"result"`
}

type remoteSeries struct {
	Metric     map[string]string `json:"metric"`
	Value      *remoteSample     `json:"value"`
	Values     []remoteSample    `json:"values"`
	Histogram  *remoteHistogram  `json:"histogram"`
	Histograms []remoteHistogram `json:"histograms"`
}

func (d remoteData) answer() (*Answer, error) {
	a := &Answer{Matrix: d.ResultType == "matrix"}
	switch d.ResultType {
	case "scalar":
		var s remoteSample
		if err := json.Unmarshal(d.Result, &s); err != nil {
			return nil, fmt.Errorf("read Prometheus' scalar: %w", err)
		}
		a.Series = []Series{{Samples: []Sample{Sample(s)}}}
	case "vector", "matrix":
		var all []remoteSeries
		if err := json.Unmarshal(d.Result, &all); err != nil {
			return nil, fmt.Errorf("read Prometheus' series: %w", err)
		}
		for _, s := range all {
			a.Series = s.appendTo(a.Series)
		}
	case "string":
		return nil, &QueryError{Text: "is a text, which has no values over time; use an expression that gives a number or series", Position: -1}
	default:
		return nil, fmt.Errorf("prometheus' result is a %q, which is not known", d.ResultType)
	}
	return a, nil
}

func (s remoteSeries) appendTo(all []Series) []Series {
	if s.Value != nil {
		s.Values = append(s.Values, *s.Value)
	}
	if s.Histogram != nil {
		s.Histograms = append(s.Histograms, *s.Histogram)
	}
	var floats, counts, sums []Sample
	for _, v := range s.Values {
		floats = append(floats, Sample(v))
	}
	for _, h := range s.Histograms {
		counts, sums = append(counts, h.count), append(sums, h.sum)
	}
	return withHistograms(all, labels.FromMap(s.Metric), floats, counts, sums)
}

// remoteSample is [seconds, "value"].
type remoteSample Sample

// UnmarshalJSON implements [json.Unmarshaler].
func (s *remoteSample) UnmarshalJSON(b []byte) error {
	var text string
	at, err := pair(b, &text)
	if err != nil {
		return err
	}
	s.Time = at
	s.Value, err = number(text)
	return err
}

// remoteHistogram is [seconds, {"count": "value", "sum": "value", "buckets": …}].
type remoteHistogram struct{ count, sum Sample }

// UnmarshalJSON implements [json.Unmarshaler].
func (h *remoteHistogram) UnmarshalJSON(b []byte) error {
	var text struct{ Count, Sum string }
	at, err := pair(b, &text)
	if err != nil {
		return err
	}
	h.count.Time, h.sum.Time = at, at
	count, err := number(text.Count)
	if err != nil {
		return err
	}
	sum, err := number(text.Sum)
	h.count.Value, h.sum.Value = count, sum
	return err
}

// pair reads [seconds, second].
func pair(b []byte, second any) (milliseconds int64, err error) {
	var seconds float64
	both := []any{&seconds, second}
	if err := json.Unmarshal(b, &both); err != nil {
		return 0, err
	}
	if len(both) != 2 {
		return 0, errors.New("a sample is not a pair")
	}
	if ms := math.Round(seconds * 1000); math.Abs(ms) < 1<<53 {
		return int64(ms), nil
	}
	return 0, fmt.Errorf("the time %v of a sample is out of range", seconds)
}

func number(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("the value %q of a sample is no number", cut(s, 50))
	}
	return v, nil
}
