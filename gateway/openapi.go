package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/toolschema"
)

const openAPIPath = "/openapi.json"

// document is the OpenAPI document of a table, made at first use.
type document struct {
	once        sync.Once
	plain, gzip []byte
	etag        string
	err         error
}

func (g *Gateway) serveOpenAPI(x *exchange, t *table) {
	r := x.r
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		g.fail(x, nil, refuse(http.StatusMethodNotAllowed, codes.Unimplemented, "path \""+openAPIPath+"\": it takes GET, HEAD").with("Allow", "GET, HEAD"))
		return
	}
	if g.auth != nil {
		p, err := g.auth.Authenticate(r.Context(), identity.RequestCredentials(r))
		if err != nil {
			g.fail(x, nil, err)
			return
		}
		r = r.WithContext(call.WithPrincipal(r.Context(), p))
		x.w.Header().Add("Vary", "Authorization, X-Api-Key")
	}
	d := t.documentFor(g.shows(r.Context()))
	if d.err != nil {
		g.fail(x, nil, d.err)
		return
	}
	body, etag := d.plain, `"`+d.etag+`"`
	h := x.w.Header()
	h.Add("Vary", "Accept-Encoding")
	if acceptsGzip(r.Header) {
		body, etag = d.gzip, `"`+d.etag+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", etag)
	h.Set("Cache-Control", "no-cache")
	if matchesETag(r.Header.Get("If-None-Match"), etag) {
		h.Del("Content-Encoding")
		x.w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", "application/json")
	g.write(x, http.StatusOK, body)
}

func acceptsGzip(h http.Header) bool {
	for part := range strings.SplitSeq(h.Get("Accept-Encoding"), ",") {
		coding, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if coding == "gzip" && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

// matchesETag compares weakly, as RFC 9110 asks for If-None-Match.
func matchesETag(header, etag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if part = strings.TrimSpace(part); part == "*" || strings.TrimPrefix(part, "W/") == etag {
			return true
		}
	}
	return false
}

// maxDocuments bounds the documents that are kept for callers who may not know of everything.
const maxDocuments = 16

// documents are those for callers who may not know of everything, by what they may.
type documents struct {
	mu  sync.Mutex
	all map[string]*document
}

// shows returns what says which methods the caller may know of; nil if that is everything.
func (g *Gateway) shows(ctx context.Context) func(*catalog.Method) bool {
	if g.visibility == nil {
		return nil
	}
	p := call.PrincipalFrom(ctx)
	return func(m *catalog.Method) bool { return g.visibility.Visible(p, call.HTTP, m) }
}

// documentFor returns the document of the methods that are shown, made once for all who may know of the same.
func (t *table) documentFor(shown func(*catalog.Method) bool) *document {
	var key strings.Builder
	if shown != nil {
		for _, r := range t.routes {
			if !shown(r.method) {
				fmt.Fprintln(&key, r.method.FullMethod)
			}
		}
	}
	d := &t.openapi
	if key.Len() > 0 {
		t.some.mu.Lock()
		defer t.some.mu.Unlock()
		if d = t.some.all[key.String()]; d == nil {
			if t.some.all == nil || len(t.some.all) >= maxDocuments {
				t.some.all = map[string]*document{}
			}
			d = new(document)
			t.some.all[key.String()] = d
		}
	} else {
		shown = nil
	}
	d.once.Do(func() { d.make(t, shown) })
	return d
}

func (d *document) make(t *table, shown func(*catalog.Method) bool) {
	d.plain, d.err = json.Marshal(openAPI(t, shown))
	if d.err != nil {
		return
	}
	sum := sha256.Sum256(d.plain)
	d.etag = hex.EncodeToString(sum[:12])
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	// Writing to memory cannot go wrong.
	_, _ = z.Write(d.plain)
	_ = z.Close()
	d.gzip = b.Bytes()
}

type object = map[string]any

// openAPI describes the routes of t whose methods are shown, all if shown is nil, in OpenAPI 3.1.
func openAPI(t *table, shown func(*catalog.Method) bool) object {
	b := &apiBuilder{schemas: newSchemas(), paths: map[string]*pathItem{}, operations: map[string]int{}}
	tags := map[string]object{}
	for _, r := range t.routes {
		if r.method.Quarantine != "" || shown != nil && !shown(r.method) {
			continue
		}
		b.add(r)
		tags[string(r.method.Service.Desc.FullName())] = tag(r.method.Service)
	}
	names := make([]string, 0, len(tags))
	for n := range tags {
		names = append(names, n)
	}
	slices.Sort(names)
	list := make([]object, 0, len(names))
	for _, n := range names {
		list = append(list, tags[n])
	}
	paths := object{}
	for _, p := range b.paths {
		paths[p.path] = p.operations
	}
	b.schemas.components["google.rpc.Status"] = statusSchema
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title":       "Toolway",
			"version":     t.snapshot.Version(),
			"description": "Every method of the catalog over HTTP. Unknown fields and parameters are refused.",
		},
		"servers": []object{{"url": "/"}},
		"tags":    list,
		"paths":   paths,
		"components": object{
			"schemas": b.schemas.components,
			"responses": object{"Error": object{
				"description": "The call's status. HTTP's status code follows from its code; details say what to do next.",
				"headers":     object{"X-Request-Id": object{"description": "Finds the call in the logs.", "schema": object{"type": "string"}}},
				"content":     object{"application/json": object{"schema": object{"$ref": "#/components/schemas/google.rpc.Status"}}},
			}},
		},
	}
}

