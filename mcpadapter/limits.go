package mcpadapter

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/buffer"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// limit sets the bounds of a call's result: the contract's, where it has any, else the operator's. No contract raises the operator's bound
// on bytes.
func (k *keeper) limit(conf *Config) {
	p := &k.method.Policy
	k.maxBytes, k.maxItems, k.maxDepth = conf.MaxResultBytes, or(p.MaxResultItems, conf.MaxResultItems), or(p.MaxResultDepth, conf.MaxResultDepth)
	if k.method.Kind().Server {
		k.maxBytes, k.maxItems = conf.MaxStreamBytes, or(p.MaxResultItems, conf.MaxStreamItems)
		k.options.MaxDepth, k.options.Cut = k.maxDepth, &k.lastCut
	}
	if p.MaxResultBytes > 0 {
		k.maxBytes = min(k.maxBytes, p.MaxResultBytes)
	}
}

// keepReply keeps the one reply of a unary call: whole if it is within the limits, else cut, with a link to the whole.
func (k *keeper) keepReply(wire []byte) error {
	o, cut := k.options, &k.lastCut
	if k.maxItems > 0 || k.maxDepth > 0 {
		o.MaxBytes, o.MaxItems, o.MaxDepth, o.Cut = k.maxBytes, k.maxItems, k.maxDepth, cut
	}
	k.json = k.json[:0]
	buffer.Room(&k.json, min(buffer.ForJSON(len(wire)), k.maxBytes+1))
	out, err := k.method.Response().AppendJSON(k.json, wire, o)
	if err != nil {
		return k.unwritable(wire, err)
	}
	k.count++
	if len(out) <= k.maxBytes && len(cut.Places) == 0 {
		k.json, k.blob = out, blobOf(k.method, wire)
		return nil
	}
	return k.keepCut(wire, out, cut)
}

// keepCut keeps what of a reply is within the limits, and puts the whole into the store. out is the reply, cut if cut says so.
func (k *keeper) keepCut(wire, out []byte, cut *transcode.Cut) (err error) {
	size := 0 // of the whole; 0 if it is not known
	if len(cut.Places) == 0 {
		size = len(out)
	}
	k.link = k.put(wire, out, size > 0)
	b := blobOf(k.method, wire)
	if b != nil && k.link == nil { // a cut blob is of no use
		return k.tooLarge(size)
	}
	if size > 0 {
		o := k.options
		o.MaxBytes, o.MaxItems, o.MaxDepth, o.Cut = k.maxBytes, k.maxItems, k.maxDepth, cut
		if out, err = k.method.Response().AppendJSON(nil, wire, o); err != nil {
			return k.tooLarge(size)
		}
	}
	nothing := string(out) == "{}" && k.link == nil
	if nothing || len(out) > k.maxBytes || toolschema.Wrapped(k.method.Desc.Output()) || demands(k.method.Desc.Output()) {
		return k.tooLarge(size)
	}
	k.json, k.cut = out, cut
	if b == nil {
		k.next = nextPage(k, wire)
	}
	return nil
}

// tooLarge is why a reply can be shown neither whole nor cut.
func (k *keeper) tooLarge(size int) error {
	text := fmt.Sprintf("the reply has more bytes of JSON than the %d that are allowed", k.maxBytes)
	if size > 0 {
		text = fmt.Sprintf("the reply has %d bytes of JSON, and %d are allowed", size, k.maxBytes)
	}
	if k.link == nil {
		text += "; ask for less, such as a smaller page or fewer fields"
	}
	k.failure = status.New(codes.ResourceExhausted, text)
	return k.failure.Err()
}

// put puts the whole reply into the store, as JSON, or the content of a google.api.HttpBody as it is. It returns nil if it cannot be kept:
// then the result says only what was left out.
func (k *keeper) put(wire, out []byte, whole bool) *object.Info {
	if k.objects == nil || len(wire) > maxObjectWire {
		return nil
	}
	mediaType := "application/json"
	var data []byte
	switch b := blobOf(k.method, wire); {
	case b != nil:
		mediaType, data = or(b.mediaType, "application/octet-stream"), b.data
	case whole:
		data = bytes.Clone(out) // out is a buffer that is used again
	default:
		o := k.options
		o.MaxDepth, o.Cut = 0, nil // those of a stream's items
		var err error
		if data, err = k.method.Response().AppendJSON(nil, wire, o); err != nil {
			return nil
		}
	}
	return k.store(mediaType, data)
}

// store puts data into the store, or returns nil.
func (k *keeper) store(mediaType string, data []byte) *object.Info {
	info, err := k.objects.Put(k.ctx, ownerOf(k.call), mediaType, data)
	if err != nil {
		return nil
	}
	k.call.ResultURI = ObjectURI + info.ID
	return &info
}

// unwritable is why a reply has no JSON. The link leads to what the backend sent, in the wire format.
func (k *keeper) unwritable(wire []byte, err error) error {
	if k.objects != nil && len(wire) <= maxObjectWire {
		k.link = k.store("application/x-protobuf", bytes.Clone(wire))
	}
	k.failure = notShown("JSON", err)
	return k.failure.Err()
}

// notShown is the status of a reply that has no form as what.
func notShown(what string, err error) *status.Status {
	return status.Convert(call.Error(codes.Internal, "REPLY_NOT_SHOWN", fmt.Sprintf("the backend's reply cannot be shown as %s: %v", what, err)))
}

