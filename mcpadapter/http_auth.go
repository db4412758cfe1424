package mcpadapter

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// authenticate returns the request with its caller in the context, so that every path sees who it is. If nobody may know what it asks, the
// answer is written and ok is false: 401 says where to get credentials.
func (e *endpoint) authenticate(w http.ResponseWriter, r *http.Request) (_ *http.Request, ok bool) {
	conf := &e.adapter.conf
	if conf.Authenticator == nil {
		return r, true
	}
	if identity.InQuery(r.URL.RawQuery) {
		refuse(w, http.StatusBadRequest, nil, rpcError(jsonrpc.CodeInvalidRequest, "credentials are not taken from the URL, where logs and histories keep them: send them in a header"))
		return r, false
	}
	credentials := identity.RequestCredentials(r)
	p, err := conf.Authenticator.Authenticate(r.Context(), credentials)
	if err != nil {
		e.record(w, r, err)
		e.refuseCaller(w, r, err)
		return r, false
	}
	return r.WithContext(call.WithPrincipal(call.WithCredentials(r.Context(), credentials), p)), true
}

// maxUnknown bounds what is read of a message whose sender is not known, and unknownTimeout the time for it.
const (
	maxUnknown     = 64 << 10
	unknownTimeout = 5 * time.Second
)

// record has the chain refuse a call of a tool whose caller is not known, so that it is observed and recorded as at the other doors. What is no such call
// is left out, and so is one that is too long to be read from a stranger.
func (e *endpoint) record(w http.ResponseWriter, r *http.Request, err error) {
	if r.Method != http.MethodPost {
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(unknownTimeout)) // a recorder in a test has no connection
	body, unread := io.ReadAll(http.MaxBytesReader(w, r.Body, maxUnknown))
	_ = rc.SetReadDeadline(time.Time{})
	if unread != nil {
		return
	}
	msg, bad := parseEnvelope(body)
	if bad != nil {
		return
	}
	name, _ := toolOf(msg)
	m := e.adapter.conf.Catalog.Snapshot().Tool(name)
	if m == nil || !m.Exposed(catalog.DoorMCP) {
		return
	}
	_, _ = e.refused(call.WithRefusal(r.Context(), err), r, m) // the caller is told err
}

// refused runs a call that the chain refuses before it reads the request.
func (e *endpoint) refused(ctx context.Context, r *http.Request, m *catalog.Method) (*call.Call, error) {
	c := call.New(m, call.MCP)
	c.Protocol, c.Peer = or(r.Header.Get(versionHeader), version20250618), (*call.Remote)(&r.RemoteAddr)
	c.Forward = forward(e.adapter.conf.Rules, r.Header, crossing{})
	identify(ctx, c)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return c, e.adapter.conf.Handler(call.NewStream(ctx, c, call.One(nil), func(*call.Frame) error { return nil }, nil))
}

// refuseCaller answers a request whose credentials are no good, or cannot be verified now.
func (e *endpoint) refuseCaller(w http.ResponseWriter, r *http.Request, err error) {
	st := status.Convert(err)
	code := http.StatusServiceUnavailable
	if st.Code() == codes.Unauthenticated {
		code = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", or(e.adapter.conf.Resource.Challenge(r, r.URL.Path, err, nil), "Bearer"))
	}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			w.Header().Set("Retry-After", strconv.Itoa(max(1, int(info.GetRetryDelay().AsDuration()/time.Second))))
		}
	}
	told := rpcError(jsonrpc.CodeInvalidRequest, "%s", st.Message())
	told.Data, _ = marshal(describeCaller(st)) // text can always be encoded
	refuse(w, code, nil, told)
}

// stepUp answers a call whose caller lacks a scope with 403, which names all scopes that the tool needs, and says whether it did. The chain refuses
// the call, so that the refusal is observed and recorded as any other.
func (e *endpoint) stepUp(w http.ResponseWriter, r *http.Request, id json.RawMessage, name string, arguments json.RawMessage) bool {
	a, ctx := e.adapter, r.Context()
	if a.conf.Authenticator == nil {
		return false
	}
	p := call.PrincipalFrom(ctx)
	if p == nil {
		return false
	}
	s := a.conf.Catalog.Snapshot()
	m := a.tool(ctx, s, name)
	if name == callTool && a.conf.View.Search {
		inner, _, _ := calledThrough(arguments) // what is wrong with them the call itself tells
		m = a.inner(ctx, s, inner)
	}
	if m == nil || len(p.Missing(m.Policy.Scopes)) == 0 {
		return false
	}
	c, err := e.refused(ctx, r, m)
	if reason, _ := identity.Reason(err); reason != identity.InsufficientScope {
		return false
	}
	w.Header().Set("WWW-Authenticate", a.conf.Resource.Challenge(r, r.URL.Path, err, p))
	told := rpcError(jsonrpc.CodeInvalidRequest, "%s", status.Convert(err).Message())
	detail := describe(status.Convert(err), c)
	detail.plain()
	told.Data, _ = marshal(detail) // it has nothing in it that cannot be encoded
	refuse(w, http.StatusForbidden, id, told)
	return true
}

