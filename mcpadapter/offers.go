package mcpadapter

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// offers are the encoded resources, templates and prompts of one snapshot.
type offers struct {
	snapshot *catalog.Snapshot
	// resources are those with a URI of their own, templates the others; both sorted by URI. prompts are sorted by name.
	resources, templates, prompts []offer
	// resourcesHash and promptsHash tell whether anything that is listed has changed.
	resourcesHash, promptsHash [sha256.Size]byte
}

// offer is one item of a list.
type offer struct {
	// key is what the list is sorted by.
	key  string
	json []byte
	// of are the methods of which an asker must be able to see one.
	of []*catalog.Method
}

// currentOffers returns those of the current snapshot. It encodes once per snapshot, or, when several askers come at once right after a
// change, at most once for each of them.
func (a *Adapter) currentOffers() *offers { return a.offersOf(a.conf.Catalog.Snapshot()) }

func (a *Adapter) offersOf(s *catalog.Snapshot) *offers {
	if o := a.offered.Load(); o != nil && o.snapshot == s {
		return o
	}
	o := &offers{snapshot: s}
	resources := sha256.New()
	for _, r := range s.Resources() {
		if !a.conf.View.shows(r.Get) {
			continue
		}
		item := offer{key: r.URI, json: resourceJSON(r), of: []*catalog.Method{r.Get}}
		if len(r.Vars()) == 0 {
			o.resources = append(o.resources, item)
		} else {
			o.templates = append(o.templates, item)
		}
		fmt.Fprintf(resources, "%s %v\n", item.json, r.List != nil)
	}
	prompts := sha256.New()
	for _, p := range s.Prompts() {
		if !slices.ContainsFunc(p.Service.Methods, a.conf.View.shows) {
			continue
		}
		item := offer{key: p.Name, json: promptJSON(p), of: p.Service.Methods}
		o.prompts = append(o.prompts, item)
		fmt.Fprintf(prompts, "%s\n", item.json)
	}
	o.resourcesHash, o.promptsHash = [sha256.Size]byte(resources.Sum(nil)), [sha256.Size]byte(prompts.Sum(nil))
	a.offered.Store(o)
	return o
}

// resourceJSON encodes a resource, or a template, as it is listed.
func resourceJSON(r *catalog.Resource) []byte {
	uri := "uri"
	if len(r.Vars()) > 0 {
		uri = "uriTemplate"
	}
	out := appendString([]byte(`{"`+uri+`":`), r.URI)
	out = appendString(append(out, `,"name":`...), r.Name)
	out = appendString(append(out, `,"title":`...), r.Title)
	out = appendString(append(out, `,"description":`...), r.Description)
	if r.MIMEType != "" {
		out = appendString(append(out, `,"mimeType":`...), r.MIMEType)
	}
	return append(out, '}')
}

// promptJSON encodes a prompt as it is listed.
func promptJSON(p *catalog.Prompt) []byte {
	listed := mcp.Prompt{Name: p.Name, Title: p.Title, Description: p.Description}
	for _, arg := range p.Arguments {
		listed.Arguments = append(listed.Arguments, &mcp.PromptArgument{Name: arg.Name, Title: arg.Title, Description: arg.Description, Required: arg.Required})
	}
	out, err := marshal(listed)
	if err != nil { // it has nothing in it that cannot be encoded
		return []byte("{}")
	}
	return out
}

// seen returns the offers that the asker may know of.
func (a *Adapter) seen(ctx context.Context, all []offer) []offer {
	if a.conf.Visibility == nil {
		return all
	}
	var out []offer
	for _, o := range all {
		for _, m := range o.of {
			if a.sees(ctx, m) {
				out = append(out, o)
				break
			}
		}
	}
	return out
}

// sees says whether the asker may know of m.
func (a *Adapter) sees(ctx context.Context, m *catalog.Method) bool {
	return a.conf.View.shows(m) && call.Sees(a.conf.Visibility, call.PrincipalFrom(ctx), call.MCP, m)
}

// shows says whether the door exposes m in the view.
func (v View) shows(m *catalog.Method) bool {
	return m.Exposed(catalog.DoorMCP) && (v.Has == nil || v.Has(m))
}

// listOffers answers a list: the page of the offers that begins after the cursor, as the member called name.
func (a *Adapter) listOffers(ctx context.Context, all []offer, list, name, cursor string, modern bool) (mcp.Result, error) {
	items, first := a.seen(ctx, all), 0
	if cursor != "" {
		after, ok := decodeCursor(list, cursor)
		if !ok {
			return nil, unknownCursor(cursor)
		}
		first = sort.Search(len(items), func(i int) bool { return items[i].key > after })
	}
	body := fmt.Appendf(nil, `"%s":[`, name)
	last := first
	for ; last < len(items) && last-first < a.conf.PageTools; last++ {
		if last > first {
			if len(body)+len(items[last].json) > a.conf.PageBytes {
				break
			}
			body = append(body, ',')
		}
		body = append(body, items[last].json...)
	}
	next := ""
	if last < len(items) {
		next = encodeCursor(list, items[last-1].key)
	}
	return &rawResult{body: a.appendListEnd(body, next, modern)}, nil
}

func unknownCursor(cursor string) error {
	return invalidParams(fmt.Sprintf("unknown cursor %q; list again without one", cut(cursor, 100)))
}

// encoded encodes a value that has nothing in it that cannot be encoded.
func encoded(v any) json.RawMessage {
	out, err := marshal(v)
	if err != nil {
		return json.RawMessage("{}")
	}
	return out
}
