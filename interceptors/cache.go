package interceptors

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// CacheOptions bound the cache of replies. The zero value works.
type CacheOptions struct {
	// MaxBytes bounds all replies together; what was used longest ago makes room. Default 64 MiB; negative turns the cache off.
	MaxBytes int
	// MaxReplyBytes bounds one reply; a larger one is not kept. Default a sixteenth of MaxBytes.
	MaxReplyBytes int
	// Stale is for how long after its time a reply may still answer a call while the backend is down. Default 0: never.
	Stale time.Duration
}

// Cache reuses the replies of unary methods whose policy allows it (catalog.Policy.CacheTTL), and lets equal calls that come at the same time
// share one. Two calls are equal if tenant and scopes of their callers, method, definition, request and forwarded metadata are; what an
// encoder is free to choose in a request, and trace context, does not count. Failures are not kept.
//
// A caller that goes away, or whose deadline passes, does not end a call that others wait for. Only the caller whose call reached the backend
// gets its header and trailer metadata; the others get "toolway-cache: hit", "toolway-age" in seconds and, if the reply's time is over but the
// backend is down, "toolway-stale: true". Call.Freshness says the same to doors.
func Cache(o Options) Policy {
	cache := newReplies(o.Cache)
	return Policy{Name: "cache", For: func(m *catalog.Method) grpc.StreamServerInterceptor {
		if o.Cache.MaxBytes < 0 || m.Policy.CacheTTL <= 0 || m.Kind() != (catalog.Kind{}) {
			return nil
		}
		return (&reads{replies: cache, method: m, request: m.Request(), ttl: m.Policy.CacheTTL, stale: o.Cache.Stale, salt: saltOf(m)}).intercept
	}}
}

// saltOf identifies a method's definition, and what is kept out of its replies: when either changes, what was kept is no answer any more.
func saltOf(m *catalog.Method) []byte {
	h := sha256.New()
	text := func(s string) { h.Write(binary.AppendUvarint(nil, uint64(len(s)))); h.Write([]byte(s)) }
	text(m.Backend.Name)
	text(m.FullMethod)
	text(m.Hash())
	for _, p := range m.Sensitive(toolschema.Output).Paths() {
		if p.Mark.Redact {
			text(p.Path)
		}
	}
	return h.Sum(nil)
}

// reads are the calls of one method.
type reads struct {
	*replies
	method     *catalog.Method
	request    *transcode.Message
	ttl, stale time.Duration
	salt       []byte
}

func (r *reads) intercept(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := stream.Context()
	c := call.FromContext(ctx)
	if c.Refusal() != nil { // the door's, and this call's alone
		return handler(srv, stream)
	}
	request, err := call.Request(stream)
	if err != nil {
		return err
	}
	key, ok := r.key(c, request)
	if !ok {
		return handler(srv, stream) // what is malformed is refused further in
	}
	for {
		kept, f, leads := r.begin(key)
		switch {
		case kept != nil:
			return r.serve(stream, c, kept, false)
		case leads:
			return r.lead(srv, stream, handler, key, f)
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			r.leave(f)
			return status.FromContextError(ctx.Err()).Err()
		}
		switch {
		case f.again:
		case f.kept != nil:
			return r.serve(stream, c, f.kept, f.stale)
		default:
			c.Decide("cache", "shared", "the outcome of an equal call at the same time")
			return f.err
		}
	}
}

