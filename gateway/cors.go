package gateway

import (
	"net/http"
	"strings"
)

// corsHeaders are the request headers that a browser may send from an allowed origin, and exposedHeaders the answer's that it may read.
const (
	corsHeaders    = "Accept, Authorization, Content-Type, Grpc-Timeout, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, Prefer, Toolway-Confirm, Traceparent, Tracestate, X-Api-Key, X-Request-Id"
	exposedHeaders = "Age, ETag, Idempotent-Replayed, Location, Preference-Applied, Retry-After, Toolway-Cache, Toolway-Call-Id, Toolway-Stale, WWW-Authenticate, X-Request-Id"
)

// preflight answers a CORS preflight from an allowed origin.
func preflight(w http.ResponseWriter, methods []string) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
	h.Set("Access-Control-Allow-Headers", corsHeaders)
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" && r.Header.Get("Origin") != ""
}
