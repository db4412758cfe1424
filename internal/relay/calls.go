package relay

import (
	"context"
	"encoding/json"
	"sync"
)

// calls are the host's requests under way, by id as it was written.
type calls struct {
	mu    sync.Mutex
	open  map[string]*openCall
	group sync.WaitGroup
}

type openCall struct {
	cancel context.CancelFunc
	// endless calls, such as subscriptions/listen, end only by being cancelled.
	endless   bool
	cancelled bool
}

// add notes a call, or returns nil if the host has one with the same id under way.
func (c *calls) add(id json.RawMessage, call *openCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]*openCall{}
	}
	if c.open[string(id)] != nil {
		return false
	}
	c.open[string(id)] = call
	c.group.Add(1)
	return true
}

// end takes the call out, and says whether the host still wants an answer.
func (c *calls) end(id json.RawMessage) (wanted bool) {
	c.mu.Lock()
	call := c.open[string(id)]
	delete(c.open, string(id))
	c.mu.Unlock()
	return !call.cancelled
}

// cancel ends the call of the id, if there is one, and sees to it that it is not answered.
func (c *calls) cancel(id json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call := c.open[string(id)]; call != nil {
		call.cancelled = true
		call.cancel()
	}
}

// wait waits for all calls; those that would not end by themselves are cancelled.
func (c *calls) wait() {
	c.mu.Lock()
	for _, call := range c.open {
		if call.endless {
			call.cancelled = true
			call.cancel()
		}
	}
	c.mu.Unlock()
	c.group.Wait()
}