// maxObjectWire is the size of a reply beyond which it is not written as JSON only to be kept.
const maxObjectWire = 64 << 20

func ownerOf(c *call.Call) object.Owner {
	if c.Principal == nil {
		return object.Owner{}
	}
	return object.Owner{Tenant: c.Principal.Tenant, Principal: c.Principal.ID}
}

// demands says whether a message can reach a field that proto2 requires: JSON from which something was cut might lack it, and so break
// the output schema.
func demands(md protoreflect.MessageDescriptor) bool {
	seen := map[protoreflect.FullName]bool{}
	var look func(protoreflect.MessageDescriptor) bool
	look = func(md protoreflect.MessageDescriptor) bool {
		if seen[md.FullName()] {
			return false
		}
		seen[md.FullName()] = true
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			if fd.Cardinality() == protoreflect.Required || fd.Message() != nil && look(fd.Message()) {
				return true
			}
		}
		return false
	}
	return look(md)
}

// cursor is what a further call is given to get what comes next.
type cursor struct{ argument, value string }

// nextPage returns the cursor of a reply in pages (AIP-158), or nil.
func nextPage(k *keeper, wire []byte) *cursor {
	argument, field := k.method.Desc.Input().Fields().ByName("page_token"), k.method.Desc.Output().Fields().ByName("next_page_token")
	if argument == nil || field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
		return nil
	}
	return k.cursorAt(argument.JSONName(), "next_page_token", wire)
}

func (k *keeper) cursorAt(argument, path string, wire []byte) *cursor {
	out, err := k.method.Response().AppendFieldJSON(nil, path, wire, transcode.WriteOptions{})
	value := strings.Trim(string(out), `"`)
	if err != nil || value == "" || value == "null" || strings.ContainsAny(value, `\{[`) {
		return nil
	}
	return &cursor{argument: argument, value: value}
}

// resumeAt remembers from where a stream can be resumed, if its contract says how.
func (k *keeper) resumeAt(wire []byte) {
	if p := &k.method.Policy; p.CursorField != "" && p.EventIDField != "" {
		k.next = k.cursorAt(jsonPath(k.method.Desc.Input(), p.CursorField), p.EventIDField, wire)
	}
}

// noteCutReply says in the result what was left out of a reply, and where the whole is.
func (k *keeper) noteCutReply(r *result) {
	var text strings.Builder
	text.WriteString("The result above was cut:")
	places := make([]map[string]any, len(k.cut.Places))
	for i, p := range k.cut.Places {
		places[i] = map[string]any{"path": p.Path, "left": p.Left, "limit": p.Limit}
		if p.Bytes > 0 {
			places[i]["bytes"] = p.Bytes
			fmt.Fprintf(&text, "\n- %s: left out, %d bytes of JSON (limit on %s)", p.Path, p.Bytes, p.Limit)
			continue
		}
		fmt.Fprintf(&text, "\n- %s: %d more left out (limit on %s)", or(p.Path, "the whole"), p.Left, p.Limit)
	}
	meta := map[string]any{"places": places}
	if k.cut.More > 0 {
		meta["more"] = k.cut.More
		fmt.Fprintf(&text, "\n- and %d more places", k.cut.More)
	}
	if k.next != nil {
		meta["cursor"] = map[string]any{"argument": k.next.argument, "value": k.next.value}
		fmt.Fprintf(&text, "\nWhat comes after this page: call again with %s %q. What was left out of this page: ask for a smaller page.", k.next.argument, k.next.value)
	}
	if k.link != nil {
		meta["object"] = objectMeta(k.link)
		fmt.Fprintf(&text, "\nThe whole result is the resource %s%s (%d bytes, until %s).", ObjectURI, k.link.ID, k.link.Size, k.link.Expires.UTC().Format(time.RFC3339))
	} else if k.next == nil {
		text.WriteString("\nAsk for less, such as a smaller page or fewer fields, to see all of it.")
	}
	r.addText([]byte(text.String()))
	if k.link != nil {
		r.content = append(r.content, linkBlock(k.method.Tool.Name, k.link))
	}
	r.meta = map[string]any{metaTruncated: meta}
}

// objectMeta describes an object in _meta.
func objectMeta(o *object.Info) map[string]any {
	return map[string]any{
		"uri": ObjectURI + o.ID, "size": o.Size, "sha256": o.SHA256, "mimeType": o.MediaType, "expires": o.Expires.UTC().Format(time.RFC3339),
	}
}

// linkBlock is the content block that leads to an object.
func linkBlock(tool string, o *object.Info) []byte {
	out := appendString([]byte(`{"type":"resource_link","uri":`), ObjectURI+o.ID)
	out = appendString(append(out, `,"name":`...), "result of "+tool)
	out = appendString(append(out, `,"mimeType":`...), o.MediaType)
	return fmt.Appendf(out, `,"size":%d,"_meta":{"io.toolway/sha256":"%s","io.toolway/expires":"%s"}}`, o.Size, o.SHA256, o.Expires.UTC().Format(time.RFC3339))
}

// storing is where a keeper puts what is too large.
type storing struct {
	ctx     context.Context
	call    *call.Call
	objects Objects
}
