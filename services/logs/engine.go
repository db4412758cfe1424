package logs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Engine stores log entries and finds them again. Its methods may be called concurrently, and stop early with ctx's error
// when ctx ends; after Close they return [ErrClosed].
type Engine interface {
	// Select returns the entries that s asks for, sorted by time in the direction of s; entries of one time stand in no
	// particular order. more says that a limit of s cut the answer short.
	Select(ctx context.Context, s Selection) (entries []Entry, more bool, err error)

	// Append stores entries. What it returned nil for, a later Select or Follow finds.
	Append(ctx context.Context, entries []Entry) error

	// Origin is the position that a follower starts from: behind all that is stored when since is zero, else before the
	// entries whose time is not before since.
	Origin(since time.Time) Position

	// Check returns an [*OutOfRangeError] for a position after which entries may be gone, or that is of another store.
	Check(after Position) error

	// Follow waits until there may be entries after the position, and returns the first of them, at most limit, in the
	// order in which followers see them, each with its own position. next is where to go on, after an error too; it
	// moves even when none matched.
	Follow(ctx context.Context, filter string, after Position, limit int) (found []Followed, next Position, err error)

	// Retention is how long entries are kept by their time; 0 means not known.
	Retention() time.Duration

	// Close ends the calls that are running, waits for them and releases the store.
	Close() error
}

// Selection says what to select.
type Selection struct {
	// Filter is a LogsQL filter without pipes, already checked; empty matches every entry. For an engine that compiles queries
	// itself (see [Compiler]), what that returned.
	Filter string
	// Start and End bound the time: Start is inclusive, End exclusive.
	Start, End time.Time
	// At is what times in Filter such as _time:5m are relative to.
	At time.Time
	// NewestFirst sorts from End to Start.
	NewestFirst bool
	// Limit and MaxBytes bound the answer; both must be positive. One entry is returned whatever its size.
	Limit, MaxBytes int
}

// Compiler is an [Engine] that does not take LogsQL as it is.
type Compiler interface {
	// Compile checks a query, which may be empty, and returns it as the engine's own. What it cannot take is a [*QueryError].
	Compile(query string) (filter string, err error)
}

// Followed is an entry with its place in the order in which followers see entries.
type Followed struct {
	Entry
	Position Position
}

var (
	// ErrClosed is returned by an engine that was closed.
	ErrClosed = errors.New("log store is closed")
	// ErrReadOnly is returned by an engine that stopped taking entries because the disk is nearly full.
	ErrReadOnly = errors.New("log store is read-only: the disk is nearly full")
	// ErrUnreachable is returned by an engine that is elsewhere and does not answer.
	ErrUnreachable = errors.New("log store does not answer")
	// ErrRefused is returned by an engine that is elsewhere and does not take some of a batch of entries; the others may be stored.
	ErrRefused = errors.New("log store refused entries")
)

// OutOfRangeError says that a position cannot be served because what followed it may be gone.
type OutOfRangeError struct {
	// Oldest is the oldest position that can.
	Oldest Position
}

func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("position is no longer retained; the oldest one is %q", e.Oldest)
}
