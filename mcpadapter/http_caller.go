package mcpadapter

import (
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
)

const callerPrefix = "caller-"

// newCallerID returns what initialize hands out in Mcp-Session-Id without sessions. It stands for no state, so that any instance takes it:
// see cancels for what it is good for.
// Of a caller that has said who it is, it also has that caller's mark, so that nobody else can use it: the mark needs no secret, since an id that
// another one makes is another id.
func newCallerID(p *identity.Principal) string {
	id := callerPrefix + rand.Text()
	return new(sessionKey).bind(id, p)
}

// isCallerID says whether id has the form that newCallerID gives p.
func isCallerID(id string, p *identity.Principal) bool {
	id, err := new(sessionKey).unbind(id, p)
	random, ok := strings.CutPrefix(id, callerPrefix)
	return err == nil && ok && len(random) == 26 && strings.Trim(random, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// knows says whether the caller of a request may use id as its session: initialize gives such ids, here or elsewhere, and it was not ended here.
func (e *endpoint) knows(r *http.Request, id string) bool {
	return isCallerID(id, e.principal(r)) && !e.ended.has(id)
}

// principal is the caller of a request, where callers are asked who they are; else nil.
func (e *endpoint) principal(r *http.Request) *identity.Principal {
	if e.adapter.conf.Authenticator == nil {
		return nil
	}
	return call.PrincipalFrom(r.Context())
}

// delete ends what a client takes for its session.
func (e *endpoint) delete(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(sessionHeader)
	switch {
	case id == "":
		refuse(w, http.StatusBadRequest, nil, rpcError(jsonrpc.CodeInvalidRequest, "DELETE ends a session: send its id in %s", sessionHeader))
	case !e.knows(r, id):
		refuse(w, http.StatusNotFound, nil, noSession(id))
	default:
		e.ended.add(id)
		w.WriteHeader(http.StatusNoContent)
	}
}

func noSession(id string) *jsonrpc.Error {
	return rpcError(jsonrpc.CodeInvalidRequest, "session %q does not exist; send initialize again", cut(id, 100))
}
