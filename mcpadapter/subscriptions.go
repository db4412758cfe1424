package mcpadapter

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// subscriptions are those of the sessions of older clients: they last until they are taken back or the session ends.
type subscriptions struct {
	adapter *Adapter
	running sync.WaitGroup

	mu       sync.Mutex
	sessions map[*mcp.ServerSession]map[string]*subscription // by URI
	keys     int
}

// subscription is one of a session.
type subscription struct {
	// key is the URI by which the SDK knows it. The SDK would tell every session that has subscribed to a URI of each message on the stream
	// of any of them; so each has one of its own, from which plainUpdate takes the mark again.
	key  string
	stop func()
}

// plainUpdate takes the mark of a subscription's key from what the SDK sends.
func plainUpdate(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if p, ok := req.GetParams().(*mcp.ResourceUpdatedNotificationParams); ok && p != nil {
			p.URI, _, _ = strings.Cut(p.URI, "\x00")
		}
		return next(ctx, method, req)
	}
}

// subscribe answers resources/subscribe.
func (s *subscriptions) subscribe(ctx context.Context, next mcp.MethodHandler, r *mcp.SubscribeRequest) (mcp.Result, error) {
	if _, stateless := ctx.Value(requestKey{}).(context.Context); stateless {
		return nil, rpcError(jsonrpc.CodeMethodNotFound, "resources/subscribe is not offered over HTTP without sessions: there is no stream on which changes could be told")
	}
	if isModern(r.Params.Meta) {
		return next(ctx, "resources/subscribe", r) // refuses it
	}
	uri := r.Params.URI
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	lasting, undrain := s.adapter.untilDrained(lasting)
	stop := func() { undrain(); cancel() }
	sub, err := s.add(r.Session, uri, stop)
	if sub == nil {
		stop()
		return &rawResult{}, err
	}
	known := *r
	known.Params = &mcp.SubscribeParams{Meta: r.Params.Meta, URI: sub.key}
	res, err := next(ctx, "resources/subscribe", &known)
	if err == nil {
		var done <-chan struct{}
		done, err = s.adapter.startWatch(lasting, askerOf(r, r.Params.Meta), uri, func() {
			// A client that has gone is noticed by the end of its session; there is nobody else to tell.
			_ = s.adapter.server.ResourceUpdated(lasting, &mcp.ResourceUpdatedNotificationParams{URI: sub.key})
		})
		if err == nil {
			s.running.Go(func() { <-done })
		}
	}
	if err != nil {
		_, _ = s.unsubscribe(ctx, next, &mcp.UnsubscribeRequest{Session: r.Session, Params: &mcp.UnsubscribeParams{URI: uri}}) // there is nothing more to tell
		return nil, err
	}
	return res, nil
}

// unsubscribe answers resources/unsubscribe. It is no error if there is no such subscription.
func (s *subscriptions) unsubscribe(ctx context.Context, next mcp.MethodHandler, r *mcp.UnsubscribeRequest) (mcp.Result, error) {
	if isModern(r.Params.Meta) {
		return next(ctx, "resources/unsubscribe", r) // refuses it
	}
	s.mu.Lock()
	sub := s.sessions[r.Session][r.Params.URI]
	delete(s.sessions[r.Session], r.Params.URI)
	s.mu.Unlock()
	if sub == nil {
		return &rawResult{}, nil
	}
	sub.stop()
	known := *r
	known.Params = &mcp.UnsubscribeParams{Meta: r.Params.Meta, URI: sub.key}
	return next(ctx, "resources/unsubscribe", &known)
}

// add notes a subscription. It is nil without an error if there is one already.
func (s *subscriptions) add(session *mcp.ServerSession, uri string, stop func()) (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	subs, known := s.sessions[session]
	switch {
	case subs[uri] != nil:
		return nil, nil
	case len(subs) >= maxSubscriptions:
		return nil, rpcError(jsonrpc.CodeInvalidParams, "this session has %d subscriptions, which is the most; unsubscribe from one first", len(subs))
	}
	if !known {
		if s.sessions == nil {
			s.sessions = map[*mcp.ServerSession]map[string]*subscription{}
		}
		subs = map[string]*subscription{}
		s.sessions[session] = subs
		s.running.Go(func() {
			_ = session.Wait() // however it ends
			s.end(session)
		})
	}
	s.keys++
	sub := &subscription{key: uri + "\x00" + strconv.Itoa(s.keys), stop: stop}
	subs[uri] = sub
	return sub, nil
}

// end ends the subscriptions of a session.
func (s *subscriptions) end(session *mcp.ServerSession) {
	s.mu.Lock()
	subs := s.sessions[session]
	delete(s.sessions, session)
	s.mu.Unlock()
	for _, sub := range subs {
		sub.stop()
	}
}
