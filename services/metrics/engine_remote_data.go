package metrics

import (
	"bytes"
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
	at, text, err := pair(b)
	if err != nil {
		return err
	}
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return errors.New("the value of a sample is no text")
	}
	s.Time = at
	s.Value, err = number(string(text[1 : len(text)-1]))
	return err
}

// remoteHistogram is [seconds, {"count": "value", "sum": "value", "buckets": …}].
type remoteHistogram struct{ count, sum Sample }

// UnmarshalJSON implements [json.Unmarshaler].
func (h *remoteHistogram) UnmarshalJSON(b []byte) error {
	at, second, err := pair(b)
	if err != nil {
		return err
	}
	var text struct{ Count, Sum string }
	if err := json.Unmarshal(second, &text); err != nil {
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

// pair reads [seconds, second], of which an answer may have hundreds of thousands.
func pair(b []byte) (milliseconds int64, second []byte, err error) {
	first, second, ok := bytes.Cut(b, []byte(","))
	if !ok || first[0] != '[' || second[len(second)-1] != ']' {
		return 0, nil, errors.New("a sample is not a pair")
	}
	seconds, err := strconv.ParseFloat(string(bytes.TrimSpace(first[1:])), 64)
	if err != nil {
		return 0, nil, errors.New("the time of a sample is no number")
	}
	if ms := math.Round(seconds * 1000); math.Abs(ms) < 1<<53 {
		return int64(ms), bytes.TrimSpace(second[:len(second)-1]), nil
	}
	return 0, nil, fmt.Errorf("the time %v of a sample is out of range", seconds)
}

func number(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("the value %q of a sample is no number", cut(s, 50))
	}
	return v, nil
}
