package gateway

import (
	"net/http"

	"github.com/toolway/toolway/internal/call"
)

// accepted answers a call that has become a task: 202 with where to see it (RFC 7240, section 4.1).
func (g *Gateway) accepted(x *exchange, c *call.Call) {
	h := x.w.Header()
	h.Set("Location", call.TasksPath+c.Task)
	h.Set("Preference-Applied", "respond-async")
	h["Content-Type"] = jsonType
	g.write(x, http.StatusAccepted, []byte(`{"id":"`+c.Task+`","method":"`+c.Method.FullMethod[1:]+`","state":"STATE_WORKING"}`))
}
