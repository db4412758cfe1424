package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// Defaults of [EmbeddedOptions].
const (
	DefaultInterval   = 5 * time.Second
	DefaultRetention  = 2 * time.Hour
	DefaultMaxSamples = 4_000_000
	DefaultMaxSeries  = 20_000
)

// EmbeddedOptions configures [OpenEmbedded]. The zero value works, and scrapes nothing.
type EmbeddedOptions struct {
	// Targets are what is scraped.
	Targets []Target
	// Interval is how often. Default: [DefaultInterval].
	Interval time.Duration
	// Timeout ends a scrape. Default: Interval, at most 10 s.
	Timeout time.Duration
	// TargetSamples and TargetBytes bound one scrape of a target; one that is beyond fails as a whole. Default: 10,000 samples and 10 MiB of text,
	// decompressed.
	TargetSamples, TargetBytes int
	// Retention is how long samples are kept. Default: [DefaultRetention].
	Retention time.Duration
	// MaxSamples is how many samples are kept, 16 bytes each; the oldest go first. Default: [DefaultMaxSamples], 64 MB.
	MaxSamples int
	// MaxSeries is how many series are kept; a scrape that would bring more fails. Half of them are shared out evenly among the targets, whatever others bring.
	// Default: [DefaultMaxSeries].
	MaxSeries int
	// QuerySamples is how many samples one query may hold at a time. Default: 5,000,000, 80 MB.
	QuerySamples int
	// QueryReads is how many samples one query may read in all. Default: 50,000,000.
	QueryReads int
	// QuerySeries is how many series one query may touch. Default: 10,000.
	QuerySeries int
	// Concurrent is how many queries run at a time; more wait. Default: 4.
	Concurrent int
	// Client scrapes. Default: one that follows no redirects to other hosts.
	Client *http.Client
	// Registerer takes the PromQL engine's own metrics. Default: none.
	Registerer prometheus.Registerer
	// Logger is told of scrapes that fail. Default: nothing is logged.
	Logger *slog.Logger
}

// Embedded is Prometheus' PromQL engine over samples in memory, which it scrapes from its targets. What it holds ends with the process.
type Embedded struct {
	store  *store
	engine *promql.Engine
	parser parser.Parser
	gate   *gate // scrapes and calls are inside
}

// OpenEmbedded starts an engine and its scrapes.
func OpenEmbedded(options EmbeddedOptions) (*Embedded, error) {
	options.Interval = cmp.Or(options.Interval, DefaultInterval)
	options.Timeout = cmp.Or(options.Timeout, min(options.Interval, 10*time.Second))
	options.TargetSamples = cmp.Or(options.TargetSamples, 10_000)
	options.TargetBytes = cmp.Or(options.TargetBytes, 10<<20)
	options.Retention = cmp.Or(options.Retention, DefaultRetention)
	options.MaxSamples = cmp.Or(options.MaxSamples, DefaultMaxSamples)
	options.MaxSeries = cmp.Or(options.MaxSeries, DefaultMaxSeries)
	options.QuerySamples = cmp.Or(options.QuerySamples, 5_000_000)
	options.QueryReads = cmp.Or(options.QueryReads, 50_000_000)
	options.QuerySeries = cmp.Or(options.QuerySeries, 10_000)
	options.Concurrent = cmp.Or(options.Concurrent, 4)
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	for name, n := range map[string]int64{
		"interval": int64(options.Interval), "timeout": int64(options.Timeout), "target samples": int64(options.TargetSamples), "target bytes": int64(options.TargetBytes),
		"retention": int64(options.Retention), "samples": int64(options.MaxSamples), "series": int64(options.MaxSeries), "query samples": int64(options.QuerySamples), "query reads": int64(options.QueryReads),
		"query series": int64(options.QuerySeries), "concurrent queries": int64(options.Concurrent),
	} {
		if n <= 0 {
			return nil, fmt.Errorf("the limit of %s is negative; leave it out for the default", name)
		}
	}
	if err := checkTargets(options.Targets); err != nil {
		return nil, err
	}
	e := &Embedded{store: newStore(max(len(options.Targets), 1), options.MaxSamples, options.MaxSeries, options.Retention), parser: parser.NewParser(parser.Options{}), gate: newGate()}
	e.engine = promql.NewEngine(promql.EngineOpts{
		Logger:               options.Logger,
		Reg:                  options.Registerer,
		MaxSamples:           options.QuerySamples,
		Timeout:              24 * time.Hour, // calls bring deadlines
		ActiveQueryTracker:   make(slots, options.Concurrent),
		EnableAtModifier:     true,
		EnableNegativeOffset: true,
		EnableQueryCost:      true, // with it, the engine looks at the context at each step of each series
		Parser:               e.parser,
		NoStepSubqueryIntervalFn: func(int64) int64 {
			return max(options.Interval, minStep).Milliseconds()
		},
	})
	e.engine.SetQueryLimits(uint64(options.QuerySeries), uint64(options.QueryReads), 0)
	client := options.Client
	if client == nil {
		client = &http.Client{CheckRedirect: stayOnHost}
	}
	for i, target := range options.Targets {
		s := &scraper{target: target, number: i, options: options, client: client, store: e.store}
		e.gate.run(s.run)
	}
	e.gate.run(func(ctx context.Context) { e.expire(ctx, min(max(options.Retention/100, time.Second), time.Minute)) })
	return e, nil
}

// expire drops old samples now and then.
func (e *Embedded) expire(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			e.store.expire(now)
		case <-ctx.Done():
			return
		}
	}
}

