package task

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/store"
)

// index knows which tasks there are without reading their records, and ends those that are overdue. It follows the table of tasks, so it may be behind: whoever decides by it waits until it
// has what was written before, and reads the record.
type index struct {
	tasks *Tasks

	mu     sync.Mutex
	seen   uint64        // the newest write that it has
	grown  chan struct{} // closed when there is a newer one; nil while nobody waits
	owners map[string][]indexed
	open   map[name]time.Time // those that have not ended, and when they are overdue
	pools  map[*Pool]bool     // they hear of every write too
}

// indexed is what the index has of a task. Those of an owner are in the order of created, the oldest first, and in that of the id, the last first.
type indexed struct {
	place
	expires int64
	state   State
}

// name names a task.
type name struct{ owner, id string }

// place is where a task stands among those of its owner. A page token is the place after which the next page begins.
type place struct {
	created int64
	id      [16]byte
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.created, q.created), bytes.Compare(q.id[:], p.id[:]))
}

func (p place) token() string {
	return strconv.FormatInt(p.created, 36) + "." + hex.EncodeToString(p.id[:])
}

func placeOf(token string) (p place, err error) {
	created, id, _ := strings.Cut(token, ".")
	p.created, err = strconv.ParseInt(created, 36, 64)
	if err != nil || !validID(id) {
		return place{}, call.Error(codes.InvalidArgument, "PAGE_TOKEN", "page_token is not one that this method has given", "hint", "begin again without it")
	}
	_, err = hex.Decode(p.id[:], []byte(id))
	return p, err
}

// run follows the table until ctx ends.
func (x *index) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := x.tasks.kv.Follow(ctx, "t", func(e store.Entry, live bool) error {
			x.take(e, live)
			return nil
		})
		if ctx.Err() == nil {
			x.tasks.log.Warn("following tasks has ended; it begins again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// take takes a write in.
func (x *index) take(e store.Entry, live bool) {
	owner, id, _ := strings.Cut(strings.TrimPrefix(e.Key, "t."), ".")
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = e.Revision
	if x.grown != nil {
		close(x.grown)
		x.grown = nil
	}
	if !live {
		delete(x.open, name{owner, id})
		return
	}
	if err := x.put(owner, id, e.Value); err != nil {
		x.tasks.log.Error("a task is not listed", "key", e.Key, "error", err)
	}
	for p := range x.pools {
		p.hear(owner, id, e)
	}
}

func (x *index) put(owner, id string, value []byte) error {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return err
	}
	i := indexed{place: place{created: r.Created.UnixNano()}, expires: r.Expires.UnixNano(), state: r.State.shared()}
	if !validID(id) {
		return fmt.Errorf("%q is not the id of a task", id)
	}
	if _, err := hex.Decode(i.id[:], []byte(id)); err != nil {
		return err
	}
	if who := (name{owner, id}); r.State.Final() {
		delete(x.open, who)
	} else {
		x.open[who] = x.tasks.overdue(&r)
	}
	all := x.owners[owner]
	if at, found := search(all, i.place); found {
		all[at] = i
	} else {
		x.owners[owner] = slices.Insert(all, at, i)
	}
	return nil
}

// shared returns the state without memory of its own.
func (s State) shared() State {
	for _, one := range []State{Working, InputRequired, Completed, Failed, Cancelled, OutcomeUnknown} {
		if s == one {
			return one
		}
	}
	return s
}

func search(all []indexed, p place) (int, bool) {
	return slices.BinarySearchFunc(all, p, func(i indexed, p place) int { return i.compare(p) })
}

// How often tasks that are overdue are looked for, and what has expired is forgotten.
const (
	endEvery    = time.Second
	forgetEvery = time.Minute
)

// tend ends what is overdue, whoever else does so too, and forgets what has expired, until ctx ends.
func (x *index) tend(ctx context.Context) {
	end, forget := time.NewTicker(endEvery), time.NewTicker(forgetEvery)
	defer end.Stop()
	defer forget.Stop()
	ending := map[name]bool{} // until the last event is there too
	for {
		select {
		case <-ctx.Done():
			return
		case <-forget.C:
			x.forget(time.Now())
		case <-end.C:
			x.addOverdue(time.Now(), ending)
			for who := range ending {
				_, err := x.tasks.settle(ctx, who.owner, who.id)
				if errors.Is(err, store.ErrUnavailable) {
					break // for the others too
				}
				if err != nil {
					x.drop(who)
				}
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					x.tasks.log.Error("a task that is overdue cannot be ended", "task", who.id, "error", err)
				}
				delete(ending, who)
			}
		}
	}
}

// drop has a task not ended any more: its record has expired unheard, or cannot be read.
func (x *index) drop(who name) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.open, who)
}

func (x *index) addOverdue(now time.Time, to map[name]bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for who, at := range x.open {
		if now.After(at) {
			to[who] = true
		}
	}
}

func (x *index) forget(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for owner, all := range x.owners {
		all = slices.DeleteFunc(all, func(i indexed) bool { return i.expires <= now.UnixNano() })
		if x.owners[owner] = all; len(all) == 0 {
			delete(x.owners, owner)
		}
	}
}

// indexWait is how long the index is waited for. After a start it reads the whole table first.
const indexWait = 5 * time.Second

// current waits until the index has every task of an owner whose making has been acknowledged.
func (x *index) current(ctx context.Context, owner string) error {
	last, err := x.tasks.kv.Last(ctx, "t."+owner)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	late := time.NewTimer(indexWait)
	defer late.Stop()
	for {
		x.mu.Lock()
		if x.grown == nil {
			x.grown = make(chan struct{})
		}
		seen, grown := x.seen, x.grown
		x.mu.Unlock()
		if seen >= last {
			return nil
		}
		select {
		case <-grown:
		case <-late.C:
			return fmt.Errorf("%w: the index of tasks is behind", store.ErrUnavailable)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// before returns up to n tasks of an owner that stand before a place, nil meaning the end, the newest first.
func (x *index) before(owner string, p *place, state State, n int) []place {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.owners[owner]
	if p != nil {
		at, _ := search(all, *p)
		all = all[:at]
	}
	now := time.Now().UnixNano()
	var out []place
	for _, i := range slices.Backward(all) {
		if len(out) == n {
			break
		}
		if now < i.expires && (state == "" || i.state == state) {
			out = append(out, i.place)
		}
	}
	return out
}

// join has a pool hear of every write from now on, until leave.
func (x *index) join(p *Pool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pools[p] = true
}

func (x *index) leave(p *Pool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.pools, p)
}
