package mcpadapter_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/mcpadapter"
)

// shown is what Show answers: content of every kind, and one that no version of the contract has yet.
var shown = &toolwayv1.ToolResult{
	Content: []*toolwayv1.Content{
		{Kind: &toolwayv1.Content_Text{Text: "two \"lines\"\n<b>"}, Annotations: &toolwayv1.Annotations{
			Audience: []toolwayv1.PromptMessage_Role{toolwayv1.PromptMessage_ROLE_USER, toolwayv1.PromptMessage_ROLE_ASSISTANT}, Priority: proto.Float64(0.5),
			LastModified: timestamppb.New(time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)),
		}},
		{Kind: &toolwayv1.Content_Image{Image: &toolwayv1.Blob{Data: []byte{1, 2, 3}, MediaType: "image/png"}}},
		{Kind: &toolwayv1.Content_Audio{Audio: &toolwayv1.Blob{Data: []byte{4}, MediaType: "audio/wav"}}},
		{},
		{Kind: &toolwayv1.Content_ResourceLink{ResourceLink: &toolwayv1.ResourceLink{Uri: "shop://orders/1", Title: "Order 1", MediaType: "text/plain", Size: proto.Int64(9)}}},
		{Kind: &toolwayv1.Content_Resource{Resource: &toolwayv1.EmbeddedResource{Uri: "shop://orders/1", MediaType: "text/plain", Content: &toolwayv1.EmbeddedResource_Text{Text: "an order"}}}},
		{Kind: &toolwayv1.Content_Resource{Resource: &toolwayv1.EmbeddedResource{Uri: "shop://orders/2", Content: &toolwayv1.EmbeddedResource_Blob{Blob: []byte{0xff}}}}},
	},
	Structured: &structpb.Struct{Fields: map[string]*structpb.Value{"orders": structpb.NewNumberValue(2)}},
}

const shownContent = `[{"type":"text","text":"two \"lines\"\n<b>","annotations":{"audience":["user","assistant"],"priority":0.5,"lastModified":"2026-11-30T01:02:03Z"}},` +
	`{"type":"image","data":"AQID","mimeType":"image/png"},{"type":"audio","data":"BA==","mimeType":"audio/wav"},` +
	`{"type":"resource_link","uri":"shop://orders/1","name":"shop://orders/1","title":"Order 1","mimeType":"text/plain","size":9},` +
	`{"type":"resource","resource":{"uri":"shop://orders/1","mimeType":"text/plain","text":"an order"}},{"type":"resource","resource":{"uri":"shop://orders/2","blob":"/w=="}}]`

// followed is what Follow answers. Progress that does not rise is left out.
var followed = []*toolwayv1.ToolEvent{
	{Event: &toolwayv1.ToolEvent_Progress{Progress: &toolwayv1.Progress{Total: 10, Message: "begun"}}},
	{Event: &toolwayv1.ToolEvent_Log{Log: &toolwayv1.LogMessage{Message: "working"}}},
	{Event: &toolwayv1.ToolEvent_Log{Log: &toolwayv1.LogMessage{Level: toolwayv1.LogLevel_LOG_LEVEL_DEBUG, Message: "details"}}},
	{Event: &toolwayv1.ToolEvent_Result{Result: &toolwayv1.ToolResult{Content: []*toolwayv1.Content{{Kind: &toolwayv1.Content_Text{Text: "one"}}}}}},
	{Event: &toolwayv1.ToolEvent_Progress{Progress: &toolwayv1.Progress{Done: 5.5, Total: 10}}},
	{Event: &toolwayv1.ToolEvent_Progress{Progress: &toolwayv1.Progress{Done: 5, Total: 10}}},
	{},
	{Event: &toolwayv1.ToolEvent_Log{Log: &toolwayv1.LogMessage{
		Level: toolwayv1.LogLevel_LOG_LEVEL_WARNING, Logger: "orders", Message: "slow",
		Fields: &structpb.Struct{Fields: map[string]*structpb.Value{"seconds": structpb.NewNumberValue(3)}},
	}}},
	{Event: &toolwayv1.ToolEvent_Progress{Progress: &toolwayv1.Progress{Done: 10, Total: 10}}},
	{Event: &toolwayv1.ToolEvent_Result{Result: &toolwayv1.ToolResult{Content: []*toolwayv1.Content{{Kind: &toolwayv1.Content_Text{Text: "two"}}}}}},
}

