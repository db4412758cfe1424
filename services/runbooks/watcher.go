package runbooks

import (
	"slices"
	"sync"
)

// watcher collects changes for one caller. Of each runbook only the newest state is kept, so a slow caller costs no more than there are
// runbooks.
type watcher struct {
	name string // "" for all
	wake chan struct{}

	mu      sync.Mutex
	pending []change // in the order in which they came
}

// watch begins to collect changes of one runbook, or of all if name is "". current is the runbook as it is then: what comes after is
// collected. Whoever watches calls stop in the end.
func (l *Library) watch(name string) (w *watcher, current *Runbook, stop func()) {
	w = &watcher{name: name, wake: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers[w] = struct{}{}
	return w, l.named(name), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers, w)
	}
}

// tell adds changes; it does not wait.
func (w *watcher) tell(changes []change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range changes {
		if w.name != "" && w.name != c.name {
			continue
		}
		if i := slices.IndexFunc(w.pending, func(p change) bool { return p.name == c.name }); i >= 0 {
			w.pending[i] = c
			continue
		}
		w.pending = append(w.pending, c)
	}
	if len(w.pending) > 0 {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// take returns what was collected since the last time.
func (w *watcher) take() []change {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.pending
	w.pending = nil
	return taken
}
