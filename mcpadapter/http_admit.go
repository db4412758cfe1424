package mcpadapter

import (
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// admit refuses what a foreign web page could send through a browser, and answers the preflight of allowed origins. It says whether to go on.
func (e *endpoint) admit(w http.ResponseWriter, r *http.Request) bool {
	foreign, err := e.origins.Check(r)
	if err != nil {
		refuse(w, http.StatusForbidden, nil, rpcError(jsonrpc.CodeInvalidRequest, "%s", err))
		return false
	}
	h := w.Header()
	if e.origins.Foreign() {
		h.Add("Vary", "Origin")
	}
	if foreign == "" {
		return true
	}
	h.Set("Access-Control-Allow-Origin", foreign)
	h.Set("Access-Control-Expose-Headers", sessionHeader+", WWW-Authenticate")
	if r.Method != http.MethodOptions {
		return true
	}
	h.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, X-Api-Key, Content-Type, Accept, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, Last-Event-Id, Idempotency-Key, Traceparent, Tracestate, Baggage")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return false
}