// TestContent shows a ToolResult through every door: its blocks, its structured form, and no output schema, which content has not.
func TestContent(t *testing.T) {
	forDoors(t, nil, nil, func(t *testing.T, _ *world, c *mcp.ClientSession, _ door) {
		tools, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools.Tools {
			if has, want := tool.OutputSchema != nil, tool.Name != "orders_show" && tool.Name != "orders_follow"; has != want {
				t.Errorf("tool %s has an output schema: %t, want %t", tool.Name, has, want)
			}
		}
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "orders_show"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(res.Content)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(anyOf(t, shownContent), anyOf(t, string(got))); diff != "" {
			t.Errorf("content (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]any{"orders": 2.0}, res.StructuredContent); diff != "" {
			t.Errorf("structured content (-want +got):\n%s", diff)
		}
	})
}

func anyOf(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// TestEvents follows a stream of ToolEvent: progress as the backend counts it, log messages from the level that the client has asked for, where
// somebody remembers it, and the joined result.
func TestEvents(t *testing.T) {
	var mu sync.Mutex
	var notes []string
	note := func(v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		notes = append(notes, string(raw))
	}
	options := func() *mcp.ClientOptions {
		return &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				note([]any{r.Params.Progress, r.Params.Total, r.Params.Message})
			},
			LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
				note([]any{r.Params.Level, r.Params.Logger, r.Params.Data})
			},
		}
	}
	progress := []string{`[0,10,"begun"]`, `[5.5,10,""]`, `[10,10,""]`}
	log := []string{`["info","","working"]`, `["warning","orders",{"message":"slow","seconds":3}]`}
	forDoors(t, nil, options, func(t *testing.T, _ *world, c *mcp.ClientSession, d door) {
		params := &mcp.CallToolParams{Name: "orders_follow", Arguments: map[string]any{}}
		params.SetProgressToken("p")
		want := slices.Clone(progress)
		switch remembers := d.stdio || d.session; {
		case d.version == "2026-07-28":
			params.Meta[mcp.MetaKeyLogLevel] = "info"
			want = append(want, log...)
		case remembers:
			if err := c.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
				t.Fatal(err)
			}
			want = append(want, log...)
		default:
			if err := c.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err == nil {
				t.Error("logging/setLevel was answered without an error, and nobody remembers it")
			}
		}
		mu.Lock()
		notes = nil
		mu.Unlock()
		res, err := c.CallTool(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, block := range res.Content {
			texts = append(texts, block.(*mcp.TextContent).Text)
		}
		if got := strings.Join(texts, " "); got != "one two" {
			t.Errorf("content is %q, want %q", got, "one two")
		}
		slices.Sort(want)
		var got []string
		// The SDK hands notifications to its handlers by itself, maybe after the answer.
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			mu.Lock()
			got = slices.Sorted(slices.Values(notes))
			mu.Unlock()
			if len(got) >= len(want) {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("notifications (-want +got):\n%s", diff)
		}
	})
}

// TestContentLimits cuts streams of content, and refuses a reply that is too large.
func TestContentLimits(t *testing.T) {
	d := door{version: "2025-11-25", stdio: true}
	for _, tt := range []struct {
		what, tool string
		limit      func(*mcpadapter.Config)
		isError    bool
		want       string
	}{
		{"blocks of a stream", "orders_follow", func(c *mcpadapter.Config) { c.MaxStreamItems = 1 }, false, "since a result may have 1 blocks"},
		{"bytes of a stream", "orders_follow", func(c *mcpadapter.Config) { c.MaxStreamBytes = 30 }, false, "since a result may have 30 bytes"},
		{"bytes of a reply", "orders_show", func(c *mcpadapter.Config) { c.MaxResultBytes = 100 }, true, "RESOURCE_EXHAUSTED"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			c := newWorld(t, tt.limit).connect(d, nil)
			res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tt.tool})
			if err != nil {
				t.Fatal(err)
			}
			last, ok := res.Content[len(res.Content)-1].(*mcp.TextContent)
			if !ok || res.IsError != tt.isError || !strings.Contains(last.Text, tt.want) {
				t.Errorf("isError %t and %v, want %t and %q", res.IsError, res.Content[len(res.Content)-1], tt.isError, tt.want)
			}
		})
	}
}
