package mcpadapter

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// progressSilence is how long a client that asked for progress hears nothing at most: clients commonly give up after 60 seconds
	// without a sign of life, some after 30.
	progressSilence = 15 * time.Second
	// progressBurst notifications go out at once; from then on there is one per progressInterval.
	progressBurst    = 32
	progressInterval = 100 * time.Millisecond
)

// progress tells a client how a call gets on. Its value counts the notifications, so it always rises. A nil *progress does nothing.
type progress struct {
	notify func(float64, string)
	start  time.Time

	mu      sync.Mutex
	sent    float64
	last    time.Time
	items   int
	stopped bool
	timer   *time.Timer
}

// startProgress returns the progress of a call that began at start, or nil if notify is nil. It must be stopped.
func startProgress(notify func(float64, string), start time.Time) *progress {
	if notify == nil {
		return nil
	}
	p := &progress{notify: notify, start: start}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(progressSilence, p.silent)
	return p
}

// received says that there are now so many messages.
func (p *progress) received(items int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.items = items
	if p.sent >= progressBurst && time.Since(p.last) < progressInterval {
		return
	}
	p.send(fmt.Sprintf("%d received", items))
}

func (p *progress) silent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send(fmt.Sprintf("still running after %s, %d received", time.Since(p.start).Round(time.Second), p.items))
}

// send is called with the mutex held, which keeps the notifications in order and lets stop wait for the last one.
func (p *progress) send(message string) {
	if p.stopped {
		return
	}
	p.sent++
	p.last = time.Now()
	p.notify(p.sent, message)
	p.timer.Reset(progressSilence)
}

// stop ends the notifications: none is sent once it has returned. It may be called more than once.
func (p *progress) stop() {
	if p == nil {
		return
	}
	p.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

// tokenHeader carries a progress token that is a number from a transport to the middleware as the client wrote it: to the SDK it is a
// float, and the client might not know it again.
const tokenHeader = "Toolway-Progress-Token"

// numberToken returns the progress token in the params of a request if it is a number.
func numberToken(params json.RawMessage) string {
	var p, meta map[string]json.RawMessage
	if params == nil || json.Unmarshal(params, &p) != nil || p["_meta"] == nil || json.Unmarshal(p["_meta"], &meta) != nil {
		return ""
	}
	if token := meta["progressToken"]; isNumber(token) {
		return string(token)
	}
	return ""
}

// progressToken returns the token of a request that asked for progress, a string or a number, or nil.
func progressToken(meta map[string]any, header http.Header) any {
	switch token := meta["progressToken"].(type) {
	case string:
		return token
	case float64:
		if raw := header.Get(tokenHeader); raw != "" {
			return json.RawMessage(raw)
		}
		return token
	}
	return nil
}
