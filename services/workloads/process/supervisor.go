package process

import (
	"fmt"
	"sync"
	"time"

	"github.com/toolway/toolway/services/workloads"
)

// failingAfter is how many ends in a row, none after a good run, make a workload failing.
const failingAfter = 2

// supervisor sees to the replicas of one workload.
type supervisor struct {
	driver   *Driver
	workload *Workload
	hash     string

	mu       sync.Mutex
	applied  bool
	closed   bool
	replicas int32
	restart  int64
	slots    []*slot
	crashes  int64
	lastExit string
}

// revision says what the configuration wants.
func (s *supervisor) revision() string { return fmt.Sprintf("replicas %d", *s.workload.Replicas) }

// apply sets what is wanted, and begins to have it so.
func (s *supervisor) apply(replicas int32, restart int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.applied, s.replicas, s.restart = true, replicas, max(restart, s.restart)
	for len(s.slots) < int(replicas) {
		s.slots = append(s.slots, newSlot(s, len(s.slots)))
	}
	for _, slot := range s.slots {
		if !slot.begun {
			slot.begun = true
			s.driver.running.Go(slot.run)
		}
		slot.wake()
	}
}

// take takes over a replica that runs already; false if there is one in its place.
func (s *supervisor) take(f survivor) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.index >= maxReplicas {
		return false
	}
	for len(s.slots) <= f.index {
		s.slots = append(s.slots, newSlot(s, len(s.slots)))
	}
	slot := s.slots[f.index]
	if slot.found != nil {
		return false
	}
	slot.found = &f
	return true
}

// close stops all replicas; those who wait for the driver's goroutines wait for it.
func (s *supervisor) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, slot := range s.slots {
		if !slot.begun && slot.found != nil {
			slot.begun = true
			s.driver.running.Go(slot.run)
		}
		slot.wake()
	}
}

// wanted says whether the replica of an index shall run, and from which restart it must come.
func (s *supervisor) wanted(index int) (restart int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restart, !s.closed && index < int(s.replicas)
}

// ended records an end that was not asked for.
func (s *supervisor) ended(slot *slot, how string) {
	s.mu.Lock()
	s.crashes++
	s.lastExit = fmt.Sprintf("replica %d: %s", slot.index, how)
	s.mu.Unlock()
	s.driver.notify()
}

// set changes what a slot runs.
func (s *supervisor) set(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	s.driver.notify()
}

func (s *supervisor) observe() workloads.Observed {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := workloads.Observed{
		Name: s.workload.Name, Labels: s.workload.Labels, Revision: s.revision(), Replicas: *s.workload.Replicas, Settled: s.applied, Crashes: s.crashes, LastExit: s.lastExit,
	}
	var youngest time.Time
	for i, slot := range s.slots {
		if slot.running {
			if slot.started.After(youngest) {
				youngest = slot.started
			}
			if slot.ready && i < int(s.replicas) {
				o.Ready++
			}
		}
		fits := slot.running == (i < int(s.replicas)) && (!slot.running || slot.ready && slot.restart >= s.restart)
		o.Settled = o.Settled && fits
		o.Failing = o.Failing || slot.failures >= failingAfter && i < int(s.replicas)
	}
	if !youngest.IsZero() {
		o.Started = youngest
	}
	return o
}
