package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/transcode"
)

// lines reads the request messages of a client-streaming or bidi method: JSON objects one after the other, one a line by convention.
// One goroutine reads ahead by one message; close waits for it.
func (g *Gateway) lines(ctx context.Context, x *exchange, m match) (*requestSource, error) {
	s, r := &requestSource{}, x.r
	if r.URL.RawQuery != "" {
		if _, _, err := m.appendQuery(nil, r.URL.RawQuery); err != nil {
			return nil, err
		}
	}
	if !hasBody(r) {
		s.next = func() (*call.Frame, error) { return nil, io.EOF }
		return s, nil
	}
	if err := needJSON(r.Header, true); err != nil {
		return nil, err
	}
	body, err := g.bodyReader(r)
	if err != nil {
		return nil, err
	}
	rc := http.NewResponseController(x.w)
	// HTTP/1 servers otherwise read the body to its end before they answer. HTTP/2 needs no permission and refuses it.
	_ = rc.EnableFullDuplex()
	// The server's read timeout is for one request body, not for a stream. The call's own deadline bounds it.
	_ = rc.SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancel(ctx)
	frames, ended, done := make(chan *call.Frame), make(chan struct{}), make(chan struct{})
	if r.ProtoMajor == 1 {
		x.w = &closing{ResponseWriter: x.w, ended: ended}
	}
	var failure error // written before frames is closed
	go func() {
		defer close(done)
		defer close(frames)
		failure = status.Error(codes.Internal, "internal error; the log has the cause") // of a panic
		defer func() {
			if r := recover(); r != nil {
				g.panicked(ctx, m.method.FullMethod, r)
			}
		}()
		if failure = g.pump(ctx, body, m, frames); failure == nil {
			close(ended)
		}
	}()
	s.next = func() (*call.Frame, error) {
		select {
		case f, ok := <-frames:
			if ok {
				return f, nil
			}
			if failure != nil {
				s.err = failure
				return nil, failure
			}
			return nil, io.EOF
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	s.interrupt = cancel
	s.stop = func() {
		cancel()
		select {
		case <-ended:
		default:
			// The call has ended before its requests have: a read that waits for the caller must not outlive the handler, and neither must net/http's
			// own, of what is left.
			_ = rc.SetReadDeadline(time.Unix(1, 0))
		}
		<-done
	}
	return s, nil
}

// closing is the answer over HTTP/1 to a stream of requests. If it begins before they have ended, it is the connection's last: a read that is
// interrupted ends the context of all requests that come over the connection after it, and what is left of the stream is no request.
type closing struct {
	http.ResponseWriter
	ended <-chan struct{} // closed when the requests have
	begun bool
}

// WriteHeader settles whether the connection goes on.
func (w *closing) WriteHeader(code int) {
	if !w.begun && code >= http.StatusOK {
		w.begun = true
		select {
		case <-w.ended:
		default:
			w.Header().Set("Connection", "close")
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write begins the answer.
func (w *closing) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *closing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// panicked tells the log of a panic on a goroutine that neither the chain nor net/http guards, where it would end the process.
func (g *Gateway) panicked(ctx context.Context, method string, r any) {
	g.logger.LogAttrs(ctx, slog.LevelError, "panic in a stream, which ends", slog.String("method", method), slog.String("panic", fmt.Sprint(r)), slog.String("stack", string(debug.Stack())))
}

// pump turns JSON values into frames until the body ends.
func (g *Gateway) pump(ctx context.Context, body io.Reader, m match, frames chan<- *call.Frame) error {
	limited := &budget{src: body}
	dec := json.NewDecoder(limited)
	for n := 1; ; n++ {
		limited.left = g.maxBody
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			var syntax *json.SyntaxError
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case errors.Is(err, errBudget):
				return refuse(http.StatusRequestEntityTooLarge, codes.ResourceExhausted, fmt.Sprintf("%slonger than the limit of %d bytes", inMessage(n), g.maxBody))
			case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF):
				return refuse(http.StatusBadRequest, codes.InvalidArgument, inMessage(n)+"not valid JSON; send one object a line")
			}
			return g.bodyError(err)
		}
		wire, err := m.method.Request().AppendWire(nil, value, transcode.ReadOptions{})
		if err == nil {
			wire, err = m.appendPath(wire)
		}
		var bad *transcode.Error
		if errors.As(err, &bad) {
			return &messageError{n, bad}
		}
		if err != nil {
			return err
		}
		select {
		case frames <- call.NewFrame(m.method.Desc.Input(), wire):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errBudget = errors.New("message too large")

// budget fails a read after so many bytes.
type budget struct {
	src  io.Reader
	left int64
}

func (b *budget) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errBudget
	}
	n, err := b.src.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
