package mcpadapter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/catalog"
)

// The bounds of one completion.
const (
	// maxCompletions is how many values the protocol allows.
	maxCompletions = 100
	// completePages is how many pages of a collection are looked through, of completePage resources each.
	completePages, completePage = 5, 200
	// completeTime is how long it may take: somebody is typing.
	completeTime = 3 * time.Second
)

// completed are the values that fit what was typed.
type completed struct {
	typed  string
	values []string
	// more says that there may be others, that were not looked at.
	more bool
}

// add takes a value if it fits, whatever its case: it, or something else that it goes by, begins with what was typed.
func (c *completed) add(value string, also ...string) {
	fits := func(text string) bool {
		return len(text) >= len(c.typed) && strings.EqualFold(text[:len(c.typed)], c.typed)
	}
	if (fits(value) || slices.ContainsFunc(also, fits)) && !slices.Contains(c.values, value) {
		c.values = append(c.values, value)
	}
}

// complete answers completion/complete.
func (a *Adapter) complete(ctx context.Context, r mcp.Request, p *mcp.CompleteParams) (mcp.Result, error) {
	from := askerOf(r, p.Meta)
	ctx, stop := followRequest(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	switch {
	case p.Ref == nil:
		return nil, rpcError(jsonrpc.CodeInvalidParams, `params.ref is missing: want {"type":"ref/prompt","name":…} or {"type":"ref/resource","uri":…}`)
	case p.Argument.Name == "":
		return nil, rpcError(jsonrpc.CodeInvalidParams, "params.argument.name is missing: want the name of an argument or variable")
	}
	var known map[string]string
	if p.Context != nil {
		known = p.Context.Arguments
	}
	c := completed{typed: p.Argument.Value}
	var err error
	if p.Ref.Type == "ref/prompt" {
		err = a.completePrompt(ctx, from, p.Ref.Name, p.Argument.Name, &c)
	} else {
		err = a.completeTemplate(ctx, from, p.Ref.URI, p.Argument.Name, known, &c)
	}
	if err != nil {
		return nil, err
	}
	return c.result(from.modern), nil
}

func (c *completed) result(modern bool) mcp.Result {
	values := c.values[:min(len(c.values), maxCompletions)]
	body := []byte(`"completion":{"values":[`)
	for i, v := range values {
		if i > 0 {
			body = append(body, ',')
		}
		body = appendString(body, v)
	}
	body = append(body, ']')
	if !c.more {
		body = fmt.Appendf(body, `,"total":%d`, len(c.values))
	}
	body = fmt.Appendf(body, `,"hasMore":%t}`, c.more || len(values) < len(c.values))
	if modern {
		body = append(body, `,"resultType":"complete"`...)
	}
	return &rawResult{body: body}
}

// completePrompt completes an argument of a prompt: the names of resources of its type, which whoever types may begin with the last id of, or the
// values of its enum.
func (a *Adapter) completePrompt(ctx context.Context, from asker, prompt, name string, c *completed) error {
	s := a.conf.Catalog.Snapshot()
	p, err := a.promptNamed(ctx, s, prompt)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(p.Arguments, func(arg catalog.PromptArgument) bool { return arg.Name == name })
	if i < 0 {
		return checkNames(p, map[string]string{name: ""})
	}
	arg := p.Arguments[i]
	if arg.Enum != nil {
		c.enum(arg.Enum)
	}
	if arg.ResourceType == "" {
		return nil
	}
	for _, r := range s.ResourcesOf(p.Service.Backend, arg.ResourceType) {
		if !a.sees(ctx, r.Get) {
			continue
		}
		for _, parent := range a.parentNames(ctx, from, r, c) {
			a.collect(ctx, from, r, parent, c, func(f *listedResource) { c.add(f.name, f.values[max(len(f.values)-1, 0):]...) })
		}
	}
	return nil
}

// enum adds the names of an enum's values, but the one that says nothing.
func (c *completed) enum(ed protoreflect.EnumDescriptor) {
	for i := range ed.Values().Len() {
		v := ed.Values().Get(i)
		if v.Number() == 0 && strings.HasSuffix(string(v.Name()), "_UNSPECIFIED") {
			continue
		}
		c.add(string(v.Name()))
	}
}

// completeTemplate completes a variable of a resource template. Those before it are taken from the context.
func (a *Adapter) completeTemplate(ctx context.Context, from asker, uri, name string, known map[string]string, c *completed) error {
	s := a.conf.Catalog.Snapshot()
	i := slices.IndexFunc(s.Resources(), func(r *catalog.Resource) bool { return r.URI == uri })
	if i < 0 || !a.sees(ctx, s.Resources()[i].Get) {
		return unknownName("resource template", uri, func(yield func(string) bool) {
			for _, o := range a.seen(ctx, a.offersOf(s).templates) {
				if !yield(o.key) {
					return
				}
			}
		}, "list the templates again, they may have changed")
	}
	r := s.Resources()[i]
	at := slices.Index(r.Vars(), name)
	if at < 0 {
		return unknownName("variable", name, func(yield func(string) bool) {
			for _, v := range r.Vars() {
				if !yield(v) {
					return
				}
			}
		}, "the template has "+listOf(r.Vars()))
	}
	if fd := r.VarField(name); fd != nil {
		switch {
		case fd.Enum() != nil:
			c.enum(fd.Enum())
		case fd.Kind() == protoreflect.BoolKind:
			c.add("false")
			c.add("true")
		}
		return nil
	}
	// The variable is an id in the collection of r, or in that of a resource that r is in.
	for r.Parent != nil && at < len(r.Parent.Vars()) {
		r = r.Parent
	}
	before := make([]string, 0, at)
	for _, v := range r.Vars()[:at] {
		before = append(before, known[v])
	}
	for _, parent := range a.parentsGiven(ctx, from, r, before, c) {
		a.collect(ctx, from, r, parent, c, func(f *listedResource) {
			for i, v := range before {
				if v != "" && f.values[i] != v {
					return
				}
			}
			c.add(f.values[at])
		})
	}
	return nil
}

// parentsGiven returns the parents whose collections to look into, where the first variables are known, or not: "".
func (a *Adapter) parentsGiven(ctx context.Context, from asker, r *catalog.Resource, before []string, c *completed) []string {
	if !r.HasParent() || slices.Contains(before, "") || r.Parent != nil && len(before) < len(r.Parent.Vars()) {
		return a.parentNames(ctx, from, r, c)
	}
	values := append(slices.Clone(before), make([]string, len(r.Vars())-len(before))...)
	for i := range values {
		if values[i] == "" {
			values[i] = "-"
		}
	}
	return []string{r.ParentName(values)}
}

// parentNames returns the names of the parents whose collections to look into: those that can be listed, or "" for a collection without.
func (a *Adapter) parentNames(ctx context.Context, from asker, r *catalog.Resource, c *completed) []string {
	if !r.HasParent() {
		return []string{""}
	}
	if r.List == nil || r.Parent == nil || r.Parent.List == nil || r.Parent.HasParent() || !a.sees(ctx, r.Parent.List.Method) {
		c.more = true
		return nil
	}
	found, next, err := a.listCollection(ctx, from, r.Parent, "", "", listParents)
	if err != nil || next != "" || len(found) > listParents {
		c.more = true
	}
	names := make([]string, 0, listParents)
	for _, f := range found[:min(len(found), listParents)] {
		names = append(names, f.name)
	}
	return names
}

// collect gives each resource of a collection to take, as far as it can be listed within the bounds. What is refused has no values.
func (a *Adapter) collect(ctx context.Context, from asker, r *catalog.Resource, parent string, c *completed, take func(*listedResource)) {
	if r.List == nil || !a.sees(ctx, r.List.Method) {
		c.more = true
		return
	}
	token := ""
	for range completePages {
		if ctx.Err() != nil || len(c.values) > maxCompletions {
			break
		}
		found, next, err := a.listCollection(ctx, from, r, parent, token, completePage)
		if err != nil {
			c.more = true
			return
		}
		for i := range found {
			take(&found[i])
		}
		if token = next; token == "" {
			return
		}
	}
	c.more = true
}
