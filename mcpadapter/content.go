package mcpadapter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/catalog"
)

// shape is how the replies of a method become a result.
type shape int

const (
	// asMessage shows a reply as the JSON of its message.
	asMessage shape = iota
	// asContent shows the content blocks of a toolway.v1.ToolResult.
	asContent
	// asToolEvents takes a reply for a toolway.v1.ToolEvent.
	asToolEvents
)

// shapeOf tells it by the name of the response type: whatever version of the message a backend was built with, its wire form is one that
// ours can read.
func shapeOf(m *catalog.Method) shape {
	switch m.Desc.Output().FullName() {
	case "toolway.v1.ToolResult":
		return asContent
	case "toolway.v1.ToolEvent":
		return asToolEvents
	}
	return asMessage
}

// keepContent adds one reply to the content. It returns the error that ends the call.
func (k *keeper) keepContent(wire []byte) error {
	res := &toolwayv1.ToolResult{}
	if k.shape == asToolEvents {
		event := &toolwayv1.ToolEvent{}
		if err := proto.Unmarshal(wire, event); err != nil {
			return k.unreadable(err)
		}
		switch e := event.GetEvent().(type) {
		case *toolwayv1.ToolEvent_Progress:
			k.progress.report(e.Progress.GetDone(), e.Progress.GetTotal(), e.Progress.GetMessage())
			return nil
		case *toolwayv1.ToolEvent_Log:
			k.log.message(e.Log)
			return nil
		case *toolwayv1.ToolEvent_Result:
			res = e.Result
		default: // of a newer contract than ours
			return nil
		}
	} else if err := proto.Unmarshal(wire, res); err != nil {
		return k.unreadable(err)
	}
	for _, c := range res.GetContent() {
		if err := k.addBlock(wire, appendContent(nil, c)); err != nil {
			return err
		}
	}
	if res.GetStructured() != nil {
		structured, err := structJSON(res.GetStructured())
		if err != nil {
			return k.unreadable(err)
		}
		if err := k.room(wire, len(structured)); err != nil {
			return err
		}
		k.json = append(k.json[:0], structured...)
	}
	k.count++
	return nil
}

// addBlock keeps a content block of the reply wire, unless it is empty.
func (k *keeper) addBlock(wire, block []byte) error {
	if block == nil {
		return nil
	}
	if k.maxItems > 0 && len(k.blocks) == k.maxItems {
		if !k.method.Kind().Server {
			k.link = k.put(wire, nil, false)
		}
		k.full = strconv.Itoa(k.maxItems) + " blocks"
		return errFull
	}
	if err := k.room(wire, len(block)); err != nil {
		return err
	}
	k.blocks = append(k.blocks, block)
	return nil
}

// contentResult is the result of a method whose replies are content. One without any has an empty text, since many clients take a result
// without content for none.
func (k *keeper) contentResult() *result {
	r := &result{content: k.blocks}
	if len(k.json) > 0 {
		r.structured = k.json
	}
	switch {
	case len(r.content) > 0:
	case r.structured != nil:
		r.echo = true
	default:
		r.addText(nil)
	}
	if k.full != "" {
		k.noteCut(r, len(k.blocks))
	}
	if k.link != nil {
		r.content = append(r.content, linkBlock(k.method.Tool.Name, k.link))
	}
	return r
}

// appendContent appends the content block, or nothing if there is nothing that a client could show.
func appendContent(dst []byte, c *toolwayv1.Content) []byte {
	switch kind := c.GetKind().(type) {
	case *toolwayv1.Content_Text:
		dst = appendString(append(dst, `{"type":"text","text":`...), kind.Text)
	case *toolwayv1.Content_Image:
		dst = appendBlob(append(dst, `{"type":"image"`...), kind.Image)
	case *toolwayv1.Content_Audio:
		dst = appendBlob(append(dst, `{"type":"audio"`...), kind.Audio)
	case *toolwayv1.Content_ResourceLink:
		dst = appendLink(append(dst, `{"type":"resource_link"`...), kind.ResourceLink)
	case *toolwayv1.Content_Resource:
		dst = append(appendResource(append(dst, `{"type":"resource","resource":{`...), kind.Resource), '}')
	default:
		return dst
	}
	return append(appendAnnotations(dst, c.GetAnnotations()), '}')
}

