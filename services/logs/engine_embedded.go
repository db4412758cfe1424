package logs

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/VictoriaLogs/lib/logstorage"
)

// DefaultRetention is how long the embedded engine keeps entries unless told otherwise.
const DefaultRetention = 31 * 24 * time.Hour

// gather is how long a follower that was woken waits for more, so that a busy producer does not cause a query per entry.
const gather = 20 * time.Millisecond

// maxFollowBytes bounds what a follower is given at once.
const maxFollowBytes = 4 << 20

// maxRecent is how many appended batches the engine remembers the time range of, for followers that keep up.
const maxRecent = 1024

// EmbeddedOptions configures [OpenEmbedded]. The zero value works.
type EmbeddedOptions struct {
	// Retention is how long entries are kept, by their time. Default: [DefaultRetention]. At least a day.
	Retention time.Duration
	// FlushInterval is how long the engine gathers entries in memory before it writes them to disk. Default: 1 s, which is also
	// the least. A process that is killed loses what came in twice this time and a second before.
	FlushInterval time.Duration
	// StreamFields are the fields whose values group entries on disk. They should have few values. Default: "service".
	StreamFields []string
}

// Embedded is VictoriaLogs' storage engine in this process.
type Embedded struct {
	storage   *logstorage.Storage
	options   EmbeddedOptions
	id        uint32
	gate      gate
	closeOnce sync.Once

	mu       sync.Mutex
	last     uint64        // sequence of the newest entry
	flushed  uint64        // every entry up to here can be read
	recent   []batch       // the newest batches, in order
	appended chan struct{} // closed and replaced when entries are appended

	flushing sync.Mutex
}

// batch is where in time the entries of one Append lie.
type batch struct {
	first, last uint64
	from, to    int64
}

// OpenEmbedded opens the store in dir, which is created if needed and belongs to one process at a time.
func OpenEmbedded(dir string, options EmbeddedOptions) (_ *Embedded, err error) {
	options.Retention = max(cmp.Or(options.Retention, DefaultRetention), 24*time.Hour)
	options.FlushInterval = max(options.FlushInterval, time.Second)
	if options.StreamFields == nil {
		options.StreamFields = []string{"service"}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	id, err := storeID(filepath.Join(dir, "store.id"))
	if err != nil {
		return nil, err
	}
	// The engine panics when the directory is in use or damaged. That is the operator's to mend, not a bug here.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("open log store in %q: %v; is another process using it?", dir, r)
		}
	}()
	return &Embedded{
		storage: logstorage.MustOpenStorage(filepath.Join(dir, "victorialogs"), &logstorage.StorageConfig{
			Retention:       options.Retention,
			FlushInterval:   options.FlushInterval,
			FutureRetention: maxAhead + 24*time.Hour,
			// The engine reads on this many goroutines a query; the files are local.
			DefaultParallelReaders: 4,
			MinFreeDiskSpaceBytes:  64 << 20,
		}),
		options:  options,
		id:       id,
		last:     uint64(time.Now().UnixMicro()),
		appended: make(chan struct{}),
	}, nil
}

// storeID reads the number that tells this store from others, and makes one for a new store.
func storeID(path string) (uint32, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		id, err := strconv.ParseUint(string(text), 16, 32)
		if err != nil {
			return 0, fmt.Errorf("read store id from %q: %w; remove the file to get a new id", path, err)
		}
		return uint32(id), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("read store id: %w", err)
	}
	var random [4]byte
	_, _ = rand.Read(random[:])
	id := binary.BigEndian.Uint32(random[:])
	if err := os.WriteFile(path, strconv.AppendUint(nil, uint64(id), 16), 0o644); err != nil {
		return 0, fmt.Errorf("write store id: %w", err)
	}
	return id, nil
}

// Retention implements [Engine].
func (e *Embedded) Retention() time.Duration { return e.options.Retention }

