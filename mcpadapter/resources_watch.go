package mcpadapter

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/transcode"
)

const (
	// maxSubscriptions is to how many resources a session, or one subscriptions/listen, may subscribe.
	maxSubscriptions = 64
	// watchAgain and watchAgainMax are the first and the longest pause before a stream that broke is begun again.
	watchAgain, watchAgainMax = time.Second, 30 * time.Second
)

// watch is one stream that tells of the changes of a resource.
type watch struct {
	adapter  *Adapter
	from     asker
	resource *catalog.Resource
	request  []byte
	// name is the resource's, for a stream that tells of its siblings too.
	name    string
	changed func()
	// up says that there has been a stream, and begun is closed then.
	up    bool
	begun chan struct{}
}

// startWatch begins to call changed at each change of the resource until ctx ends. It returns when the stream is up, or nothing has been
// said against it for a moment; an error is a JSON-RPC error, and nothing runs then. Wait on done for the end of everything.
func (a *Adapter) startWatch(ctx context.Context, from asker, uri string, changed func()) (done <-chan struct{}, err error) {
	r, values := a.conf.Catalog.Snapshot().Resource(uri)
	if r == nil || !a.sees(ctx, r.Get) {
		return nil, noResource(from, uri, "")
	}
	if r.Watch == nil || !a.sees(ctx, r.Watch.Method) {
		return nil, rpcError(jsonrpc.CodeInvalidParams, "resource %q cannot be subscribed to: its contract has no method that watches it; read it again instead", cut(uri, 200))
	}
	request, err := r.WatchRequest(values)
	if err != nil {
		return nil, noResource(from, uri, err.Error())
	}
	w := &watch{adapter: a, from: from, resource: r, request: request, changed: changed, begun: make(chan struct{})}
	if r.Watch.Parent != "" {
		w.name = r.NameOf(values)
	}
	ended, failed := make(chan struct{}), make(chan error, 1)
	running, cancel := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		defer cancel()
		defer w.rescue(running, failed)
		w.run(running, failed)
	}()
	refusal := time.NewTimer(a.conf.watchAnswer)
	defer refusal.Stop()
	select {
	case err := <-failed:
		cancel()
		<-ended
		return nil, readError(from, uri, err)
	case <-w.begun:
	case <-refusal.C:
	case <-ctx.Done():
	}
	return ended, nil
}

// run watches until ctx ends or there is no use in trying again. failed gets the first error if the stream was never up.
func (w *watch) run(ctx context.Context, failed chan<- error) {
	pause := watchAgain
	for first := true; ; first = false {
		begin := time.Now()
		err := w.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && first && !w.up {
			failed <- err
		}
		if err != nil {
			if code, text := reason(err); lasting(code) {
				w.adapter.conf.Logger.DebugContext(ctx, "subscription ended", "method", w.resource.Watch.Method.FullMethod, "code", codeName(code), "message", text)
				return
			}
		}
		if time.Since(begin) > watchAgainMax {
			pause = watchAgain
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause)): // many may have lost their stream at once
		}
		pause = min(2*pause, watchAgainMax)
	}
}

// rescue ends the subscription, and not the process, where something that a backend sent has led to a panic.
func (w *watch) rescue(ctx context.Context, failed chan<- error) {
	r := recover()
	if r == nil {
		return
	}
	w.adapter.panicked(ctx, w.resource.Watch.Method.FullMethod, r)
	select {
	case failed <- errPanic:
	default: // there has been an error, or nobody waits for one any more
	}
}

// lasting says whether a stream that ended so would end so again.
func lasting(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.FailedPrecondition, codes.OutOfRange:
		return true
	}
	return false
}

// stream makes the call once.
func (w *watch) stream(ctx context.Context) error {
	m := w.resource.Watch.Method
	c := w.adapter.newCall(ctx, w.from, m)
	err := w.adapter.conf.Handler(call.NewStream(ctx, c, call.One(call.NewFrame(m.Desc.Input(), w.request)), func(f *call.Frame) error {
		if w.concerns(f.Bytes()) {
			w.changed()
		}
		return nil
	}, func(metadata.MD) error {
		if w.up {
			w.changed() // what happened since the last stream is not known
			return nil
		}
		w.up = true
		close(w.begun)
		return nil
	}))
	if err != nil {
		return &fetchError{call: c, status: w.adapter.statusOf(ctx, c, err)}
	}
	return nil
}

// concerns says whether a message is about the resource. One that does not say what it is about may be.
func (w *watch) concerns(message []byte) bool {
	by := w.resource.Watch
	if w.name == "" || by.ItemName == nil {
		return true
	}
	path := string(by.ItemName.Name())
	if by.Item != nil {
		path = string(by.Item.Name()) + "." + path
	}
	raw, err := by.Method.Response().AppendFieldJSON(nil, path, message, transcode.WriteOptions{})
	name := textOf(raw)
	return err != nil || name == "" || name == w.name
}