func tag(s *catalog.Service) object {
	out := object{"name": string(s.Desc.FullName())}
	if c := toolschema.Comment(s.Desc, 0); c != "" {
		out["description"] = c
	}
	return out
}

var statusSchema = json.RawMessage(`{"type":"object","description":"google.rpc.Status","required":["code","message"],"properties":{` +
	`"code":{"type":"integer","description":"A code of google.rpc.Code.","minimum":0},"message":{"type":"string"},` +
	`"details":{"type":"array","items":{"type":"object","description":"A google.protobuf.Any: the fields of the message that @type names.","required":["@type"],"properties":{"@type":{"type":"string"}},"additionalProperties":true}}}}`)

// apiBuilder gathers the paths of the document.
type apiBuilder struct {
	schemas    *schemas
	paths      map[string]*pathItem // by shape
	operations map[string]int       // how often an operation id was asked for
}

func (b *apiBuilder) add(r *route) {
	shape := pathShape(r.template)
	item := b.paths[shape]
	if item == nil {
		item = newPathItem(r.template)
		b.paths[shape] = item
	}
	verb := strings.ToLower(r.verb)
	switch r.verb {
	case http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodOptions, http.MethodHead, http.MethodPatch, http.MethodTrace:
	case anyMethod:
		verb = "x-any-method"
	default:
		verb = "x-method-" + verb
	}
	item.operations[verb] = b.operation(r, item)
}

func (b *apiBuilder) operation(r *route, item *pathItem) object {
	m := r.method
	id := strings.ReplaceAll(strings.TrimPrefix(m.FullMethod, "/"), "/", ".")
	if b.operations[id]++; b.operations[id] > 1 {
		id += "_" + strconv.Itoa(b.operations[id])
	}
	op := object{
		"operationId": id,
		"summary":     string(m.Desc.Name()),
		"tags":        []string{string(m.Service.Desc.FullName())},
		"responses":   object{"200": b.response(r), "default": object{"$ref": "#/components/responses/Error"}},
	}
	if c := toolschema.Comment(m.Desc, 0); c != "" {
		op["description"] = c
	}
	if m.Deprecated {
		op["deprecated"] = true
	}
	params := append(item.parameters(r.template), b.query(r)...)
	if r.cursors.after != nil {
		params = append(params, object{
			"name": lastEventID, "in": "header", "schema": object{"type": "string"},
			"description": "With " + eventStream + ": the id of the last event. The stream goes on after it; it wins over \"" + r.cursors.path + "\".",
		})
	}
	if r.etags.request != nil && r.verb != http.MethodGet && r.verb != http.MethodHead {
		params = append(params, object{
			"name": ifMatchHeader, "in": "header", "schema": object{"type": "string"},
			"description": "One etag in quotes, of a GET's ETag or the resource's own. It fills \"" + r.etags.path + "\"; if that is not what there is any more, the answer is 412.",
		})
	}
	if len(params) > 0 {
		op["parameters"] = params
	}
	if body := b.body(r); body != nil {
		op["requestBody"] = body
	}
	return op
}

// anyBytes describes a google.api.HttpBody: the content itself, of any type.
var anyBytes = object{"*/*": object{"schema": object{}}}

func (b *apiBuilder) body(r *route) object {
	in := r.method.Desc.Input()
	switch {
	case r.body == "":
		return nil
	case r.rawBody:
		return object{"content": anyBytes}
	case r.method.Kind().Client && r.body == wholeBody:
		return object{
			"description": "A stream of request messages: one JSON object a line.",
			"content":     object{ndjson: object{"schema": b.schemas.message(in, toolschema.Input)}},
		}
	case r.bodyField != nil:
		return object{"content": object{"application/json": object{"schema": b.schemas.field(r.bodyField, toolschema.Input)}}}
	}
	return object{"content": object{"application/json": object{"schema": b.schemas.message(in, toolschema.Input)}}}
}

func (b *apiBuilder) response(r *route) object {
	var schema any
	out := r.method.Desc.Output()
	if r.responseField != nil {
		schema = b.schemas.field(r.responseField, toolschema.Output)
	} else {
		schema = b.schemas.message(out, toolschema.Output)
	}
	switch {
	case r.rawResponse && r.method.Kind().Server:
		return object{"description": "The content of all messages, one after the other.", "content": anyBytes}
	case r.rawResponse:
		return object{"description": "The content.", "content": anyBytes}
	case !r.method.Kind().Server:
		return object{"description": "The reply.", "content": object{"application/json": object{"schema": schema}}}
	}
	return object{
		"description": "A stream of messages. As " + ndjson + ": one JSON object a line; if the stream breaks, a last line {\"error\": google.rpc.Status}. " +
			"As " + eventStream + ": one event a message, then an event \"end\", or \"error\" or \"resync_required\" with a google.rpc.Status.",
		"content": object{
			ndjson:      object{"schema": schema},
			eventStream: object{"schema": object{"type": "string", "description": "Events whose data is one JSON object in one line."}},
		},
	}
}
