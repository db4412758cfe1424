package mcpadapter

import (
	"encoding/json"
	"fmt"
	"math"
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

// step is one progress notification: how much is done, of how much (0 if nobody knows), and a text.
type step struct {
	done, total float64
	message     string
}

// progress tells a client how a call gets on. Its value is what the backend reports, or else counts the notifications; it always rises.
// A nil *progress does nothing.
type progress struct {
	notify func(step)
	start  time.Time

	mu      sync.Mutex
	begun   bool
	sent    float64 // the value last sent
	total   float64
	count   int
	last    time.Time
	items   int
	stopped bool
	timer   *time.Timer
}

// startProgress returns the progress of a call that begins now, or nil if notify is nil. It must be stopped.
func startProgress(notify func(step)) *progress {
	if notify == nil {
		return nil
	}
	p := &progress{notify: notify, start: time.Now()}
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
	if p.tooMany() {
		return
	}
	p.send(p.sent+1, fmt.Sprintf("%d received", items))
}

// report passes on what the backend itself says. What does not rise is left out: the protocol wants it to.
func (p *progress) report(done, total float64, message string) {
	if p == nil || math.IsNaN(done) || math.IsInf(done, 0) || math.IsNaN(total) || math.IsInf(total, 0) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun && done <= p.sent || p.tooMany() && done < total {
		return
	}
	p.total = total
	p.send(done, message)
}

// tooMany says whether another notification would come too soon after the last.
func (p *progress) tooMany() bool {
	return p.count >= progressBurst && time.Since(p.last) < progressInterval
}

// silent is a sign of life. Beside a backend's own values it rises by next to nothing.
func (p *progress) silent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := p.sent + 1
	if p.total > 0 {
		done = math.Nextafter(p.sent, math.Inf(1))
	}
	p.send(done, fmt.Sprintf("still running after %s, %d received", time.Since(p.start).Round(time.Second), p.items))
}

// send is called with the mutex held, which keeps the notifications in order and lets stop wait for the last one.
func (p *progress) send(done float64, message string) {
	if p.stopped {
		return
	}
	p.begun, p.sent = true, done
	p.count++
	p.last = time.Now()
	p.notify(step{done: done, total: p.total, message: message})
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
