// Package call is the contract between the doors and the chain: every door turns its protocol into a grpc.ServerStream whose context
// carries one *Call, and whose messages are *Frame.
package call

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/toolway/toolway/internal/catalog"
)

// Door is a protocol by which callers come in.
type Door string

// The three doors.
const (
	GRPC Door = "grpc"
	MCP  Door = "mcp"
	HTTP Door = "http"
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
	// Start is when the door received the call.
	Start time.Time
	// Forward is the metadata that may cross to the backend: already filtered by Rules. The chain may add to it.
	Forward metadata.MD
	// TraceID is the W3C trace id, 32 hex digits; set by observe.
	TraceID string
	// Sent is true once the request has been handed to a backend's connection: from then on a failure does not prove that nothing happened.
	Sent bool
}

type key struct{}

// NewContext returns ctx with c in it.
func NewContext(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, key{}, c)
}

// FromContext returns the call that a door put there, or nil.
func FromContext(ctx context.Context) *Call {
	c, _ := ctx.Value(key{}).(*Call)
	return c
}
