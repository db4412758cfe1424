package mcpadapter

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
)

// cancels finds the call that a notifications/cancelled means, for clients of 2025-06-18 and 2025-11-25 without sessions: they post it
// as a request of its own and keep the stream of the call open. Request ids are unique only to a client, so initialize hands out an id
// in Mcp-Session-Id. It stands for no state: any instance accepts it, before and after a restart. A notice that reaches another instance
// than the call does nothing; closing the stream of the call always ends it.
type cancels struct {
	mu    sync.Mutex
	calls map[callKey]*cancelable
}

type callKey struct{ caller, id string }

// cancelable has an identity of its own, since a client may use a request id twice.
type cancelable struct{ cancel context.CancelFunc }

// add notes a call that has begun; the returned function forgets it.
func (c *cancels) add(caller string, id json.RawMessage, cancel context.CancelFunc) (forget func()) {
	key, entry := callKey{caller, string(id)}, &cancelable{cancel}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[callKey]*cancelable{}
	}
	c.calls[key] = entry
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.calls[key] == entry {
			delete(c.calls, key)
		}
	}
}

// cancel ends the call that the params of a notifications/cancelled name, if it is one of the caller's.
func (c *cancels) cancel(caller string, params json.RawMessage) {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry := c.calls[callKey{caller, string(p.RequestID)}]; entry != nil {
		entry.cancel()
	}
}

// noteCancel sees to it that a request of a session is not answered once it is cancelled: the SDK, which ends the call, would still answer.
// The returned function forgets the request.
func (e *endpoint) noteCancel(reply *reply, r *http.Request, msg envelope) (forget func()) {
	session := r.Header.Get(sessionHeader)
	switch {
	case msg.method == "notifications/cancelled":
		e.cancels.cancel(session, msg.params)
	case msg.isRequest() && msg.method != "initialize" && reply.alias == nil: // of another id than the client's the SDK knows no notice
		return e.cancels.add(session, msg.id, reply.mute)
	}
	return func() {}
}
