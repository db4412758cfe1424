package mcpadapter

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/transcode"
)

// codeNoResource is the code of 2025-06-18 and 2025-11-25 for a resource that does not exist. Since 2026-07-28 that is a bad parameter.
const codeNoResource = -32002

// The keys of resources in _meta.
const (
	metaETag        = "io.toolway/etag"
	metaIfNoneMatch = "io.toolway/if-none-match"
	metaNotModified = "io.toolway/not-modified"
	metaUnlisted    = "io.toolway/unlisted"
)

// content is what is read of a resource.
type content struct {
	uri, mediaType string
	data           []byte
	// etag changes when the content does: the message's own etag (AIP-154), or a hash.
	etag string
	// binary says that data is no text.
	binary bool
	// ttl is for how many milliseconds it may be reused.
	ttl int64
	// age is how old it is.
	age call.Freshness
}

// mark says in the _meta of an answer how old the content is, as with a tool's result.
func (c *content) mark(meta mcp.Meta) {
	if c.age.Cached {
		meta[metaAge] = int64(c.age.Age / time.Second)
		if c.age.Stale {
			meta[metaStale] = true
		}
	}
}

// appendJSON appends the content as one of a read's contents.
func (c *content) appendJSON(dst []byte) []byte {
	dst = appendString(append(dst, `{"uri":`...), c.uri)
	if c.mediaType != "" {
		dst = appendString(append(dst, `,"mimeType":`...), c.mediaType)
	}
	if c.binary {
		dst = base64.StdEncoding.AppendEncode(append(dst, `,"blob":"`...), c.data)
		return append(dst, `"}`...)
	}
	return append(appendString(append(dst, `,"text":`...), c.data), '}')
}

// readResource answers resources/read.
func (a *Adapter) readResource(ctx context.Context, r mcp.Request, p *mcp.ReadResourceParams) (mcp.Result, error) {
	from := askerOf(r, p.Meta)
	ctx, stop := followRequest(ctx)
	defer stop()
	c, err := a.read(ctx, from, p.URI)
	if err != nil {
		return nil, err
	}
	res := &rawResult{ResultBase: mcp.ResultBase{Meta: mcp.Meta{metaETag: c.etag}}, body: []byte(`"contents":[`)}
	c.mark(res.Meta)
	if known, _ := p.Meta[metaIfNoneMatch].(string); known == c.etag {
		res.Meta[metaNotModified] = true
	} else {
		res.body = c.appendJSON(res.body)
	}
	res.body = append(res.body, ']')
	if from.modern {
		res.body = fmt.Appendf(res.body, `,"ttlMs":%d,"cacheScope":"private","resultType":"complete"`, c.ttl)
	}
	return res, nil
}

// read reads a resource by its URI. The error is a JSON-RPC error.
func (a *Adapter) read(ctx context.Context, from asker, uri string) (*content, error) {
	if id, ok := strings.CutPrefix(uri, ObjectURI); ok {
		return a.readObject(ctx, from, uri, id)
	}
	r, values := a.conf.Catalog.Snapshot().Resource(uri)
	if r == nil || !a.sees(ctx, r.Get) {
		return nil, noResource(from, uri, "")
	}
	return a.readFrom(ctx, from, r, values, uri)
}

func (a *Adapter) readFrom(ctx context.Context, from asker, r *catalog.Resource, values []string, uri string) (*content, error) {
	request, err := r.Request(values)
	if err != nil {
		return nil, noResource(from, uri, err.Error())
	}
	reply, age, err := a.fetch(ctx, from, r.Get, request, 0)
	if err != nil {
		return nil, readError(from, uri, err)
	}
	c := &content{uri: uri, mediaType: r.MIMEType, ttl: r.Get.Policy.CacheTTL.Milliseconds(), age: age}
	if age.Cached {
		c.ttl = age.Remaining.Milliseconds()
	}
	if b := blobOf(r.Get, reply); b != nil {
		c.mediaType, c.data = or(b.mediaType, c.mediaType), b.data
		c.binary = !textual(c.mediaType) || !utf8.Valid(c.data)
	} else if c.data, err = r.Get.Response().AppendJSON(nil, reply, a.conf.JSON); err != nil {
		return nil, rpcError(jsonrpc.CodeInternalError, "resource %q cannot be shown as JSON: %v", cut(uri, 200), err)
	} else {
		c.etag = ownETag(r.Get, reply)
	}
	if len(c.data) > a.conf.MaxResultBytes {
		return nil, rpcError(jsonrpc.CodeInternalError, "resource %q has %d bytes, and %d are allowed", cut(uri, 200), len(c.data), a.conf.MaxResultBytes)
	}
	c.sum()
	return c, nil
}

