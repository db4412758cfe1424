package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// begin relays one request of the host and answers it.
func (r *Relay) begin(ctx context.Context, m message, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	if !r.calls.add(m.ID, &openCall{cancel: cancel, endless: m.Method == "subscriptions/listen"}) {
		cancel()
		done()
		r.write(appendError(nil, m.ID, -32600, "a request with the same id is still under way"))
		return
	}
	go func() { // calls.wait waits for it
		defer r.calls.group.Done()
		defer done()
		defer cancel()
		answer := r.exchange(ctx, &m)
		if r.calls.end(m.ID) && answer != nil {
			r.write(answer)
		}
	}()
}

// unanswered is a request that got no answer: text is for the host, again says that another try may get one.
type unanswered struct {
	text  string
	again bool
	// wait is what the mesh asked for before another try.
	wait time.Duration
}

// exchange returns the mesh's answer to a request, or what stands for it. What the mesh sends before the answer is passed on.
func (r *Relay) exchange(ctx context.Context, m *message) []byte {
	delays := newDelays()
	first := time.Now()
	for {
		answer, failed := r.try(ctx, m)
		if failed == nil {
			return answer
		}
		if ctx.Err() != nil {
			return appendFailure(nil, m, "the relay was stopped before the mesh answered")
		}
		if !failed.again || time.Since(first) > r.conf.Retry && m.Method != "subscriptions/listen" {
			return appendFailure(nil, m, failed.text)
		}
		r.conf.Logger.Warn("no answer from the mesh; trying again", "method", m.Method, "why", failed.text)
		pause(ctx, max(failed.wait, delays.NextBackOff()))
	}
}

// newDelays are pauses from about 100 milliseconds to 10 seconds, doubled each time, with jitter.
func newDelays() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = 100*time.Millisecond, 10*time.Second, 2
	b.Reset()
	return b
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// repeatable says whether a request may be sent again when it is not known whether the mesh has taken it: everything but a call of a tool and
// what changes a task only reads.
func (m *message) repeatable() bool {
	switch m.Method {
	case "tools/call", "tasks/update", "tasks/cancel":
		return false
	}
	return true
}

const unknownOutcome = "the connection to the mesh broke while the call was under way: whether it took effect is not known, so look before you repeat it"

