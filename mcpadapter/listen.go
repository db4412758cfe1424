package mcpadapter

import (
	"context"
	"encoding/json"
	"net/http"
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

// listen serves subscriptions/listen. Over HTTP each is a connection of its own, and the SDK does it. Over stdio several may be open at
// once, of which the SDK would tell only the last one of changes.
func (a *Adapter) listen(ctx context.Context, next mcp.MethodHandler, method string, req mcp.Request) (mcp.Result, error) {
	conn, _ := ctx.Value(lineKey{}).(*lineConn)
	params, ok := req.GetParams().(*mcp.SubscriptionsListenParams)
	if conn == nil || !ok || req.GetExtra() == nil {
		release := a.changes.watch()
		defer release()
		return next(ctx, method, req)
	}
	if params == nil || params.Notifications == nil {
		return nil, invalidParams("params.notifications is missing: want the notifications to listen for")
	}
	id := json.RawMessage(req.GetExtra().Header.Get(listenIDHeader))
	if err := a.listenOn(ctx, conn, id, params.Notifications.ToolsListChanged); err != nil {
		return nil, err
	}
	return &rawResult{ResultBase: mcp.ResultBase{Meta: mcp.Meta{metaSubscription: id}}, body: []byte(`"resultType":"complete"`)}, nil
}

// listenOn acknowledges a subscription and, if it is for the list of tools, keeps it until ctx ends. Nothing else ever changes here.
func (a *Adapter) listenOn(ctx context.Context, conn *lineConn, id json.RawMessage, tools bool) error {
	meta := `"_meta":{"` + metaSubscription + `":` + string(id) + `}`
	honoured := `{}`
	if tools {
		honoured = `{"toolsListChanged":true}`
	}
	var acknowledged sync.Mutex // a notice waits for the acknowledgement
	acknowledged.Lock()
	if tools {
		release := a.changes.listen(func() {
			acknowledged.Lock()
			defer acknowledged.Unlock()
			// A broken output ends the connection, and with it this subscription.
			_ = conn.write([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{` + meta + `}}`))
		})
		defer release()
	}
	err := conn.write([]byte(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{` + meta + `,"notifications":` + honoured + `}}`))
	acknowledged.Unlock()
	if err != nil || !tools {
		return err
	}
	<-ctx.Done()
	return nil
}

// extra is what a lineConn tells the middleware about a request.
func extra(header, value string) *mcp.RequestExtra {
	return &mcp.RequestExtra{Header: http.Header{header: {value}}}
}