// getObject is the method of the mesh's own API that gives out objects.
const getObject = "/toolway.v1.ObjectService/GetObject"

// readObject reads a result that was too large for its answer, through the mesh's own API where there is one: then the chain knows who reads.
func (a *Adapter) readObject(ctx context.Context, from asker, uri, id string) (*content, error) {
	if m := a.conf.Catalog.Snapshot().Method(getObject); m != nil {
		request, err := m.Request().AppendParam(nil, "id", []string{id})
		if err != nil {
			return nil, noResource(from, uri, err.Error())
		}
		reply, _, err := a.fetch(ctx, from, m, request, 0)
		if err != nil {
			return nil, readError(from, uri, err)
		}
		c := &content{uri: uri}
		if b := blobOf(m, reply); b != nil {
			c.mediaType, c.data = b.mediaType, b.data
		}
		c.binary = !textual(c.mediaType) || !utf8.Valid(c.data)
		c.sum()
		return c, nil
	}
	if a.conf.Objects == nil {
		return nil, noResource(from, uri, "")
	}
	var owner object.Owner
	if p := call.PrincipalFrom(ctx); p != nil {
		owner = object.Owner{Tenant: p.Tenant, Principal: p.ID}
	}
	info, data, err := a.conf.Objects.Get(ctx, owner, id)
	if errors.Is(err, object.ErrNotFound) {
		return nil, noResource(from, uri, err.Error())
	}
	if err != nil {
		a.conf.Logger.ErrorContext(ctx, "object not read", "error", err)
		return nil, rpcError(jsonrpc.CodeInternalError, "resource %q cannot be read now", cut(uri, 200))
	}
	c := &content{uri: uri, mediaType: info.MediaType, data: data, etag: info.SHA256}
	c.binary = !textual(c.mediaType) || !utf8.Valid(data)
	return c, nil
}

// sum gives the content an etag if it has none.
func (c *content) sum() {
	if c.etag == "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s", c.mediaType, c.data))
		c.etag = base64.RawURLEncoding.EncodeToString(sum[:15])
	}
}

// ownETag returns the etag that a reply carries, or "".
func ownETag(m *catalog.Method, reply []byte) string {
	fd := m.Desc.Output().Fields().ByName("etag")
	if fd == nil {
		return ""
	}
	raw, err := m.Response().AppendFieldJSON(nil, "etag", reply, transcode.WriteOptions{})
	var etag string
	if err != nil || json.Unmarshal(raw, &etag) != nil {
		return ""
	}
	return etag
}

// textual says whether content of a media type is text.
func textual(mediaType string) bool {
	base, _, _ := strings.Cut(strings.ToLower(mediaType), ";")
	base = strings.TrimSpace(base)
	switch base {
	case "", "application/json", "application/xml", "application/yaml", "application/javascript", "image/svg+xml":
		return true
	}
	return strings.HasPrefix(base, "text/") || strings.HasSuffix(base, "+json") || strings.HasSuffix(base, "+xml") || strings.HasSuffix(base, "+yaml")
}

// noResource says that there is nothing by this URI.
func noResource(from asker, uri, why string) error {
	text := fmt.Sprintf("resource %q does not exist", cut(uri, 200))
	if why != "" {
		text += ": " + why
	}
	e := rpcError(codeNoResource, "%s", text)
	if from.modern {
		e.Code = jsonrpc.CodeInvalidParams
	}
	e.Data = encoded(map[string]any{"uri": cut(uri, 1000)})
	return e
}

// readError is the JSON-RPC error for a resource that could not be read: what the asker can mend is a bad parameter, all else internal. The
// data has what a tool error has.
func readError(from asker, uri string, err error) error {
	code, text := reason(err)
	var e *jsonrpc.Error
	switch code {
	case codes.NotFound:
		if !errors.As(noResource(from, uri, text), &e) {
			return err
		}
	case codes.InvalidArgument, codes.OutOfRange:
		e = rpcError(jsonrpc.CodeInvalidParams, "resource %q cannot be read: %s", cut(uri, 200), text)
	default:
		e = rpcError(jsonrpc.CodeInternalError, "resource %q cannot be read: %s: %s", cut(uri, 200), codeName(code), text)
	}
	var f *fetchError
	if errors.As(err, &f) {
		told := describe(f.status, f.call)
		told.plain()
		e.Data = encoded(map[string]any{"uri": cut(uri, 1000), "error": told})
	}
	return e
}
