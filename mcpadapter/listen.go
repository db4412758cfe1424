package mcpadapter

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
	// listenIDHeader carries the id of a subscriptions/listen from a lineConn to the middleware, which the SDK does not tell it.
	listenIDHeader = "Toolway-Listen-Id"
)

// lineKey is the context key of the connection that a request over stdio came by.
type lineKey struct{}

// listen serves subscriptions/listen. The SDK would tell only the last of several on one connection of changes, and each of all updates.
func (a *Adapter) listen(ctx context.Context, next mcp.MethodHandler, method string, req mcp.Request) (mcp.Result, error) {
	params, ok := req.GetParams().(*mcp.SubscriptionsListenParams)
	id, send := a.listenerOf(ctx, req.GetExtra())
	if !ok || params == nil || send == nil || !isModern(params.Meta) {
		return next(ctx, method, req) // refuses it
	}
	if params.Notifications == nil {
		return nil, invalidParams("params.notifications is missing: want the notifications to listen for")
	}
	can := abilitiesOf(params.Meta[mcp.MetaKeyClientCapabilities])
	tasks, err := a.wantedTasks(req.GetExtra().Header.Get(taskIDsHeader), can)
	if err != nil {
		return nil, err
	}
	l := listener{adapter: a, can: can, send: send, meta: `"_meta":{"` + metaSubscription + `":` + string(id) + `}`}
	if err := l.run(ctx, askerOf(req, params.Meta), honoured{*params.Notifications, tasks}); err != nil {
		return nil, err
	}
	return &rawResult{ResultBase: mcp.ResultBase{Meta: mcp.Meta{metaSubscription: id}}, body: []byte(`"resultType":"complete"`)}, nil
}

// listenerOf returns the id of a subscriptions/listen, as the client wrote it, and what sends one message to the client.
func (a *Adapter) listenerOf(ctx context.Context, x *mcp.RequestExtra) (json.RawMessage, func([]byte) error) {
	if x == nil {
		return nil, nil
	}
	if conn, ok := ctx.Value(lineKey{}).(*lineConn); ok {
		return json.RawMessage(x.Header.Get(listenIDHeader)), conn.write
	}
	r := a.replyTo(x.Header)
	if r == nil {
		return nil, nil
	}
	return r.id, func(message []byte) error {
		r.event(append(append([]byte(eventBegin), message...), eventEnd...))
		return nil
	}
}

// honoured are the subscriptions that a client wants, or gets.
type honoured struct {
	mcp.NotificationSubscriptions
	TaskIDs []string `json:"taskIds,omitempty"`
}

// listener is one subscriptions/listen.
type listener struct {
	adapter *Adapter
	can     abilities
	send    func([]byte) error
	meta    string

	mu    sync.Mutex // held until the acknowledgement is out: it comes first
	ended bool
}

// notify sends a notification. A broken output ends the connection, and with it this subscription.
func (l *listener) notify(method, params string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	_ = l.send([]byte(`{"jsonrpc":"2.0","method":"` + method + `","params":{` + l.meta + params + `}}`))
}

// run acknowledges what of the subscriptions can be kept, and keeps it until ctx ends.
func (l *listener) run(ctx context.Context, from asker, want honoured) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	l.mu.Lock()
	wanted := map[lists]bool{ofTools: want.ToolsListChanged, ofPrompts: want.PromptsListChanged, ofResources: want.ResourcesListChanged}
	release := l.adapter.changes.listen(func(changed lists) {
		for of, method := range map[lists]string{ofTools: "tools", ofPrompts: "prompts", ofResources: "resources"} {
			if wanted[of] && changed&of != 0 {
				l.notify("notifications/"+method+"/list_changed", "")
			}
		}
	})
	defer func() {
		release()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended = true // somebody may be about to notify still
	}()
	kept := want
	kept.ResourceSubscriptions = l.watch(ctx, from, want.ResourceSubscriptions, &watching)
	kept.TaskIDs = l.watchTasks(ctx, from, l.can, want.TaskIDs, &watching)
	err := l.send([]byte(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{` + l.meta + `,"notifications":` + string(encoded(kept)) + `}}`))
	l.mu.Unlock()
	if err != nil || !want.ToolsListChanged && !want.PromptsListChanged && !want.ResourcesListChanged && len(kept.ResourceSubscriptions) == 0 && len(kept.TaskIDs) == 0 {
		return err
	}
	<-ctx.Done()
	return nil
}

// watch begins to watch the resources, and returns the URIs of those that can be.
func (l *listener) watch(ctx context.Context, from asker, uris []string, watching *sync.WaitGroup) []string {
	begun := make([]bool, min(len(uris), maxSubscriptions))
	var starting sync.WaitGroup
	for i, uri := range uris[:len(begun)] {
		if slices.Contains(uris[:i], uri) {
			continue
		}
		starting.Go(func() {
			done, err := l.adapter.startWatch(ctx, from, uri, func() {
				l.notify("notifications/resources/updated", `,"uri":`+string(appendString(nil, uri)))
			})
			if begun[i] = err == nil; err == nil {
				watching.Go(func() { <-done })
			}
		})
	}
	starting.Wait()
	var out []string
	for i, ok := range begun {
		if ok {
			out = append(out, uris[i])
		}
	}
	return out
}

// extra is what a lineConn tells the middleware about a request.
func extra(header, value string) *mcp.RequestExtra {
	return &mcp.RequestExtra{Header: http.Header{header: {value}}}
}
