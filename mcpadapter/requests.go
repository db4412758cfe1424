package mcpadapter

import (
	"encoding/json"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// Requests returns the requests function of a call of m with a tool's arguments, as call.NewStream takes it: the request message itself, or
// {"messages":[…]} where the client streams. An error is an *transcode.Error, meant for whoever wrote the arguments.
func Requests(m *catalog.Method, arguments json.RawMessage) (func() (*call.Frame, error), error) {
	return requestFrames(m, arguments)
}
