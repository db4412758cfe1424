package metrics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// Engine evaluates PromQL. Its methods may be called concurrently, and stop early with ctx's error when ctx ends; after Close they return
// [ErrClosed]. A query that is at fault is a [*QueryError], one that asks for too much a [*TooLargeError].
type Engine interface {
	// Instant evaluates a query at one instant, to the millisecond.
	Instant(ctx context.Context, query string, at time.Time) (*Answer, error)

	// Range evaluates a query at every point of the grid.
	Range(ctx context.Context, query string, grid Grid) (*Answer, error)

	// Series returns the labels of the series that a selector matches and that have samples from start to end, both inclusive, sorted.
	Series(ctx context.Context, selector string, start, end time.Time) ([]labels.Labels, error)

	// Oldest is the time from which on samples are complete; zero if that is not known.
	Oldest() time.Time

	// Close ends the calls that are running, waits for them and releases what the engine holds.
	Close() error
}

// Grid is the points of a range: Start, Start+Step, and so on, up to End. Step is positive.
type Grid struct {
	Start, End time.Time
	Step       time.Duration
}

// points is how many there are.
func (g Grid) points() int64 { return int64(g.End.Sub(g.Start)/g.Step) + 1 }

// Answer is what a query evaluated to.
type Answer struct {
	// Matrix says that the expression is a range vector, whose samples are as they were scraped.
	Matrix bool
	// Series in the engine's order, which means something for expressions that sort.
	Series []Series
	// Warnings are what the engine noticed.
	Warnings []string
}

// Series is one series of an answer, with at least one sample.
type Series struct {
	Labels  labels.Labels
	Samples []Sample
}

// Sample is a value at a time in Unix milliseconds.
type Sample struct {
	Time  int64
	Value float64
}

// labelHistogram tells the two series apart that stand for a native histogram.
const labelHistogram = "__histogram__"

// withHistograms is series of one label set: its floats, then count and sum of its native histograms, each only if there are any.
func withHistograms(to []Series, l labels.Labels, floats, counts, sums []Sample) []Series {
	if len(floats) > 0 {
		to = append(to, Series{Labels: l, Samples: floats})
	}
	if len(counts) > 0 {
		b := labels.NewBuilder(l)
		to = append(to, Series{Labels: b.Set(labelHistogram, "count").Labels(), Samples: counts})
		to = append(to, Series{Labels: b.Set(labelHistogram, "sum").Labels(), Samples: sums})
	}
	return to
}

// QueryError says what is wrong with a query.
type QueryError struct {
	// Text is the engine's reason.
	Text string
	// Position is the byte where the query goes wrong, from 0, or -1 where the engine does not say.
	Position int
	// Parsed says that the query parses, and could not be evaluated over the series that there are.
	Parsed bool
}

func (e *QueryError) Error() string {
	if e.Position < 0 {
		return e.Text
	}
	return fmt.Sprintf("%s (at byte %d)", e.Text, e.Position)
}

// TooLargeError says which limit a query goes beyond.
type TooLargeError struct{ Text string }

func (e *TooLargeError) Error() string { return e.Text }

var (
	// ErrClosed is returned by an engine that was closed.
	ErrClosed = errors.New("metric engine is closed")
	// ErrUnreachable is returned by an engine that is elsewhere and does not answer.
	ErrUnreachable = errors.New("metric engine does not answer")
)