// lead makes the call that others may wait for.
func (r *reads) lead(srv any, stream grpc.ServerStream, handler grpc.StreamHandler, key replyKey, f *flight) error {
	c := call.FromContext(stream.Context())
	stop := context.AfterFunc(stream.Context(), func() {
		// A deadline ends the call below at the same moment by itself. Were it cancelled too, chance would say as which of the two it ends.
		if !errors.Is(stream.Context().Err(), context.DeadlineExceeded) {
			r.leave(f)
		}
	})
	ctx, cancel := lasting(stream.Context())
	defer cancel()
	detach := context.AfterFunc(f.abandoned, cancel)
	f.again = true // unless it comes to an outcome
	defer func() {
		stop()
		detach()
		r.end(key, f)
	}()
	s := &recorded{ServerStream: stream, ctx: ctx}
	err := handler(srv, s)
	switch {
	case err == nil && s.reply == nil:
		return nil // the door refuses it
	case err == nil:
		f.again = false
		f.kept = r.keep(key, s.reply, r.ttl, r.stale)
		c.Freshness.Remaining = r.ttl
		c.Decide("cache", "miss", "")
		return stream.SendMsg(call.NewFrame(r.method.Desc.Output(), s.reply))
	}
	f.again = passed(ctx) && (status.Code(err) == codes.Canceled || status.Code(err) == codes.DeadlineExceeded)
	f.err = err
	if down(err) {
		if f.kept = r.old(key); f.kept != nil {
			f.stale = true
			return r.serve(stream, c, f.kept, true)
		}
	}
	return err
}

// passed says whether ctx is over, or its deadline so near that the backend's attempt counts as late: the clock knows before the context does.
func passed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < 10*time.Millisecond
}

// lasting returns a context that has the deadline of ctx, but does not end with it.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	free := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(free, deadline)
	}
	return context.WithCancel(free)
}

// serve answers with a kept reply.
func (r *reads) serve(stream grpc.ServerStream, c *call.Call, k *kept, stale bool) error {
	now := time.Now()
	age := now.Sub(k.at)
	c.Freshness = call.Freshness{Cached: true, Stale: stale, Age: age, Remaining: max(0, k.fresh.Sub(now))}
	md := metadata.MD{"toolway-cache": hit, "toolway-age": {strconv.FormatInt(int64(age/time.Second), 10)}}
	verdict := "hit"
	if stale {
		verdict, md["toolway-stale"] = "stale", isTrue
	}
	c.Decide("cache", verdict, "")
	if err := stream.SetHeader(md); err != nil {
		return err
	}
	return stream.SendMsg(call.NewFrame(r.method.Desc.Output(), k.reply))
}

var hit, isTrue = []string{"hit"}, []string{"true"}

// unvarying is metadata on which no reply depends.
var unvarying = map[string]bool{"traceparent": true, "tracestate": true, "baggage": true, "x-request-id": true, "idempotency-key": true}

var keyBuffers = sync.Pool{New: func() any { return new([]byte) }}

// key identifies equal calls. It is false for a malformed request.
func (r *reads) key(c *call.Call, request *call.Frame) (key replyKey, ok bool) {
	buf := keyBuffers.Get().(*[]byte)
	text := func(b []byte, s string) []byte { return append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	b := (*buf)[:0]
	b = append(b, r.salt...)
	b = text(b, c.Principal.Permissions())
	b = varying(b, c.Forward)
	out, err := r.request.AppendCanonical(b, request.Bytes())
	if err == nil {
		key = sha256.Sum256(out)
	}
	if cap(out) <= 64<<10 {
		*buf = out
		keyBuffers.Put(buf)
	}
	return key, err == nil
}

// varying appends the metadata on which a reply may depend.
func varying(b []byte, md metadata.MD) []byte {
	var keys []string
	for k := range md {
		if !unvarying[k] {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = append(binary.AppendUvarint(b, uint64(len(k))), k...)
		b = binary.AppendUvarint(b, uint64(len(md[k])))
		for _, v := range md[k] {
			b = append(binary.AppendUvarint(b, uint64(len(v))), v...)
		}
	}
	return b
}

// recorded keeps the reply of a call for those who wait for it.
type recorded struct {
	grpc.ServerStream
	ctx   context.Context
	reply []byte
}

// Context returns the context of the shared call.
func (s *recorded) Context() context.Context { return s.ctx }

// SendMsg keeps the reply.
func (s *recorded) SendMsg(m any) error {
	if s.reply != nil {
		return status.Error(codes.Internal, "cardinality violation: more than one response message for non-server-streaming RPC")
	}
	wire, err := wireOf(m)
	if err != nil {
		return err
	}
	s.reply = append(make([]byte, 0, len(wire)), wire...) // not nil, even if it is empty
	return nil
}
