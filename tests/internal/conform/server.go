// Package conform is a gRPC backend with what the official MCP conformance suite asks a server for. It knows the contracts of the mesh, and
// nothing of MCP.
package conform

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	conformancev1 "github.com/toolway/toolway/tests/gen/conformance/v1"
)

// slow is how long Reconnection takes: longer than the mesh that it is called through keeps a stream open.
const slow = 2 * time.Second

// Server serves conformance.v1.Conformance.
type Server struct {
	conformancev1.UnimplementedConformanceServer
	guest *Guest
}

// New returns a server whose triggers redeploy guest.
func New(guest *Guest) *Server { return &Server{guest: guest} }

// png is one red pixel, wav a few samples of silence.
var (
	png = decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==")
	wav = decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA==")
)

func decode(s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

type (
	request = conformancev1.Request
	result  = toolwayv1.ToolResult
	content = toolwayv1.Content
	events  = grpc.ServerStreamingServer[toolwayv1.ToolEvent]
)

func textBlock(format string, args ...any) *content {
	return &content{Kind: &toolwayv1.Content_Text{Text: fmt.Sprintf(format, args...)}}
}

func text(format string, args ...any) *result {
	return &result{Content: []*content{textBlock(format, args...)}}
}

func resource(uri, mediaType, body string) *content {
	return &content{Kind: &toolwayv1.Content_Resource{Resource: &toolwayv1.EmbeddedResource{
		Uri: uri, MediaType: mediaType, Content: &toolwayv1.EmbeddedResource_Text{Text: body},
	}}}
}

// SimpleText answers with a text.
func (*Server) SimpleText(context.Context, *request) (*result, error) {
	return text("This is a simple text response for testing."), nil
}

// ImageContent answers with an image.
func (*Server) ImageContent(context.Context, *request) (*httpbody.HttpBody, error) {
	return &httpbody.HttpBody{ContentType: "image/png", Data: png}, nil
}

// AudioContent answers with a sound.
func (*Server) AudioContent(context.Context, *request) (*httpbody.HttpBody, error) {
	return &httpbody.HttpBody{ContentType: "audio/wav", Data: wav}, nil
}

// EmbeddedResource answers with a resource.
func (*Server) EmbeddedResource(context.Context, *request) (*result, error) {
	return &result{Content: []*content{resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")}}, nil
}

// MultipleContentTypes answers with a text, an image and a resource.
func (*Server) MultipleContentTypes(context.Context, *request) (*result, error) {
	return &result{Content: []*content{
		textBlock("Multiple content types test:"),
		{Kind: &toolwayv1.Content_Image{Image: &toolwayv1.Blob{Data: png, MediaType: "image/png"}}},
		resource("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`),
	}}, nil
}

// ErrorHandling fails.
func (*Server) ErrorHandling(context.Context, *request) (*result, error) {
	return nil, status.Error(codes.FailedPrecondition, "this tool intentionally returns an error for testing")
}

func progress(done, total float64) *toolwayv1.ToolEvent {
	return &toolwayv1.ToolEvent{Event: &toolwayv1.ToolEvent_Progress{Progress: &toolwayv1.Progress{Done: done, Total: total}}}
}

func log(message string) *toolwayv1.ToolEvent {
	return &toolwayv1.ToolEvent{Event: &toolwayv1.ToolEvent_Log{Log: &toolwayv1.LogMessage{Message: message}}}
}

func end(r *result) *toolwayv1.ToolEvent {
	return &toolwayv1.ToolEvent{Event: &toolwayv1.ToolEvent_Result{Result: r}}
}

func send(stream events, all ...*toolwayv1.ToolEvent) error {
	for _, e := range all {
		if err := stream.Send(e); err != nil {
			return err
		}
	}
	return nil
}

// ToolWithProgress says how far it is.
func (*Server) ToolWithProgress(_ *request, stream events) error {
	return send(stream, progress(0, 100), progress(50, 100), progress(100, 100), end(text("done")))
}

// ToolWithLogging logs.
func (*Server) ToolWithLogging(_ *request, stream events) error {
	return send(stream, log("Tool execution started"), log("Tool processing data"), log("Tool execution completed"), end(text("done")))
}

// LoggingTool logs too.
func (s *Server) LoggingTool(r *request, stream events) error { return s.ToolWithLogging(r, stream) }

// Reconnection takes a while.
func (*Server) Reconnection(_ *request, stream events) error {
	select {
	case <-time.After(slow):
		return send(stream, end(text("Reconnection test completed successfully.")))
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	}
}

// StreamingElicitation says how far it is, then asks.
func (*Server) StreamingElicitation(_ *request, stream events) error {
	if err := send(stream, progress(1, 2)); err != nil {
		return err
	}
	if answer(stream.Context(), "confirm") == nil {
		return ask("", "confirm", form("Go on?", `{"ok":{"type":"boolean"}}`, "ok"))
	}
	return send(stream, progress(2, 2), end(text("done")))
}

// TriggerToolChange redeploys the guest.
func (s *Server) TriggerToolChange(context.Context, *request) (*result, error) {
	s.guest.Redeploy()
	return text("changed"), nil
}

// TriggerPromptChange redeploys the guest, which has a prompt too.
func (s *Server) TriggerPromptChange(ctx context.Context, r *request) (*result, error) {
	return s.TriggerToolChange(ctx, r)
}

func body(mediaType, data string) (*httpbody.HttpBody, error) {
	return &httpbody.HttpBody{ContentType: mediaType, Data: []byte(data)}, nil
}

// StaticText is a text that never changes.
func (*Server) StaticText(context.Context, *request) (*httpbody.HttpBody, error) {
	return body("text/plain", "This is the content of the static text resource.")
}

// ExampleResource is a text to put into prompts.
func (*Server) ExampleResource(context.Context, *request) (*httpbody.HttpBody, error) {
	return body("text/plain", "Embedded resource content for testing.")
}

// StaticBinary is an image that never changes.
func (*Server) StaticBinary(context.Context, *request) (*httpbody.HttpBody, error) {
	return body("image/png", string(png))
}

// TemplateData is what is known of an id.
func (*Server) TemplateData(_ context.Context, r *conformancev1.TemplateDataRequest) (*httpbody.HttpBody, error) {
	return body("application/json", fmt.Sprintf(`{"id":%q,"templateTest":true,"data":"Data for ID: %[1]s"}`, r.GetId()))
}

// WatchedResource is a text that changes.
func (*Server) WatchedResource(context.Context, *request) (*httpbody.HttpBody, error) {
	return body("text/plain", "This is a watched resource.")
}

// WatchWatchedResource never says that it has changed.
func (*Server) WatchWatchedResource(_ *request, stream grpc.ServerStreamingServer[conformancev1.Change]) error {
	<-stream.Context().Done()
	return status.FromContextError(stream.Context().Err()).Err()
}

// answers are what the caller brings to questions, or nil.
func answers(ctx context.Context) *toolwayv1.InputResponses {
	raw := metadata.ValueFromIncomingContext(ctx, "input-responses-bin")
	out := &toolwayv1.InputResponses{}
	if len(raw) != 1 || proto.Unmarshal([]byte(raw[0]), out) != nil {
		return nil
	}
	return out
}

// answer is what the caller brings to one question, or nil.
func answer(ctx context.Context, name string) *toolwayv1.InputResponse {
	return answers(ctx).GetResponses()[name]
}
