package metrics

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// checkEvery is how many series are looked at between two looks at the context.
const checkEvery = 1024

// Querier implements [storage.Queryable]. Samples from before [store.oldest] are not shown, even where a series still has some.
func (st *store) Querier(from, to int64) (storage.Querier, error) {
	return &querier{store: st, from: max(from, st.oldest()), to: to}, nil
}

// querier reads samples with from <= time <= to.
type querier struct {
	store    *store
	from, to int64
}

// Close implements [storage.Querier].
func (*querier) Close() error { return nil }

// Select implements [storage.Querier]: each series as it is now, whatever is stored or dropped later.
func (q *querier) Select(ctx context.Context, sorted bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found, err := q.find(ctx, matchers)
	if err != nil {
		return storage.ErrSeriesSet(err)
	}
	if sorted {
		slices.SortFunc(found, func(a, b snapshot) int { return labels.Compare(a.labels, b.labels) })
	}
	return &seriesSet{found: found, next: -1}
}

// find returns the series with samples that match.
func (q *querier) find(ctx context.Context, matchers []*labels.Matcher) ([]snapshot, error) {
	q.store.mu.RLock()
	defer q.store.mu.RUnlock()
	var found []snapshot
	seen := 0
	look := func(m *memSeries) error {
		if seen++; seen%checkEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, matcher := range matchers {
			if !matcher.Matches(m.labels.Get(matcher.Name)) {
				return nil
			}
		}
		if samples := q.overlap(m.blocks); samples.n > 0 {
			found = append(found, snapshot{labels: m.labels, samples: samples})
		}
		return nil
	}
	for _, matcher := range matchers {
		if matcher.Name == model.MetricNameLabel && matcher.Type == labels.MatchEqual && matcher.Value != "" {
			for _, m := range q.store.byName[matcher.Value] {
				if err := look(m); err != nil {
					return nil, err
				}
			}
			return found, nil
		}
	}
	for _, same := range q.store.byName {
		for _, m := range same {
			if err := look(m); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// overlap is a copy of the blocks that have samples in the querier's range, as the samples in it.
func (q *querier) overlap(blocks [][]Sample) window {
	first := sort.Search(len(blocks), func(i int) bool { return blocks[i][len(blocks[i])-1].Time >= q.from })
	end := first + sort.Search(len(blocks)-first, func(i int) bool { return blocks[first+i][0].Time > q.to })
	if first == end {
		return window{}
	}
	head, tail := blocks[first], blocks[end-1]
	skip := sort.Search(len(head), func(i int) bool { return head[i].Time >= q.from })
	over := len(tail) - sort.Search(len(tail), func(i int) bool { return tail[i].Time > q.to })
	all := (end-first-1)*blockSamples + len(tail)
	if skip+over >= all {
		return window{}
	}
	return window{blocks: slices.Clone(blocks[first:end]), skip: skip, n: all - skip - over}
}

// window is some samples of a series. All blocks but the last are full.
type window struct {
	blocks  [][]Sample
	skip, n int
}

// Len implements [storage.Samples].
func (w window) Len() int { return w.n }

// Get implements [storage.Samples].
func (w window) Get(i int) chunks.Sample {
	i += w.skip
	return (*point)(&w.blocks[i/blockSamples][i%blockSamples])
}

// point shows a stored sample as Prometheus has them.
type point Sample

// T implements [chunks.Sample].
func (p *point) T() int64 { return p.Time }

// ST implements [chunks.Sample]: when a counter began is not stored.
func (*point) ST() int64 { return 0 }

// F implements [chunks.Sample].
func (p *point) F() float64 { return p.Value }

// H implements [chunks.Sample].
func (*point) H() *histogram.Histogram { return nil }

// FH implements [chunks.Sample].
func (*point) FH() *histogram.FloatHistogram { return nil }

// Type implements [chunks.Sample].
func (*point) Type() chunkenc.ValueType { return chunkenc.ValFloat }

// Copy implements [chunks.Sample].
func (p *point) Copy() chunks.Sample {
	c := *p
	return &c
}

// LabelValues implements [storage.LabelQuerier].
func (q *querier) LabelValues(ctx context.Context, name string, _ *storage.LabelHints, matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	found, err := q.find(ctx, matchers)
	values := make(map[string]bool)
	for _, s := range found {
		if v := s.labels.Get(name); v != "" {
			values[v] = true
		}
	}
	return keys(values), nil, err
}

// LabelNames implements [storage.LabelQuerier].
func (q *querier) LabelNames(ctx context.Context, _ *storage.LabelHints, matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	found, err := q.find(ctx, matchers)
	names := make(map[string]bool)
	for _, s := range found {
		s.labels.Range(func(l labels.Label) { names[l.Name] = true })
	}
	return keys(names), nil, err
}

func keys[K cmp.Ordered](m map[K]bool) []K {
	all := make([]K, 0, len(m))
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

type seriesSet struct {
	found []snapshot
	next  int
}

// Next implements [storage.SeriesSet].
func (s *seriesSet) Next() bool { s.next++; return s.next < len(s.found) }

// At implements [storage.SeriesSet].
func (s *seriesSet) At() storage.Series { return &s.found[s.next] }

// Err implements [storage.SeriesSet].
func (*seriesSet) Err() error { return nil }

// Warnings implements [storage.SeriesSet].
func (*seriesSet) Warnings() annotations.Annotations { return nil }

// snapshot is a series as a query sees it.
type snapshot struct {
	labels  labels.Labels
	samples window
}

// Labels implements [storage.Series].
func (s *snapshot) Labels() labels.Labels { return s.labels }

// Iterator implements [storage.Series].
func (s *snapshot) Iterator(chunkenc.Iterator) chunkenc.Iterator {
	return storage.NewListSeriesIterator(s.samples)
}
