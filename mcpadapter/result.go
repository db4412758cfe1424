package mcpadapter

import (
	"encoding/base64"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
)

// result is the result of a tools/call before it is encoded.
type result struct {
	// content are the encoded content blocks.
	content [][]byte
	// structured is a JSON object, or nil. If echo is set, a text block with the same comes before the other content.
	structured []byte
	echo       bool
	isError    bool
	meta       map[string]any
	// instead, if not nil, are all members of a result that asks for input, or names a task, instead.
	instead []byte
}

// append appends the members of the result, _meta aside.
func (r *result) append(dst []byte, modern bool) []byte {
	if r.instead != nil {
		return append(dst, r.instead...)
	}
	dst = append(dst, `"content":[`...)
	if r.echo {
		dst = append(dst, `{"type":"text","text":`...)
		dst = append(appendString(dst, r.structured), '}')
	}
	for i, block := range r.content {
		if i > 0 || r.echo {
			dst = append(dst, ',')
		}
		dst = append(dst, block...)
	}
	dst = append(dst, ']')
	if r.structured != nil {
		dst = append(dst, `,"structuredContent":`...)
		dst = append(dst, r.structured...)
	}
	if r.isError {
		dst = append(dst, `,"isError":true`...)
	}
	if modern {
		dst = append(dst, `,"resultType":"complete"`...)
	}
	return dst
}

// size is about how long the result is: rather more than less.
func (r *result) size() int {
	n := 1<<10 + len(r.instead) + len(r.structured)
	if r.echo {
		n += len(r.structured) + len(r.structured)/4 // with what escapes its quotation marks
	}
	for _, block := range r.content {
		n += len(block) + 1
	}
	return n
}

func (r *result) addText(text []byte) {
	block := append(make([]byte, 0, len(text)+len(text)/8+32), `{"type":"text","text":`...)
	r.content = append(r.content, append(appendString(block, text), '}'))
}

// unaryResult is the result of a call with one reply.
func (k *keeper) unaryResult() *result {
	r := &k.result
	r.structured = k.json
	if toolschema.Wrapped(k.method.Desc.Output()) {
		r.structured = fmt.Appendf(nil, `{%q:%s}`, toolschema.WrapperKey, k.json)
	}
	if k.blob != nil {
		r.content = append(r.content, k.blob.content())
		return r
	}
	r.echo = true
	if k.cut != nil {
		k.noteCutReply(r)
	}
	return r
}

// streamResult is the result of a server stream that ended well, or of which enough was kept.
func (k *keeper) streamResult() *result {
	items := append(append([]byte(`{"items":`), k.items()...), '}')
	r := &result{structured: items, echo: true}
	if k.full != "" {
		k.noteCut(r, k.count)
	}
	if k.cutItems > 0 {
		r.addText(fmt.Appendf(nil, "In %d of the items what is nested deeper than %d levels is left out.", k.cutItems, k.maxDepth))
		if r.meta == nil {
			r.meta = map[string]any{metaTruncated: map[string]any{}}
		}
		r.meta[metaTruncated].(map[string]any)["cutItems"] = k.cutItems
	}
	return r
}

// noteCut says in the result that the stream was ended after so many items.
func (k *keeper) noteCut(r *result, items int) {
	what := "stream was ended"
	if !k.method.Kind().Server {
		what = "reply was cut"
	}
	text := fmt.Appendf(nil, "The %s after the %d items above, since a result may have %s. At least one more item is left out; ask for a narrower range to see it.", what, items, k.full)
	meta := map[string]any{"items": items, "limit": k.full}
	if k.next != nil {
		text = fmt.Appendf(text, " Or call again with %s %q to go on behind the last item.", k.next.argument, k.next.value)
		meta["cursor"] = map[string]any{"argument": k.next.argument, "value": k.next.value}
	}
	r.addText(text)
	r.meta = map[string]any{metaTruncated: meta}
}

// The keys that this door uses in _meta.
const (
	metaTruncated      = "io.toolway/truncated"
	metaError          = "io.toolway/error"
	metaInvisible      = "io.toolway/invisible"
	metaCallID         = "io.toolway/call-id" // of results with isError: what logs and audit call the call
	metaAge            = "io.toolway/age"
	metaStale          = "io.toolway/stale"
	metaIdempotencyKey = "io.toolway/idempotency-key"
	metaConfirm        = "io.toolway/confirm"
	metaReplayed       = "io.toolway/replayed"
)

// blob is the content of a google.api.HttpBody.
type blob struct {
	mediaType string
	data      []byte
}

// blobOf returns the content of a reply that is a google.api.HttpBody, or nil.
func blobOf(m *catalog.Method, wire []byte) *blob {
	if m.Desc.Output().FullName() != "google.api.HttpBody" {
		return nil
	}
	body := &httpbody.HttpBody{}
	if err := proto.Unmarshal(wire, body); err != nil {
		return nil
	}
	return &blob{mediaType: body.GetContentType(), data: body.GetData()}
}

// content returns the blob as the content block that its media type asks for.
func (b *blob) content() []byte {
	base, _, _ := strings.Cut(strings.ToLower(b.mediaType), ";")
	base = strings.TrimSpace(base)
	kind := ""
	switch {
	case strings.HasPrefix(base, "image/"):
		kind = "image"
	case strings.HasPrefix(base, "audio/"):
		kind = "audio"
	case base == "", strings.HasPrefix(base, "text/"), base == "application/json", strings.HasSuffix(base, "+json"):
		return append(appendString([]byte(`{"type":"text","text":`), b.data), '}')
	}
	data := base64.StdEncoding.EncodeToString(b.data)
	if kind == "" {
		out := appendString([]byte(`{"type":"resource","resource":{"uri":"toolway:result","mimeType":`), b.mediaType)
		return fmt.Appendf(out, `,"blob":"%s"}}`, data)
	}
	out := fmt.Appendf(nil, `{"type":"%s","data":"%s","mimeType":`, kind, data)
	return append(appendString(out, b.mediaType), '}')
}
