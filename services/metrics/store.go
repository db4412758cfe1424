package metrics

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

const (
	// blockSamples is how many samples are allocated and dropped at a time; 16 bytes each.
	blockSamples = 64
	// maxFuture is by how much a sample's own timestamp may be ahead.
	maxFuture = 10 * time.Minute
)

// store keeps samples in memory: the newest, up to an age, a number of samples and a number of series. From oldest on it has all that was put in.
// Its methods may be called concurrently.
//
// Memory is at most 16 bytes × (maxSamples + blockSamples × series), the labels, and one scrape more.
type store struct {
	maxSamples, maxSeries int
	share                 int // series that each target may have, however many the others have
	retention             time.Duration

	mu      sync.RWMutex
	byName  map[string][]*memSeries
	byHash  map[uint64][]*memSeries
	series  int
	held    []int // series by target
	samples int
	start   int64 // Unix milliseconds: nothing before it is complete
}

// memSeries is one series. Blocks are in order of time. Only the last one grows, and only beyond the length that a reader has seen, so that
// readers need the lock for the slice of blocks alone.
type memSeries struct {
	target int
	labels labels.Labels
	name   string
	blocks [][]Sample
	dead   bool // is no longer in the store
}

func (m *memSeries) lastTime() (int64, bool) {
	if len(m.blocks) == 0 {
		return 0, false
	}
	block := m.blocks[len(m.blocks)-1]
	return block[len(block)-1].Time, true
}

// row is a sample to be stored.
type row struct {
	series *memSeries    // nil, or what an earlier commit put here
	labels labels.Labels // of series
	free   bool          // does not count against the limit of series
	Sample
}

// newStore makes a store for the series of so many targets, at least 1. Half of the series are shared out evenly, for the others it is first come, first served: so
// one target whose series come and go leaves room for those of others, and most of the room is for whoever needs it.
func newStore(targets, maxSamples, maxSeries int, retention time.Duration) *store {
	return &store{
		maxSamples: maxSamples,
		maxSeries:  maxSeries,
		share:      maxSeries / 2 / targets,
		held:       make([]int, targets),
		retention:  retention,
		byName:     make(map[string][]*memSeries),
		byHash:     make(map[uint64][]*memSeries),
		start:      time.Now().UnixMilli(),
	}
}

// commit stores all rows of a target, or none if there would be too many series. Samples that are not after the last one of their series, or not of this time,
// are left out and counted. Each row's series is filled in.
func (st *store) commit(target int, rows []row) (dropped int, err error) {
	now := time.Now()
	from, to := now.Add(-st.retention).UnixMilli(), now.Add(maxFuture).UnixMilli()
	st.mu.Lock()
	defer st.mu.Unlock()
	most := st.maxSeries - st.reserved(target)
	created := 0
	for i := range rows {
		r := &rows[i]
		if r.series == nil || r.series.dead {
			r.series = st.find(r.labels)
		}
		if r.series == nil {
			r.series = st.add(target, r.labels)
			if !r.free {
				created++
			}
		}
		if created > 0 && st.held[target] > st.share && st.series > most {
			st.removeEmpty()
			return 0, fmt.Errorf("store has no room for more than %d series, and of this target, with those that it has no more, for more than %d; expose fewer, or raise --max-series",
				st.maxSeries, st.held[target])
		}
	}
	for _, r := range rows {
		newest, has := r.series.lastTime()
		if has && r.Time <= newest || r.Time < from || r.Time > to {
			dropped++
			continue
		}
		r.series.append(r.Sample)
		st.samples++
	}
	st.removeEmptyOf(rows)
	if st.samples > st.maxSamples {
		st.shrink(st.maxSamples - st.maxSamples/10)
	}
	return dropped, nil
}

// reserved is how many series the other targets may have yet of what is shared out.
func (st *store) reserved(target int) int {
	n := 0
	for other, held := range st.held {
		if other != target {
			n += max(st.share-held, 0)
		}
	}
	return n
}

func (m *memSeries) append(s Sample) {
	n := len(m.blocks)
	if n == 0 || len(m.blocks[n-1]) == blockSamples {
		m.blocks = append(m.blocks, make([]Sample, 0, blockSamples))
		n++
	}
	m.blocks[n-1] = append(m.blocks[n-1], s)
}

func (st *store) find(l labels.Labels) *memSeries {
	for _, m := range st.byHash[l.Hash()] {
		if labels.Equal(m.labels, l) {
			return m
		}
	}
	return nil
}

func (st *store) add(target int, l labels.Labels) *memSeries {
	m := &memSeries{target: target, labels: l, name: l.Get(model.MetricNameLabel)}
	h := l.Hash()
	st.byHash[h] = append(st.byHash[h], m)
	st.byName[m.name] = append(st.byName[m.name], m)
	st.series++
	st.held[target]++
	return m
}

func (st *store) remove(m *memSeries) {
	m.dead = true
	h := m.labels.Hash()
	if st.byHash[h] = slices.DeleteFunc(st.byHash[h], isDead); len(st.byHash[h]) == 0 {
		delete(st.byHash, h)
	}
	st.series--
	st.held[m.target]--
}

func isDead(m *memSeries) bool { return m.dead }

// sweep takes dead series out of the index by name, which is long for some names.
func (st *store) sweep() {
	for name, all := range st.byName {
		if st.byName[name] = slices.DeleteFunc(all, isDead); len(st.byName[name]) == 0 {
			delete(st.byName, name)
		}
	}
}

// removeEmpty removes series that have no samples.
func (st *store) removeEmpty() {
	for _, same := range st.byHash {
		for _, m := range slices.Clone(same) {
			if len(m.blocks) == 0 {
				st.remove(m)
			}
		}
	}
	st.sweep()
}

// removeEmptyOf is removeEmpty where few can be.
func (st *store) removeEmptyOf(rows []row) {
	removed := false
	for _, r := range rows {
		if len(r.series.blocks) == 0 && !r.series.dead {
			st.remove(r.series)
			removed = true
		}
	}
	if removed {
		st.sweep()
	}
}

// expire drops what is older than the retention.
func (st *store) expire(now time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.drop(now.Add(-st.retention).UnixMilli())
}

// shrink drops the oldest blocks until at most so many samples are left.
func (st *store) shrink(most int) {
	type end struct {
		time int64
		size int
	}
	var ends []end
	for _, same := range st.byHash {
		for _, m := range same {
			for _, block := range m.blocks {
				ends = append(ends, end{block[len(block)-1].Time, len(block)})
			}
		}
	}
	slices.SortFunc(ends, func(a, b end) int { return int(max(min(a.time-b.time, 1), -1)) })
	left := st.samples
	for _, e := range ends {
		if left <= most {
			break
		}
		left -= e.size
		st.start = max(st.start, e.time+1)
	}
	st.drop(st.start)
}

// drop drops blocks that end before a time.
func (st *store) drop(before int64) {
	for _, same := range st.byHash {
		for _, m := range slices.Clone(same) {
			n := 0
			for n < len(m.blocks) && m.blocks[n][len(m.blocks[n])-1].Time < before {
				st.samples -= len(m.blocks[n])
				n++
			}
			if n > 0 {
				// A new slice, so that the array of the old one does not keep what was dropped.
				m.blocks = slices.Clone(m.blocks[n:])
			}
			if len(m.blocks) == 0 {
				st.remove(m)
			}
		}
	}
	st.sweep()
}

// oldest is the time, in Unix milliseconds, from which on samples are complete.
func (st *store) oldest() int64 {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return max(st.start, time.Now().Add(-st.retention).UnixMilli())
}