// Select implements [Engine]. It sees every entry whose Append has returned.
func (e *Embedded) Select(ctx context.Context, s Selection) ([]Entry, bool, error) {
	ctx, leave, err := e.gate.enter(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	e.settle()
	order := "sort by (" + fieldTime + ")"
	if s.NewestFirst {
		order += " desc"
	}
	query := fmt.Sprintf("%s | %s limit %d", s.Filter, order, s.Limit+1)
	found, more, err := e.run(ctx, query, s.At, s.Start.UnixNano(), s.End.UnixNano()-1, s.Limit, s.MaxBytes)
	if err != nil {
		return nil, false, err
	}
	slices.SortStableFunc(found, func(a, b Entry) int {
		if s.NewestFirst {
			a, b = b, a
		}
		return a.Time.Compare(b.Time)
	})
	return found, more, nil
}

// Append implements [Engine].
func (e *Embedded) Append(ctx context.Context, entries []Entry) error {
	if len(entries) == 0 {
		return ctx.Err()
	}
	_, leave, err := e.gate.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if e.storage.IsReadOnly() {
		return ErrReadOnly
	}
	rows := logstorage.GetLogRows(e.options.StreamFields, nil, nil, nil, "")
	defer logstorage.PutLogRows(rows)

	// Numbering and adding are one step: once the lock is free, whatever has a sequence is in the engine.
	e.mu.Lock()
	defer e.mu.Unlock()
	added := batch{first: e.last + 1, from: math.MaxInt64, to: math.MinInt64}
	var fields []logstorage.Field
	for _, entry := range entries {
		e.last = max(e.last+1, uint64(time.Now().UnixMicro()))
		t := entry.Time.UnixNano()
		added.from, added.to = min(added.from, t), max(added.to, t)
		fields = append(fields[:0],
			logstorage.Field{Name: fieldMessage, Value: entry.Message},
			logstorage.Field{Name: fieldSequence, Value: strconv.FormatUint(e.last, 10)})
		for name, value := range entry.Fields {
			fields = append(fields, logstorage.Field{Name: name, Value: value})
		}
		rows.MustAdd(logstorage.TenantID{}, t, fields, -1)
		if rows.NeedFlush() {
			e.storage.MustAddRows(rows)
			rows.ResetKeepSettings()
		}
	}
	e.storage.MustAddRows(rows)
	added.last = e.last
	if len(e.recent) == maxRecent {
		e.recent = slices.Delete(e.recent, 0, maxRecent/2)
	}
	e.recent = append(e.recent, added)
	close(e.appended)
	e.appended = make(chan struct{})
	return nil
}

// Origin implements [Engine].
func (e *Embedded) Origin(since time.Time) Position {
	if since.IsZero() {
		e.mu.Lock()
		defer e.mu.Unlock()
		return Position{Store: e.id, Sequence: e.last}
	}
	return Position{Store: e.id, Time: since.UnixNano()}
}

// Check implements [Engine].
func (e *Embedded) Check(after Position) error {
	e.mu.Lock()
	last := e.last
	e.mu.Unlock()
	retained := uint64(time.Now().Add(-e.options.Retention).UnixMicro())
	backfill := after.Sequence == 0 && after.Time != 0
	if after.Store == e.id && after.Sequence <= last && (backfill || after.Sequence >= retained) {
		return nil
	}
	// A minute of margin, so that the position that is offered still works when it is used.
	return &OutOfRangeError{Oldest: Position{Store: e.id, Sequence: retained + uint64(time.Minute.Microseconds())}}
}

// Follow implements [Engine]. The order is that of arrival, whatever the entries' times are.
func (e *Embedded) Follow(ctx context.Context, filter string, after Position, limit int) ([]Followed, Position, error) {
	ctx, leave, err := e.gate.enter(ctx)
	if err != nil {
		return nil, after, err
	}
	defer leave()
	if err := e.await(ctx, after.Sequence); err != nil {
		return nil, after, err
	}
	until := e.settle()
	from, to := e.span(after.Sequence)
	from = max(from, after.Time, time.Now().Add(-e.options.Retention).UnixNano())
	query := fmt.Sprintf("(%s) %s:>%d %s:<=%d | sort by (%s) limit %d",
		filter, fieldSequence, after.Sequence, fieldSequence, until, fieldSequence, limit+1)
	found, more, err := e.run(ctx, query, time.Now(), from, to, limit, maxFollowBytes)
	if err != nil {
		return nil, after, err
	}
	slices.SortFunc(found, func(a, b Entry) int { return cmp.Compare(a.Sequence, b.Sequence) })
	next := Position{Store: e.id, Time: after.Time, Sequence: until}
	followed := make([]Followed, len(found))
	for i, entry := range found {
		followed[i] = Followed{entry, Position{Store: e.id, Time: after.Time, Sequence: entry.Sequence}}
	}
	if more {
		next = followed[len(followed)-1].Position
	}
	return followed, next, nil
}

// await returns when there are entries after seq.
func (e *Embedded) await(ctx context.Context, seq uint64) error {
	for {
		e.mu.Lock()
		last, appended := e.last, e.appended
		e.mu.Unlock()
		if last > seq {
			break
		}
		select {
		case <-appended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-time.After(gather):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// settle makes every appended entry readable and returns the sequence up to which that holds.
func (e *Embedded) settle() uint64 {
	e.flushing.Lock()
	defer e.flushing.Unlock()
	e.mu.Lock()
	last, flushed := e.last, e.flushed
	e.mu.Unlock()
	if flushed < last {
		e.storage.DebugFlush()
		e.mu.Lock()
		e.flushed = last
		e.mu.Unlock()
	}
	return last
}

// span bounds the time of the entries after seq, as far as the engine remembers.
func (e *Embedded) span(seq uint64) (from, to int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.recent) == 0 || seq+1 < e.recent[0].first {
		return math.MinInt64, time.Now().Add(maxAhead).UnixNano()
	}
	from, to = math.MaxInt64, math.MinInt64
	for _, b := range e.recent {
		if b.last > seq {
			from, to = min(from, b.from), max(to, b.to)
		}
	}
	return from, to
}

// run evaluates query over [from, to], both inclusive, and collects at most limit entries and about maxBytes.
func (e *Embedded) run(ctx context.Context, query string, at time.Time, from, to int64, limit, maxBytes int) ([]Entry, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, context.Cause(ctx)
	}
	if from > to {
		return nil, false, nil
	}
	q, err := logstorage.ParseQueryAtTimestamp(query, at.UnixNano())
	if err != nil {
		return nil, false, newQueryError(query, err)
	}
	q.AddTimeFilter(from, to)
	stopped, stop := context.WithCancel(ctx)
	defer stop()

	c := collector{limit: limit, maxBytes: maxBytes}
	qctx := logstorage.NewQueryContext(stopped, &logstorage.QueryStats{}, []logstorage.TenantID{{}}, q, false, nil)
	err = e.storage.RunQuery(qctx, func(_ uint, block *logstorage.DataBlock) {
		if !c.add(block) {
			stop()
		}
	})
	switch {
	case ctx.Err() != nil:
		return nil, false, context.Cause(ctx)
	case c.err != nil:
		return nil, false, c.err
	case err != nil && !c.more:
		return nil, false, fmt.Errorf("run query: %w", err)
	}
	return c.entries, c.more, nil
}

// collector gathers entries from the engine's blocks until a limit is reached.
type collector struct {
	limit, maxBytes int

	mu      sync.Mutex
	entries []Entry
	bytes   int
	more    bool
	err     error
}

// add copies a block's entries, since the engine reuses its memory, and reports whether more are wanted.
func (c *collector) add(block *logstorage.DataBlock) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	columns := block.GetColumns(false)
	for row := range block.RowsCount() {
		if c.more || c.err != nil {
			return false
		}
		entry := Entry{Fields: make(map[string]string, len(columns))}
		for _, column := range columns {
			if c.err = entry.set(strings.Clone(column.Name), strings.Clone(column.Values[row])); c.err != nil {
				return false
			}
		}
		c.bytes += entry.size()
		if len(c.entries) == c.limit || c.bytes > c.maxBytes && len(c.entries) > 0 {
			c.more = true
			return false
		}
		c.entries = append(c.entries, entry)
	}
	return true
}

// Close implements [Engine]. What was appended is on disk when it returns.
func (e *Embedded) Close() error {
	e.closeOnce.Do(func() {
		e.gate.close()
		e.storage.MustClose()
	})
	return nil
}
