package store

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolway/toolway/internal/apart"
)

// hub hands the new events of one log to all readers in this process. It has one consumer at the engine, however many readers there are, and
// none while there are none.
type hub struct {
	log *Log

	mu      sync.Mutex
	readers map[*reader]bool
	stop    context.CancelFunc // nil while no consumer runs
	done    chan struct{}
	last    uint64 // what the consumer that runs has handed out
}

// maxBuffered is how many new events wait for one reader. One that is slower reads them from the log again: nothing is lost, and nobody waits.
const maxBuffered = 256

// reader holds room for events only while they wait: most readers are idle most of the time.
type reader struct {
	filter string
	wake   chan struct{} // holds one: there is something to take
	// from is what had been handed out when the reader joined. Up to it the reader has to read the log: a replica may hand out an event before
	// the leader, which is read, has it.
	from uint64

	mu      sync.Mutex
	waiting []Event
	behind  bool   // an event did not fit, or those that waited were given up for it
	missed  uint64 // the newest event that was given up
	ended   bool   // no more will come
}

// put gives the reader an event, or leaves it behind.
func (r *reader) put(e Event) {
	r.mu.Lock()
	if !r.behind && len(r.waiting) < maxBuffered {
		r.waiting = append(r.waiting, e)
	} else {
		r.waiting, r.behind, r.missed = nil, true, e.Sequence
	}
	r.mu.Unlock()
	r.notify()
}

// end tells the reader that no more will come.
func (r *reader) end() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.notify()
}

func (r *reader) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns what waits. If the reader is behind, there is nothing, and it has to read the log, up to missed at least; what comes from now on
// waits again.
func (r *reader) take() (events []Event, behind bool, missed uint64, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, behind = r.waiting, r.behind
	r.waiting, r.behind = nil, false
	return events, behind, r.missed, r.ended
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
		h.readers, h.stop, h.done, h.last = map[*reader]bool{}, stop, make(chan struct{}), last
		go h.run(run, last, h.done)
	}
	r := &reader{filter: filter, wake: make(chan struct{}, 1), from: h.last}
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
	err := consume(ctx, h.log.stream, h.log.prefix+">", last, false, func(m jetstream.Msg) error {
		e, err := h.log.event(m)
		if err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.done != done {
			return context.Canceled // another one has begun; its readers get everything from it alone
		}
		h.last = e.Sequence
		for r := range h.readers {
			if r.wants(e.Subject) {
				r.put(e)
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
		r.end()
	}
	clear(h.readers)
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// Follow gives every event of a filter after a sequence to each, in order, without gap or repetition: first those that are there, then new ones
// as they come, until ctx ends or each returns an error, which it returns. A slow reader slows nobody. ErrExpired means that events after
// the sequence have been forgotten; the reader must begin anew from the present state. While the store is not available it waits.
//
// What each needs of a stack is not kept by the goroutine that waits here: the events that are there are given on another one, as those are that have come
// together.
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

func all(events []Event, take func(Event) error) error {
	for _, e := range events {
		if err := take(e); err != nil {
			return err
		}
	}
	return nil
}

// follow subscribes first, then replays up to the watermark, then goes on with what has come meanwhile.
func (l *Log) follow(ctx context.Context, filter string, after *uint64, each func(Event) error) error {
	var r *reader
	var err error
	apart.Run(func() { r, err = l.hub.join(ctx, filter) }) // many goroutines wait here for days
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
	replay := func(missed uint64) error {
		var upTo uint64
		var err error
		apart.Run(func() { upTo, err = l.Read(ctx, filter, *after, take) })
		*after = max(*after, upTo)
		if err == nil && *after < missed {
			return errAgain // the leader lags
		}
		return err
	}
	if err := replay(r.from); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.wake:
		}
		events, behind, missed, ended := r.take()
		if behind {
			if err := replay(missed); err != nil {
				return err
			}
		}
		if len(events) > 0 {
			apart.Run(func() { err = all(events, take) })
			if err != nil {
				return err
			}
		}
		if ended {
			return errAgain
		}
	}
}
