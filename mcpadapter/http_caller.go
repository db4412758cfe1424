package mcpadapter

import (
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const callerPrefix = "caller-"

// newCallerID returns what initialize hands out in Mcp-Session-Id without sessions. It stands for no state, so that any instance takes it:
// see cancels for what it is good for.
func newCallerID() string { return callerPrefix + rand.Text() }

// isCallerID says whether id has the form of newCallerID.
func isCallerID(id string) bool {
	random, ok := strings.CutPrefix(id, callerPrefix)
	return ok && len(random) == 26 && strings.Trim(random, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// knows says whether a client may use id as its session: initialize gives such ids, here or elsewhere, and it was not ended here.
func (e *endpoint) knows(id string) bool { return isCallerID(id) && !e.ended.has(id) }

// delete ends what a client takes for its session.
func (e *endpoint) delete(w http.ResponseWriter, id string) {
	switch {
	case id == "":
		refuse(w, http.StatusBadRequest, nil, rpcError(jsonrpc.CodeInvalidRequest, "DELETE ends a session: send its id in %s", sessionHeader))
	case !e.knows(id):
		refuse(w, http.StatusNotFound, nil, noSession(id))
	default:
		e.ended.add(id)
		w.WriteHeader(http.StatusNoContent)
	}
}

func noSession(id string) *jsonrpc.Error {
	return rpcError(jsonrpc.CodeInvalidRequest, "session %q does not exist; send initialize again", cut(id, 100))
}
