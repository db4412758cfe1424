// Package call is the contract between the doors and the chain: every door turns its protocol into a grpc.ServerStream whose context
// carries one *Call, and whose messages are *Frame.
package call

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// Door is a protocol by which callers come in.
type Door string

// The three doors.
const (
	GRPC Door = "grpc"
	MCP  Door = "mcp"
	HTTP Door = "http"
	// CLI is `toolway tools call`: no door to the outside, but the same chain.
	CLI Door = "cli"
)

// Call is the one record of a call that all interceptors share: a door fills it before the chain, inner interceptors add to it, and outer
// ones read it when the inner ones have returned. It belongs to the goroutine that runs the chain; nothing else may touch it.
type Call struct {
	// ID identifies the call in logs, audit and answers.
	ID string
	// Method is what is called; never nil.
	Method *catalog.Method
	// Door is where the call came in.
	Door Door
	// Protocol is the version of the door's protocol where it has several, such as "2026-07-28" for MCP.
	Protocol string
	// Peer is the caller's address; nil where its door does not know it, or has it in the context already.
	Peer net.Addr
	// Start is when the door received the call.
	Start time.Time
	// Forward is the metadata that may cross to the backend: already filtered by Rules. The chain may add to it. Keys are lower-case.
	Forward metadata.MD
	// View says which methods the caller's endpoint shows, for those of the mesh's own services that tell of others; nil: all.
	View func(*catalog.Method) bool
	// TraceID is the W3C trace id, 32 hex digits; set by observe.
	TraceID string
	// Credentials are what the caller brought to say who it is. They never cross to a backend, and are never logged.
	Credentials Credentials
	// Principal is who calls. A door that has authenticated the caller sets it; else the chain does. Nil until then.
	Principal *identity.Principal
	// Key is the call's idempotency key, from the caller, the contract's template or an argument; "" if it has none.
	Key string
	// KeyMade is true if the key is made of the request, so that the caller cannot choose another for the same one.
	KeyMade bool
	// Steps are what the chain's interceptors did, in the order in which the call reached them.
	Steps []Step
	// Attempts are the tries at a backend, in order; hedged ones overlap in time.
	Attempts []Attempt
	// Async is set by a door whose caller wants a task in place of the answer. The chain may give the answer all the same, if it has it at hand.
	Async *Async
	// Task is the id of the task that the call has become, if Async is set, else of the one that it is a run of; "" if there is none. A door whose
	// call has become a task tells its caller the id; there is no reply then, or an empty one.
	Task string
	// Approval is the id of the approval that let the call through, or that it waits for; "" if none.
	Approval string
	// Confirm is the id of the confirmation that the caller brings with the call: metadata or header toolway-confirm, MCP's _meta
	// "io.toolway/confirm"; "" if it brings none.
	Confirm string
	// Asker asks the person at the caller's side; nil where the client cannot.
	Asker Asker
	// Replayed is true if the answer is that of an earlier call with the same idempotency key: doors say so to the caller.
	Replayed bool
	// Hidden is true if the caller may not know of the method: the door answers as if it were not there.
	Hidden bool
	// ResultURI is where the result is kept, if it was too large to be returned; "" if it was returned.
	ResultURI string
	// Deadline is when the call has to be over, as its caller and the method's limits say; zero if there is no deadline. Set by deadline.
	Deadline time.Time
	// Freshness says how old the answer is, where answers may be reused.
	Freshness Freshness
	// Sent is true once the request has been handed to a backend's connection and is not known to have been refused unprocessed: from then
	// on a failure does not prove that nothing happened.
	Sent bool

	mu       sync.Mutex // guards Attempts while attempts run, which may be several at once
	attempts [1]Attempt // room for Attempts
	last     int

	refusal error

	base  base
	steps steps
}

// base is what the door's own stream does for the call, below all wrappers that interceptors put around it.
type base interface {
	peek() (*Frame, error)
	look() *Frame
	stopRequests()
	release()
}

