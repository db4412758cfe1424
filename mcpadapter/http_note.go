package mcpadapter

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// replyHeader carries the key of the reply to a call from the HTTP transport to the middleware. The context cannot: in a session it is that
// of the request which began the session.
const replyHeader = "Toolway-Reply"

// asks are the methods during which an older client may be asked something.
var asks = map[string]bool{"tools/call": true, "prompts/get": true}

// streams says whether the answer to a request is an event stream, which has room for questions to the client. It is true for stdio.
func (a *Adapter) streams(ctx context.Context, extra *mcp.RequestExtra) bool {
	if ctx.Value(lineKey{}) != nil {
		return true
	}
	if extra == nil {
		return false
	}
	r := a.replyTo(extra.Header)
	return r != nil && r.form == asEvents
}

// noteCall writes into the header of a request for the SDK what the middleware has to know of a call with a progress token, and what the
// SDK does not tell it. The returned function is to be called when the request has ended.
func (a *Adapter) noteCall(h http.Header, msg envelope, r *reply) (forget func()) {
	h.Del(tokenHeader)
	h.Del(replyHeader)
	h.Del(taskIDsHeader)
	if !msg.isRequest() || !asks[msg.method] && msg.method != "subscriptions/listen" && r.principal == nil {
		return func() {}
	}
	if token := numberToken(msg.params); token != "" && msg.method == "tools/call" {
		h.Set(tokenHeader, token)
	}
	if ids := listenTaskIDs(msg.params); ids != "" && msg.method == "subscriptions/listen" {
		h.Set(taskIDsHeader, ids)
	}
	key := rand.Text()
	h.Set(replyHeader, key)
	a.replies.Store(key, r)
	return func() { a.replies.Delete(key) }
}

// beginner returns the function that begins the stream of a call whose request has the header h, or nil.
func (a *Adapter) beginner(h http.Header) func() {
	if r := a.replyTo(h); r != nil {
		return r.beginStream
	}
	return nil
}

// replyTo returns the reply to the request that has the header h, or nil.
func (a *Adapter) replyTo(h http.Header) *reply {
	noted, _ := a.replies.Load(h.Get(replyHeader))
	r, _ := noted.(*reply)
	return r
}
