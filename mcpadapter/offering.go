package mcpadapter

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// receiveOffer answers the methods of resources, prompts and completion, and says whether it was one.
func (a *Adapter) receiveOffer(ctx context.Context, next mcp.MethodHandler, req mcp.Request) (res mcp.Result, err error, mine bool) {
	cursor, meta := "", mcp.Meta(nil)
	switch p := req.GetParams().(type) {
	case *mcp.ListResourcesParams:
		if p != nil {
			cursor, meta = p.Cursor, p.Meta
		}
		res, err = a.listResources(ctx, askerOf(req, meta), cursor)
	case *mcp.ListResourceTemplatesParams:
		if p != nil {
			cursor, meta = p.Cursor, p.Meta
		}
		res, err = a.listOffers(ctx, a.currentOffers().templates, templatesCursor, "resourceTemplates", cursor, isModern(meta))
	case *mcp.ListPromptsParams:
		if p != nil {
			cursor, meta = p.Cursor, p.Meta
		}
		res, err = a.listOffers(ctx, a.currentOffers().prompts, promptsCursor, "prompts", cursor, isModern(meta))
	case *mcp.ReadResourceParams:
		res, err = a.readResource(ctx, req, p)
	case *mcp.GetPromptParams:
		r, ok := req.(*mcp.GetPromptRequest)
		if !ok {
			return nil, nil, false
		}
		res, err = a.getPrompt(ctx, r)
	case *mcp.CompleteParams:
		res, err = a.complete(ctx, req, p)
	case *mcp.SubscribeParams:
		r, ok := req.(*mcp.SubscribeRequest)
		if !ok {
			return nil, nil, false
		}
		res, err = a.subscriptions.subscribe(ctx, next, r)
	case *mcp.UnsubscribeParams:
		r, ok := req.(*mcp.UnsubscribeRequest)
		if !ok {
			return nil, nil, false
		}
		res, err = a.subscriptions.unsubscribe(ctx, next, r)
	default:
		return nil, nil, false
	}
	return res, err, true
}
