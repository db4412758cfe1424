package mcpadapter

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/nearmiss"
)

// getPrompt answers prompts/get.
func (a *Adapter) getPrompt(ctx context.Context, r *mcp.GetPromptRequest) (mcp.Result, error) {
	from := askerOf(r, r.Params.Meta)
	ctx, stop := followRequest(ctx)
	defer stop()
	s := a.conf.Catalog.Snapshot()
	p, err := a.promptNamed(ctx, s, r.Params.Name)
	if err != nil {
		return nil, err
	}
	if err := checkNames(p, r.Params.Arguments); err != nil { // before a person is asked for more
		return nil, err
	}
	arguments, question, err := a.askArguments(ctx, r, p)
	if question != nil || err != nil {
		return question, err
	}
	if err := checkMissing(p, arguments); err != nil {
		return nil, err
	}
	messages := make([][]byte, len(p.Messages))
	size := 0
	for i, m := range p.Messages {
		block, err := a.promptContent(ctx, from, s, p, m, arguments)
		if err != nil {
			return nil, err
		}
		messages[i] = append(append(appendString([]byte(`{"role":`), m.Role), `,"content":`...), append(block, '}')...)
		if size += len(messages[i]); size > a.conf.MaxResultBytes {
			return nil, rpcError(jsonrpc.CodeInternalError, "prompt %q has more than the %d bytes that are allowed", p.Name, a.conf.MaxResultBytes)
		}
	}
	var body []byte
	if p.Description != "" {
		body = append(appendString([]byte(`"description":`), p.Description), ',')
	}
	body = append(append(append(body, `"messages":[`...), bytes.Join(messages, []byte(","))...), ']')
	if from.modern {
		body = append(body, `,"resultType":"complete"`...)
	}
	return &rawResult{body: body}, nil
}

// promptNamed returns the prompt, or a JSON-RPC error.
func (a *Adapter) promptNamed(ctx context.Context, s *catalog.Snapshot, name string) (*catalog.Prompt, error) {
	if p := s.Prompt(name); p != nil && slices.ContainsFunc(p.Service.Methods, func(m *catalog.Method) bool { return a.sees(ctx, m) }) {
		if p.Service.Backend.State == catalog.Down {
			return nil, rpcError(jsonrpc.CodeInternalError, "prompt %q is withdrawn, since its backend %q is down; try again later", p.Name, p.Service.Backend.Name)
		}
		return p, nil
	}
	names := func(yield func(string) bool) {
		for _, o := range a.seen(ctx, a.offersOf(s).prompts) {
			if !yield(o.key) {
				return
			}
		}
	}
	return nil, unknownName("prompt", name, names, "list the prompts again, they may have changed")
}

// unknownName says that there is no such thing, and what else may be meant.
func unknownName(kind, name string, names func(func(string) bool), or string) error {
	text := fmt.Sprintf("unknown %s %q", kind, cut(name, 100))
	if near := nearmiss.Find(name, names); near != "" {
		return rpcError(jsonrpc.CodeInvalidParams, "%s; did you mean %q?", text, near)
	}
	return rpcError(jsonrpc.CodeInvalidParams, "%s; %s", text, or)
}

// checkNames refuses arguments that the prompt does not have.
func checkNames(p *catalog.Prompt, given map[string]string) error {
	names := func(yield func(string) bool) {
		for _, arg := range p.Arguments {
			if !yield(arg.Name) {
				return
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.ContainsFunc(p.Arguments, func(arg catalog.PromptArgument) bool { return arg.Name == name }) {
			return unknownName("argument", name, names, fmt.Sprintf("prompt %q has %s", p.Name, listOf(slices.Collect(names))))
		}
	}
	return nil
}

// checkMissing refuses a call without the arguments that the prompt needs.
func checkMissing(p *catalog.Prompt, given map[string]string) error {
	var missing []string
	for _, arg := range missingOf(p, given) {
		missing = append(missing, arg.Name)
	}
	if missing != nil {
		return rpcError(jsonrpc.CodeInvalidParams, "prompt %q needs the argument %s", p.Name, listOf(missing))
	}
	return nil
}

func listOf(names []string) string {
	if len(names) == 0 {
		return "no arguments"
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(quoted, ", ")
}

// promptContent returns the content block of one message.
func (a *Adapter) promptContent(ctx context.Context, from asker, s *catalog.Snapshot, p *catalog.Prompt, m catalog.PromptMessage, arguments map[string]string) ([]byte, error) {
	if len(m.Resource) == 0 {
		return append(appendString([]byte(`{"type":"text","text":`), m.Text.With(arguments)), '}'), nil
	}
	c, err := a.promptResource(ctx, from, s, p.Service.Backend, m.Resource.With(arguments))
	if err != nil {
		var e *jsonrpc.Error
		if errors.As(err, &e) {
			return nil, &jsonrpc.Error{Code: e.Code, Message: fmt.Sprintf("prompt %q: %s", p.Name, e.Message), Data: e.Data}
		}
		return nil, err
	}
	kind, _, _ := strings.Cut(strings.ToLower(c.mediaType), "/")
	if c.binary && (kind == "image" || kind == "audio") {
		out := base64.StdEncoding.AppendEncode([]byte(`{"type":"`+kind+`","data":"`), c.data)
		return append(appendString(append(out, `","mimeType":`...), c.mediaType), '}'), nil
	}
	out := c.appendJSON([]byte(`{"type":"resource","resource":`))
	if c.age.Cached {
		meta := mcp.Meta{}
		c.mark(meta)
		out = append(append(out, `,"_meta":`...), encoded(meta)...)
	}
	return append(out, '}'), nil
}

// promptResource reads a resource by its URI, or by its name at the backend. One that does not exist is a bad argument.
func (a *Adapter) promptResource(ctx context.Context, from asker, s *catalog.Snapshot, b *catalog.Backend, name string) (*content, error) {
	from.modern = true // -32002 is for resources/read alone
	if strings.HasPrefix(name, ObjectURI) {
		return a.read(ctx, from, name)
	}
	r, values := s.Resource(name)
	uri := name
	if r == nil {
		if r, values = s.ResourceNamed(b, name); r != nil {
			uri = r.Expand(values)
		}
	}
	if r == nil || !a.sees(ctx, r.Get) {
		return nil, noResource(from, name, "give its URI, or its whole name with the collection's, as listing and completion have them")
	}
	return a.readFrom(ctx, from, r, values, uri)
}