// try sends a request once.
func (r *Relay) try(ctx context.Context, m *message) ([]byte, *unanswered) {
	generation, resp, err := r.post(ctx, m)
	if err != nil {
		if notSent(err) {
			return nil, &unanswered{text: "the mesh cannot be reached: " + reason(err) + "; nothing was done", again: true}
		}
		return nil, m.outcome("the mesh cannot be reached: " + reason(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound && !m.modern() && r.session.known() && m.Method != "initialize" {
		return nil, r.renew(ctx, generation)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case kind == "text/event-stream" && resp.StatusCode == http.StatusOK:
		return r.stream(ctx, m, resp)
	case kind == "application/json":
		body, err := io.ReadAll(io.LimitReader(resp.Body, int64(r.conf.MaxMessageBytes)+1))
		switch {
		case err != nil:
			return nil, m.outcome("the mesh's answer broke off")
		case len(body) > r.conf.MaxMessageBytes:
			return nil, &unanswered{text: fmt.Sprintf("the mesh's answer has more than %d bytes", r.conf.MaxMessageBytes)}
		}
		if answer, ok := answers(body, m); ok {
			if m.Method == "initialize" && resp.StatusCode == http.StatusOK {
				answer = r.initialized(m, resp.Header, answer)
			}
			return answer, nil
		}
		return nil, refused(resp, body, m)
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // it only goes into a message
	return nil, refused(resp, body, m)
}

// outcome says what went wrong with a request that only reads, and of others that they may have taken effect.
func (m *message) outcome(wrong string) *unanswered {
	if m.repeatable() {
		return &unanswered{text: wrong, again: true}
	}
	return &unanswered{text: unknownOutcome}
}

// answers says whether body is the answer to m. An error that could not be given m's id is one too, and gets it.
func answers(body []byte, m *message) ([]byte, bool) {
	a, err := parse(bytes.TrimSpace(body))
	if err != nil || !a.valid() || a.Method != "" {
		return nil, false
	}
	if bytes.Equal(a.ID, m.ID) {
		return body, true
	}
	if a.ID == nil && a.Error != nil {
		return append(append(append(append([]byte(`{"jsonrpc":"2.0","id":`), m.ID...), `,"error":`...), a.Error...), '}'), true
	}
	return nil, false
}

// refused tells of an HTTP answer that is none of the protocol, from the mesh or from something before it.
func refused(resp *http.Response, body []byte, m *message) *unanswered {
	u := &unanswered{text: fmt.Sprintf("%s answered %s", resp.Request.URL.Host, resp.Status)}
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized:
		u.text += ": the credential is missing or not accepted; set TOOLWAY_TOKEN or TOOLWAY_API_KEY, or --token-file"
	case code == http.StatusForbidden:
		u.text += ": the credential does not allow this"
	case code == http.StatusNotFound, code == http.StatusMethodNotAllowed:
		u.text += ": there is no MCP endpoint at this URL; it usually ends in /mcp"
	case code >= 300 && code < 400:
		u.text += " to " + resp.Header.Get("Location") + ": use that URL, credentials are not sent on"
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		// Both say that the request was not taken on.
		u.again, u.wait = true, retryAfter(resp.Header)
		u.text += ": it is overloaded or being restarted; try again later"
	case code == http.StatusBadGateway || code == http.StatusGatewayTimeout:
		u.again = m.repeatable()
		if !u.again {
			u.text += ": " + unknownOutcome
		}
	}
	var told struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &told) == nil && len(told.Error) > 0 && len(told.Error) < 500 {
		u.text += "; it says " + string(told.Error)
	}
	return u
}

// maxRetryAfter bounds what a server may make the host wait.
const maxRetryAfter = 30 * time.Second

func retryAfter(h http.Header) time.Duration {
	s, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || s < 0 {
		return 0
	}
	return min(time.Duration(s)*time.Second, maxRetryAfter)
}

// post sends a message. The generation is that of the session that it was sent under.
func (r *Relay) post(ctx context.Context, m *message) (generation int, _ *http.Response, _ error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.conf.URL, bytes.NewReader(m.raw))
	if err != nil {
		return 0, nil, err
	}
	req.GetBody = nil // what has been sent is not sent again behind our back
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if m.modern() {
		m.headers(req.Header)
	} else {
		generation = r.session.headers(req.Header, m.Method)
	}
	if err := r.authorise(req); err != nil {
		return generation, nil, err
	}
	resp, err := r.conf.Client.Do(req)
	return generation, resp, err
}

// credentialError is why a request could not even be made.
type credentialError struct{ error }

func (r *Relay) authorise(req *http.Request) error {
	if r.conf.Credential == nil {
		return nil
	}
	if err := r.conf.Credential(req.Header); err != nil {
		return &credentialError{err}
	}
	return nil
}

// notSent says whether it is certain that the mesh has not seen the request.
func notSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var credential *credentialError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns) || errors.As(err, &credential)
}

// reason is the innermost part of what went wrong.
func reason(err error) string {
	var credential *credentialError
	if errors.As(err, &credential) {
		return credential.Error()
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// notify relays a notification of the host. It is not answered, whatever becomes of it.
func (r *Relay) notify(ctx context.Context, m message) {
	_, resp, err := r.post(ctx, &m)
	if err != nil {
		r.conf.Logger.Warn("a notification did not reach the mesh", "method", m.Method, "error", err)
		return
	}
	resp.Body.Close()
}

// answer relays the host's answer to a request of the mesh.
func (r *Relay) answer(ctx context.Context, m message) {
	m.Method = "answer" // for the log
	r.notify(ctx, m)
}

// cancel ends a call of the host. Closing the stream is what cancels for 2026-07-28; older versions want the notice.
func (r *Relay) cancel(ctx context.Context, m message) {
	if !m.modern() && r.session.known() {
		r.running.Go(func() {
			ctx, stop := context.WithTimeout(ctx, 5*time.Second)
			defer stop()
			r.notify(ctx, m)
			r.calls.cancel(m.Params.RequestID)
		})
		return
	}
	r.calls.cancel(m.Params.RequestID)
}
