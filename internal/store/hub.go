package store

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// hub hands the new events of one log to all readers in this process. It has one consumer at the engine, however many readers there are, and
// none while there are none.
type hub struct {
	log *Log

	mu      sync.Mutex
	readers map[*reader]bool
	stop    context.CancelFunc // nil while no consumer runs
	done    chan struct{}
}

// maxBuffered is how many new events wait for one reader. One that is slower reads them from the log again: nothing is lost, and nobody waits.
const maxBuffered = 256

type reader struct {
	filter string
	events chan Event
	// behind says that an event did not fit; it is guarded by the hub's mu.
	behind bool
}

func (r *reader) wants(subject string) bool {
	under, all := strings.CutSuffix(r.filter, ">")
	return r.filter == subject || all && strings.HasPrefix(subject, under)
}

// join adds a reader. Every event that is appended after it has returned reaches the reader, or leaves it behind.
func (h *hub) join(ctx context.Context, filter string) (*reader, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.readers) == 0 {
		_, last, err := h.log.Bounds(ctx)
		if err != nil {
			return nil, err
		}
		run, stop := context.WithCancel(context.Background())
		h.readers, h.stop, h.done = map[*reader]bool{}, stop, make(chan struct{})
		go h.run(run, last, h.done)
	}
	r := &reader{filter: filter, events: make(chan Event, maxBuffered)}
	h.readers[r] = true
	return r, nil
}

func (h *hub) leave(r *reader) {
	h.mu.Lock()
	delete(h.readers, r)
	last, done := len(h.readers) == 0 && h.stop != nil, h.done
	if last {
		h.stop()
		h.stop = nil
	}
	h.mu.Unlock()
	if last {
		<-done
	}
}

func (h *hub) run(ctx context.Context, last uint64, done chan struct{}) {
	defer close(done)
	err := consume(ctx, h.log.stream, h.log.prefix+">", last, func(m jetstream.Msg) error {
		e, err := h.log.event(m)
		if err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for r := range h.readers {
			if !r.wants(e.Subject) {
				continue
			}
			select {
			case r.events <- e:
			default:
				r.behind = true
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log.store.log.Warn("following the log ended; readers begin again", "log", h.log.prefix, "error", err)
	for r := range h.readers { // they join again
		close(r.events)
	}
	clear(h.readers)
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// caughtUp says whether the reader has everything in its buffer; if not, the buffer is emptied, and what was in it is read from the log.
func (h *hub) caughtUp(r *reader) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !r.behind {
		return true
	}
	r.behind = false
	for {
		select {
		case <-r.events:
		default:
			return false
		}
	}
}

// Follow gives every event of a filter after a sequence to each, in order, without gap or repetition: first those that are there, then new ones
// as they come, until ctx ends or each returns an error, which it returns. A slow reader slows nobody. ErrExpired means that events after
// the sequence have been forgotten; the reader must begin anew from the present state. While the store is not available it waits.
func (l *Log) Follow(ctx context.Context, filter string, after uint64, each func(Event) error) error {
	if err := legalFilter(filter); err != nil {
		return err
	}
	for {
		err := l.follow(ctx, filter, &after, each)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, ErrUnavailable) && !errors.Is(err, errAgain):
			return err
		}
		pause(ctx)
	}
}

var errAgain = errors.New("begin again")

// follow subscribes first, then replays up to the watermark, then goes on with what has come meanwhile.
func (l *Log) follow(ctx context.Context, filter string, after *uint64, each func(Event) error) error {
	r, err := l.hub.join(ctx, filter)
	if err != nil {
		return err
	}
	defer l.hub.leave(r)
	take := func(e Event) error {
		if e.Sequence <= *after {
			return nil // replayed already
		}
		if err := each(e); err != nil {
			return err
		}
		*after = e.Sequence
		return nil
	}
	replay := func() error {
		upTo, err := l.Read(ctx, filter, *after, take)
		*after = max(*after, upTo)
		return err
	}
	if err := replay(); err != nil {
		return err
	}
	for {
		if !l.hub.caughtUp(r) {
			if err := replay(); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-r.events:
			if !ok {
				return errAgain
			}
			if err := take(e); err != nil {
				return err
			}
		}
	}
}
