package metrics

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
)

const (
	// maxAnswerBytes bounds the series of an answer, so that it passes through what lies between with its default limits. One series is kept
	// whatever its size.
	maxAnswerBytes = 2 << 20
	// maxWarnings and maxWarningBytes bound what an engine can add.
	maxWarnings     = 20
	maxWarningBytes = 1 << 10
)

// shorten puts the series in the order that the contract promises and keeps the first of them, at most maxSeries; it says how many it left out.
func shorten(answer *Answer, sorted bool, maxSeries int) (kept []*metricsv1.Series, truncated int64) {
	series := answer.Series
	if !sorted {
		slices.SortFunc(series, func(a, b Series) int {
			return cmp.Or(compareValues(last(b), last(a)), labels.Compare(a.Labels, b.Labels))
		})
	}
	size := 0
	for i, s := range series {
		if i == maxSeries {
			return kept, int64(len(series) - i)
		}
		p := s.proto()
		size += proto.Size(p)
		if size > maxAnswerBytes && i > 0 {
			return kept, int64(len(series) - i)
		}
		kept = append(kept, p)
	}
	return kept, 0
}

func last(s Series) float64 { return s.Samples[len(s.Samples)-1].Value }

// compareValues is the order of numbers, with NaN as the least.
func compareValues(a, b float64) int {
	switch {
	case math.IsNaN(a) && math.IsNaN(b):
		return 0
	case math.IsNaN(a):
		return -1
	case math.IsNaN(b):
		return 1
	}
	return cmp.Compare(a, b)
}

func (s Series) proto() *metricsv1.Series {
	p := &metricsv1.Series{Labels: make(map[string]string, s.Labels.Len())}
	// An expression can make labels that are no UTF-8, which protobuf does not carry.
	s.Labels.Range(func(l labels.Label) {
		p.Labels[strings.ToValidUTF8(l.Name, "\uFFFD")] = strings.ToValidUTF8(l.Value, "\uFFFD")
	})
	if len(s.Samples) > 0 {
		p.Samples = make([]*metricsv1.Sample, len(s.Samples))
	}
	for i, sample := range s.Samples {
		p.Samples[i] = &metricsv1.Sample{Time: timestamppb.New(cursor(sample.Time).time()), Value: proto.Float64(sample.Value)}
	}
	return p
}

// warnings bounds what an engine said.
func warnings(from []string) []string {
	if len(from) > maxWarnings {
		from = from[:maxWarnings]
	}
	out := make([]string, len(from))
	for i, w := range from {
		out[i] = cut(w, maxWarningBytes)
	}
	return out
}
