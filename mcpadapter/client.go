package mcpadapter

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolway/toolway/internal/call"
)

// abilities are what a client says that it can be asked.
type abilities uint8

const (
	canForm abilities = 1 << iota
	canURL
	canSample
	canRoots
	// canTask says that its calls may be answered with tasks.
	canTask
)

// unaskable returns the kinds of questions that such a client cannot be asked.
func (can abilities) unaskable() call.Questions {
	not := call.OtherQuestion
	for able, kind := range map[abilities]call.Questions{canForm: call.FormQuestion, canURL: call.PageQuestion, canSample: call.ModelQuestion, canRoots: call.FoldersQuestion} {
		if can&able == 0 {
			not |= kind
		}
	}
	return not
}

// client is what the door knows about the client of one call.
type client struct {
	// modern says that it speaks 2026-07-28: then it is asked by the answer to its call, and makes the call again.
	modern bool
	can    abilities
	// session, if not nil, is how an older client is asked while its call waits.
	session *mcp.ServerSession
	// responses and state are what a modern client brings with a call that it makes again. Nil responses mean that it does not.
	responses map[string]json.RawMessage
	state     string
}

// clientOf returns what is known of the client of a call that the SDK serves.
func (a *Adapter) clientOf(ctx context.Context, r *mcp.CallToolRequest) client {
	if isModern(r.Params.Meta) {
		return modernClient(r.Params.Meta, r.Params.InputResponses, r.Params.RequestState)
	}
	if _, stateless := ctx.Value(requestKey{}).(context.Context); stateless || !a.streams(ctx, r.Extra) {
		return client{}
	}
	return sessionClient(r.Session)
}

// modernClient returns what is known of a client of 2026-07-28 from its request.
func modernClient(meta mcp.Meta, responses mcp.InputResponseMap, state string) client {
	c := client{modern: true, can: abilitiesOf(meta[mcp.MetaKeyClientCapabilities]), state: state}
	if responses != nil {
		c.responses = map[string]json.RawMessage{}
	}
	for name, response := range responses {
		if raw, err := json.Marshal(response); err == nil { // it came from JSON
			c.responses[name] = raw
		}
	}
	return c
}

// sessionClient returns what is known of a client that has a session.
func sessionClient(s *mcp.ServerSession) client {
	if s == nil || s.InitializeParams() == nil {
		return client{}
	}
	return client{can: abilitiesOf(s.InitializeParams().Capabilities), session: s}
}

// abilitiesOf reads client capabilities.
func abilitiesOf(capabilities any) abilities {
	raw, err := json.Marshal(capabilities)
	if err != nil {
		return 0
	}
	s := scanner{data: raw}
	can, ok := s.capabilities()
	if !ok {
		return 0
	}
	return can
}

// capabilities reads client capabilities, as far as the SDK knows them, in the form that it asks for.
func (s *scanner) capabilities() (can abilities, ok bool) {
	ok = s.object(func(name []byte) bool {
		switch string(name) {
		case "roots":
			can |= canRoots
			return s.object(func([]byte) bool {
				v, ok := s.value()
				return ok && (string(v) == "true" || string(v) == "false")
			})
		case "sampling":
			can |= canSample
			return s.object(func([]byte) bool { return s.anyObject() })
		case "elicitation":
			form, url := false, false
			ok := s.object(func(name []byte) bool {
				form = form || string(name) == "form"
				url = url || string(name) == "url"
				return s.anyObject()
			})
			if form || !url { // before there were modes there were forms
				can |= canForm
			}
			if url {
				can |= canURL
			}
			return ok
		case "extensions":
			return s.object(func(name []byte) bool {
				if string(name) == tasksExtension {
					can |= canTask
				}
				_, ok := s.value()
				return ok
			})
		}
		return s.anyObject()
	})
	return can, ok
}