func appendBlob(dst []byte, b *toolwayv1.Blob) []byte {
	dst = appendBase64(append(dst, `,"data":"`...), b.GetData())
	return appendString(append(dst, `","mimeType":`...), or(b.GetMediaType(), "application/octet-stream"))
}

func appendBase64(dst, data []byte) []byte { return base64.StdEncoding.AppendEncode(dst, data) }

// appendLink appends the members of a resource link. Its name is required in MCP, so that the URI stands in for one that is missing.
func appendLink(dst []byte, l *toolwayv1.ResourceLink) []byte {
	dst = appendString(append(dst, `,"uri":`...), l.GetUri())
	dst = appendString(append(dst, `,"name":`...), or(l.GetName(), l.GetUri()))
	for _, m := range [...]struct{ name, value string }{{"title", l.GetTitle()}, {"description", l.GetDescription()}, {"mimeType", l.GetMediaType()}} {
		if m.value != "" {
			dst = appendString(append(append(append(dst, `,"`...), m.name...), `":`...), m.value)
		}
	}
	if l.Size != nil {
		dst = strconv.AppendInt(append(dst, `,"size":`...), l.GetSize(), 10)
	}
	return dst
}

// appendResource appends the members of a resource with its content.
func appendResource(dst []byte, r *toolwayv1.EmbeddedResource) []byte {
	dst = appendString(append(dst, `"uri":`...), r.GetUri())
	if r.GetMediaType() != "" {
		dst = appendString(append(dst, `,"mimeType":`...), r.GetMediaType())
	}
	if blob, ok := r.GetContent().(*toolwayv1.EmbeddedResource_Blob); ok {
		return append(appendBase64(append(dst, `,"blob":"`...), blob.Blob), '"')
	}
	return appendString(append(dst, `,"text":`...), r.GetText())
}

func appendAnnotations(dst []byte, a *toolwayv1.Annotations) []byte {
	if a == nil {
		return dst
	}
	dst = append(dst, `,"annotations":{`...)
	begin := len(dst)
	comma := func() {
		if len(dst) > begin {
			dst = append(dst, ',')
		}
	}
	if len(a.GetAudience()) > 0 {
		dst = append(dst, `"audience":[`...)
		for i, role := range a.GetAudience() {
			if i > 0 {
				dst = append(dst, ',')
			}
			if role == toolwayv1.PromptMessage_ROLE_ASSISTANT {
				dst = append(dst, `"assistant"`...)
			} else {
				dst = append(dst, `"user"`...)
			}
		}
		dst = append(dst, ']')
	}
	if p := a.GetPriority(); a.Priority != nil && p >= 0 && p <= 1 {
		comma()
		dst = strconv.AppendFloat(append(dst, `"priority":`...), p, 'f', -1, 64)
	}
	if t := a.GetLastModified(); t.IsValid() {
		comma()
		dst = appendString(append(dst, `"lastModified":`...), t.AsTime().Format(time.RFC3339))
	}
	return append(dst, '}')
}

// structJSON returns a Struct as compact JSON.
func structJSON(s *structpb.Struct) ([]byte, error) {
	spaced, err := protojson.Marshal(s) // it varies its white space on purpose
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, spaced); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// room says whether so many bytes more of the reply wire can be kept, and counts them.
func (k *keeper) room(wire []byte, bytes int) error {
	if k.held += bytes; k.held <= k.maxBytes {
		return nil
	}
	k.held -= bytes
	if k.method.Kind().Server && k.count > 0 {
		k.full = strconv.Itoa(k.maxBytes) + " bytes"
		return errFull
	}
	k.link = k.put(wire, nil, false)
	text := fmt.Sprintf("the reply has %d bytes of content or more, and %d are allowed", k.held+bytes, k.maxBytes)
	if k.link == nil {
		text += "; ask for less"
	}
	k.failure = status.New(codes.ResourceExhausted, text)
	return k.failure.Err()
}

func (k *keeper) unreadable(err error) error {
	k.failure = notShown("content", err)
	return k.failure.Err()
}