// New returns a call of m that came in now, with an ID of 32 hex digits that is also a valid W3C trace id.
func New(m *catalog.Method, door Door) *Call {
	return &Call{ID: NewID(), Method: m, Door: door, Start: time.Now()}
}

// Refuse has the chain end the call with err, a status, where it would otherwise reach a backend: what a door itself cannot take passes every
// policy all the same, so that who calls is asked first, and observe and audit see it. Requests that are not there are Refused.
func (c *Call) Refuse(err error) { c.refusal = err }

// Refusal is what Refuse was given, or nil.
func (c *Call) Refusal() error { return c.refusal }

// Refused is the requests function of a call that is refused since its request cannot be read.
func Refused(err error) func() (*Frame, error) {
	return func() (*Frame, error) { return nil, err }
}

// NewID returns 32 random hex digits. They come from the runtime's ChaCha8 generator, which the operating system seeds: unique without a
// system call for each call.
func NewID() string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], rand.Uint64()|1) // an all-zero trace id is invalid
	binary.BigEndian.PutUint64(raw[8:], rand.Uint64())
	var text [32]byte
	hex.Encode(text[:], raw[:])
	return string(text[:])
}

// Freshness says how old an answer is. The zero value is an answer that the backend has just given and that must not be reused.
type Freshness struct {
	// Cached is true for an answer that was given before, to a caller with the same rights; Stale if its time was over, but the backend is down.
	Cached, Stale bool
	// Age is the time since the backend gave it.
	Age time.Duration
	// Remaining is for how long it may still be reused; 0 means not at all.
	Remaining time.Duration
}

// Attempt is one try at a backend.
type Attempt struct {
	// Backend is the name of the backend.
	Backend string
	// Target is the address that was tried; "" if none was reached.
	Target string
	// Start and End are the times from the call's start.
	Start, End time.Duration
	// Code is how it ended.
	Code codes.Code
	// Outcome says what is known about the backend having executed it.
	Outcome Outcome
	// Why says why there was another attempt after this one, or none; "" if the attempt was the answer.
	Why string
}

// Outcome is what is known about a backend having executed a call.
type Outcome string

// The outcomes.
const (
	// NotExecuted is claimed only where it is proved: never sent, or refused by the transport as unprocessed.
	NotExecuted Outcome = "not executed"
	// Answered means that the backend has answered, with a reply or a status of its own.
	Answered Outcome = "answered"
	// Unknown is everything else.
	Unknown Outcome = "unknown"
)

// StopRequests says that no more requests are wanted: a RecvMsg that waits for one returns an error soon. It may be called from any
// goroutine, more than once.
func (c *Call) StopRequests() {
	if c.base != nil {
		c.base.stopRequests()
	}
}

// Finish releases what the call holds. Chain calls it when every interceptor has returned.
func (c *Call) Finish() {
	if c.base != nil {
		c.base.release()
	}
}

// Request returns the request of a call that has only one, without consuming it: the next RecvMsg still delivers it. It reads from the
// door's stream at first use and returns the same frame afterwards, as the caller sent it, whatever wrappers stand around stream. The
// frame is borrowed: it is valid until the chain has returned. It refuses client-streaming calls, where the server may speak first.
// Once the request has been received without being peeked, there is nothing left to return, and that is an error too.
func Request(stream grpc.ServerStream) (*Frame, error) {
	c := FromContext(stream.Context())
	switch {
	case c == nil || c.base == nil:
		return nil, fmt.Errorf("peek at the request: the stream's context carries no call")
	case c.Method.Kind().Client:
		return nil, fmt.Errorf("peek at the request of %s: it is client-streaming; look at each message as it passes", c.Method.FullMethod)
	}
	return c.base.peek()
}

// Received returns the call's only request once something has received or peeked at it, else nil: large requests are kept only if
// they were peeked at. It reads nothing. The frame is borrowed: it is valid until the chain has returned.
func (c *Call) Received() *Frame {
	if c.base == nil {
		return nil
	}
	return c.base.look()
}