// Instant implements [Engine].
func (e *Embedded) Instant(ctx context.Context, query string, at time.Time) (*Answer, error) {
	return e.query(ctx, at, func(ctx context.Context) (promql.Query, error) {
		return e.engine.NewInstantQuery(ctx, e.store, nil, query, at)
	}, query)
}

// Range implements [Engine].
func (e *Embedded) Range(ctx context.Context, query string, grid Grid) (*Answer, error) {
	return e.query(ctx, grid.Start, func(ctx context.Context) (promql.Query, error) {
		return e.engine.NewRangeQuery(ctx, e.store, nil, query, grid.Start, grid.End, grid.Step)
	}, query)
}

func (e *Embedded) query(ctx context.Context, from time.Time, prepare func(context.Context) (promql.Query, error), text string) (*Answer, error) {
	ctx, leave, err := e.gate.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	query, err := prepare(ctx)
	if err != nil {
		return nil, evaluationError(ctx, err, false)
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil {
		return nil, evaluationError(ctx, result.Err, true)
	}
	answer, err := answerOf(result.Value)
	if err != nil {
		return nil, err
	}
	warned, noted := result.Warnings.AsStrings(text, maxWarnings, maxWarnings)
	if oldest := e.Oldest(); from.Before(oldest) {
		warned = append([]string{fmt.Sprintf("nothing is known from before %s", stamp(oldest))}, warned...)
	}
	slices.Sort(noted)
	answer.Warnings = slices.Concat(warned, noted)
	return answer, nil
}

// evaluationError turns what the PromQL engine returned into what an [Engine] returns.
func evaluationError(ctx context.Context, err error, parsed bool) error {
	var tooManySamples promql.ErrTooManySamples
	var tooManySeries promql.ErrTooManySeries
	var tooManyRead promql.ErrTooManySamplesRead
	var timeout promql.ErrQueryTimeout
	var storage promql.ErrStorage
	var bug runtime.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &timeout):
		return context.DeadlineExceeded
	case errors.As(err, &tooManySamples), errors.As(err, &tooManySeries), errors.As(err, &tooManyRead):
		return &TooLargeError{Text: err.Error()}
	case errors.As(err, &storage), errors.As(err, &bug):
		return fmt.Errorf("evaluate: %w", err)
	}
	q := queryError(err)
	q.Parsed = parsed
	return q
}

// answerOf copies a result, which is the engine's.
func answerOf(v parser.Value) (*Answer, error) {
	a := &Answer{}
	switch v := v.(type) {
	case promql.Scalar:
		a.Series = []Series{{Samples: []Sample{{v.T, v.V}}}}
	case promql.Vector:
		for _, s := range v {
			if s.H != nil {
				a.Series = withHistograms(a.Series, s.Metric, nil, []Sample{{s.T, s.H.Count}}, []Sample{{s.T, s.H.Sum}})
				continue
			}
			a.Series = append(a.Series, Series{Labels: s.Metric, Samples: []Sample{{s.T, s.F}}})
		}
	case promql.Matrix:
		a.Matrix = true
		for _, s := range v {
			var floats, counts, sums []Sample
			for _, p := range s.Floats {
				floats = append(floats, Sample{p.T, p.F})
			}
			for _, p := range s.Histograms {
				counts = append(counts, Sample{p.T, p.H.Count})
				sums = append(sums, Sample{p.T, p.H.Sum})
			}
			a.Series = withHistograms(a.Series, s.Metric, floats, counts, sums)
		}
	default:
		return nil, &QueryError{Text: "is a text, which has no values over time; use an expression that gives a number or series", Position: -1}
	}
	return a, nil
}

// Series implements [Engine].
func (e *Embedded) Series(ctx context.Context, selector string, start, end time.Time) ([]labels.Labels, error) {
	ctx, leave, err := e.gate.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	expr, err := e.parser.ParseExpr(selector)
	if err != nil {
		return nil, queryError(err)
	}
	vector, ok := expr.(*parser.VectorSelector)
	if !ok || vector.OriginalOffset != 0 || vector.Timestamp != nil || vector.StartOrEnd != 0 {
		return nil, &QueryError{Text: `is not a plain selector; use one such as up or {job="shop"}`, Position: -1}
	}
	q := &querier{store: e.store, from: max(start.UnixMilli(), e.store.oldest()), to: end.UnixMilli()}
	found, err := q.find(ctx, vector.LabelMatchers)
	if err != nil {
		return nil, err
	}
	all := make([]labels.Labels, len(found))
	for i, s := range found {
		all[i] = s.labels
	}
	slices.SortFunc(all, labels.Compare)
	return all, nil
}

// Oldest implements [Engine]: since the engine was opened, as far as samples are kept.
func (e *Embedded) Oldest() time.Time { return cursor(e.store.oldest()).time() }

// Close implements [Engine].
func (e *Embedded) Close() error {
	e.gate.close()
	return nil
}

// slots admits so many queries at a time; it is what the PromQL engine asks.
type slots chan struct{}

// GetMaxConcurrent implements [promql.QueryTracker].
func (s slots) GetMaxConcurrent() int { return cap(s) }

// Insert implements [promql.QueryTracker].
func (s slots) Insert(ctx context.Context, _ string) (int, error) {
	select {
	case s <- struct{}{}:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Delete implements [promql.QueryTracker].
func (s slots) Delete(int) { <-s }

// Close implements [promql.QueryTracker].
func (slots) Close() error { return nil }
