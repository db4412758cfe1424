package call

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Failure is the error of one attempt: its status, and what is known about the backend having executed it. Interceptors of attempts that
// wrap it keep it findable by errors.As; an error without one counts as Unknown.
type Failure struct {
	// Err is a gRPC status error in words that are fit for the caller.
	Err error
	// Outcome is what is known.
	Outcome Outcome
	// Refused says that the mesh itself let no attempt through to this backend, so that another one at once is of no use.
	Refused bool
}

// Error returns the text of Err.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// GRPCStatus makes it a status for everyone else.
func (f *Failure) GRPCStatus() *status.Status { return status.Convert(f.Err) }

// OutcomeOf returns what is known after the error of an attempt: Answered for nil.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Answered
	}
	var f *Failure
	if errors.As(err, &f) {
		return f.Outcome
	}
	return Unknown
}

// Bare returns the status error inside a Failure, or err itself. It is not inlined, as Enter is not.
//
//go:noinline
func Bare(err error) error {
	var f *Failure
	if errors.As(err, &f) {
		return f.Err
	}
	return err
}

// BeginAttempt notes that an attempt at a backend starts now and returns its index in Attempts. Until EndAttempt it counts as abandoned:
// CANCELLED, outcome unknown. It may be called by several goroutines at once.
func (c *Call) BeginAttempt(backend string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Attempts == nil {
		c.Attempts = c.attempts[:0]
	}
	c.Attempts = append(c.Attempts, Attempt{Backend: backend, Start: time.Since(c.Start), Code: codes.Canceled, Outcome: Unknown})
	c.last = len(c.Attempts) - 1
	return c.last
}

// MarkSent sets Sent. It may be called by several goroutines at once.
func (c *Call) MarkSent() {
	c.mu.Lock()
	c.Sent = true
	c.mu.Unlock()
}

// EndAttempt notes how an attempt has ended. It may be called by several goroutines at once.
func (c *Call) EndAttempt(i int, target string, code codes.Code, o Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &c.Attempts[i]
	a.Target, a.End, a.Code, a.Outcome = target, time.Since(c.Start), code, o
}

// EndAttempts ends what has been abandoned, when no attempt runs any more: it counts as cancelled, with an outcome that is not known.
func (c *Call) EndAttempts() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.Attempts {
		if a := &c.Attempts[i]; a.End == 0 {
			a.End = time.Since(c.Start)
		}
	}
}

// BecauseOf notes why there was another attempt after the last one that began, or none.
func (c *Call) BecauseOf(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last < len(c.Attempts) {
		c.Attempts[c.last].Why = why
	}
}

// Outcome returns what is known about the call having been executed: Answered once a backend has said something final, Unknown if any
// attempt may have been executed, NotExecuted if all provably were not, or there was none. It is for when no attempt runs any more.
func (c *Call) Outcome() Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.Attempts) == 0 {
		if c.Sent {
			return Unknown
		}
		return NotExecuted
	}
	out := NotExecuted
	for _, a := range c.Attempts {
		switch {
		case a.Outcome == Answered && a.Code != codes.Unavailable:
			return Answered
		case a.Outcome == Unknown, out == NotExecuted:
			out = a.Outcome
		}
	}
	return out
}

// KeyHeader is the metadata that carries an idempotency key, to the mesh and on to backends.
const KeyHeader = "idempotency-key"

// Keyed says whether the backend can tell a repetition of the call from a new one: it gets the call's idempotency key, and the method's contract, or
// the operator, says that there are keys. That a caller sends one proves nothing about the backend.
func (c *Call) Keyed() bool {
	p := &c.Method.Policy
	if c.Key == "" || p.KeyTemplate == "" && p.KeyField == "" && !p.KeyRequired {
		return false
	}
	vs := c.Forward[KeyHeader]
	return len(vs) == 1 && vs[0] != ""
}

// RetryAfter returns err, which is a status, with a google.rpc.RetryInfo: the caller is to wait that long before it calls again.
func RetryAfter(err error, wait time.Duration) error {
	st, convErr := status.Convert(err).WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(max(wait, 0))})
	if convErr != nil {
		return err
	}
	return st.Err()
}

type targetKey struct{}

// WithTarget returns a context whose attempt goes to the named backend in place of the method's own.
func WithTarget(ctx context.Context, backend string) context.Context {
	return context.WithValue(ctx, targetKey{}, backend)
}

// Target returns the name of the backend that an attempt of c goes to.
func Target(ctx context.Context, c *Call) string {
	if t, ok := ctx.Value(targetKey{}).(string); ok {
		return t
	}
	return c.Method.Backend.Name
}