// toolOf is the name of the tool that a tools/call is for, or "", and its arguments.
func toolOf(msg envelope) (name string, arguments json.RawMessage) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if msg.method != "tools/call" || !msg.isRequest() || json.Unmarshal(msg.params, &p) != nil {
		return "", nil
	}
	return p.Name, p.Arguments
}

// identify tells a call who makes it. Over stdio the same caller stays, but its token may end: then the chain is to find that out.
func identify(ctx context.Context, c *call.Call) {
	c.Credentials = call.CredentialsFrom(ctx)
	if p := call.PrincipalFrom(ctx); p != nil && (p.Expires.IsZero() || time.Now().Before(p.Expires)) {
		c.Principal = p
	}
}

// withCaller returns ctx with the caller of an HTTP request in it, and its address: in a session ctx is that of the request which began the session, when the caller had
// another token, perhaps with other scopes.
func (a *Adapter) withCaller(ctx context.Context, req mcp.Request) context.Context {
	if req.GetExtra() == nil {
		return ctx
	}
	r := a.replyTo(req.GetExtra().Header)
	if r == nil {
		return ctx
	}
	if r.peer != nil {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: r.peer})
	}
	if a.conf.Authenticator == nil || r.principal == nil {
		return ctx
	}
	return call.WithPrincipal(call.WithCredentials(ctx, r.credentials), r.principal)
}

// sessionKey binds the ids of sessions to callers, for as long as the process lives, as sessions do.
type sessionKey [32]byte

func newSessionKey() (k sessionKey) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

var sessionText = base32.StdEncoding.WithPadding(base32.NoPadding)

// bind returns a session's id as its caller is told it: another one can do nothing with it. A caller is the same with a new token. p may be nil:
// then the id is as it is.
func (k *sessionKey) bind(id string, p *identity.Principal) string {
	if p == nil {
		return id
	}
	return id + "." + k.mark(id, p)
}

func (k *sessionKey) mark(id string, p *identity.Principal) string {
	h := hmac.New(sha256.New, k[:])
	for _, s := range []string{id, p.ID, p.Tenant} {
		h.Write(strconv.AppendInt(nil, int64(len(s)), 10))
		h.Write([]byte("."))
		h.Write([]byte(s))
	}
	return sessionText.EncodeToString(h.Sum(nil)[:16])
}

var errForeignSession = errors.New("the session is not this caller's")

// unbind returns the id of a session as the SDK knows it.
func (k *sessionKey) unbind(bound string, p *identity.Principal) (string, error) {
	if p == nil || bound == "" {
		return bound, nil
	}
	i := strings.LastIndexByte(bound, '.')
	if i < 0 || !hmac.Equal([]byte(bound[i+1:]), []byte(k.mark(bound[:i], p))) {
		return "", errForeignSession
	}
	return bound[:i], nil
}

// ownSession makes the session's id in a request the SDK's, and the other way round in the reply. It says whether the session is the caller's: if not,
// the answer is written.
func (e *endpoint) ownSession(reply *reply, r *http.Request) bool {
	p := call.PrincipalFrom(r.Context())
	if e.adapter.conf.Authenticator == nil || p == nil {
		return true
	}
	reply.bind = func(id string) string { return e.key.bind(id, p) }
	bound := r.Header.Get(sessionHeader)
	id, err := e.key.unbind(bound, p)
	if err != nil {
		e.adapter.conf.Logger.WarnContext(r.Context(), "a session id was used by a caller whose session it is not", "principal", p.ID)
		reply.refuse(http.StatusNotFound, noSession(bound))
		return false
	}
	if id != "" {
		r.Header.Set(sessionHeader, id)
	}
	return true
}
