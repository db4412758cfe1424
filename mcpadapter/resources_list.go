package mcpadapter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/transcode"
)

// The bounds of one page of resources/list, whatever there is at the backends.
const (
	// listItems is how many resources a page has at most, and how many are asked for at a time.
	listItems = 100
	// listCalls is how many calls of backends a page costs at most.
	listCalls = 16
	// listTime is how long a page takes at most, listCallTime a call.
	listTime, listCallTime = 10 * time.Second, 5 * time.Second
	// listParents is in how many parents a collection is looked for.
	listParents = 20
	// listCollection is how many resources of one collection are listed in all.
	listCollection = 1000
)

// place is where a listing goes on: a cursor says it.
type place struct {
	// URI is that of the resource or template.
	URI string `json:"u"`
	// Parent is the name of the parent whose collection was begun, Token the backend's token of its next page.
	Parent string `json:"p,omitempty"`
	Token  string `json:"t,omitempty"`
	// Count is how many of the collection were listed.
	Count int `json:"c,omitempty"`
}

// cursor encodes the place. As with other cursors, the checksum only tells a made-up one from a real one.
func (p place) cursor() string { return encodeCursor(resourcesCursor, string(encoded(p))) }

func placeOf(cursor string) (p place, ok bool) {
	raw, ok := decodeCursor(resourcesCursor, cursor)
	return p, ok && json.Unmarshal([]byte(raw), &p) == nil
}

// listedResource is one that a List method gave.
type listedResource struct {
	values                     []string
	name, etag, title, updated string
}

// lister makes one page of resources/list.
type lister struct {
	adapter *Adapter
	from    asker
	items   [][]byte
	calls   int
	// missing says what is left out, and why.
	missing []unlisted
	parents map[*catalog.Resource][]string
}

// unlisted is a collection that is left out of a listing, or a part of one.
type unlisted struct {
	URI    string `json:"uri"`
	Parent string `json:"parent,omitempty"`
	Code   string `json:"code,omitempty"`
	Why    string `json:"message"`
}

// listResources answers resources/list: the resources with a URI of their own, and those of the collections that can be listed. It asks
// the backends, as calls of the asker. What cannot be listed is left out, and said in _meta.
func (a *Adapter) listResources(ctx context.Context, from asker, cursor string) (mcp.Result, error) {
	ctx, stop := followRequest(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	var at place
	if cursor != "" {
		var ok bool
		if at, ok = placeOf(cursor); !ok {
			return nil, unknownCursor(cursor)
		}
	}
	l := &lister{adapter: a, from: from, parents: map[*catalog.Resource][]string{}}
	next := l.list(ctx, a.conf.Catalog.Snapshot().Resources(), at)
	body := append([]byte(`"resources":[`), bytes.Join(l.items, []byte(","))...)
	res := &rawResult{body: a.appendListEnd(body, next, l.from.modern)}
	if len(l.missing) > 0 {
		res.Meta = mcp.Meta{metaUnlisted: l.missing}
	}
	return res, nil
}

// list lists what there is from at on, and returns the cursor of the next page, or "".
func (l *lister) list(ctx context.Context, resources []*catalog.Resource, at place) (next string) {
	for _, r := range resources {
		if r.URI < at.URI || !l.adapter.sees(ctx, r.Get) {
			continue
		}
		if r.URI != at.URI {
			at = place{URI: r.URI}
		}
		if l.full(ctx) {
			return at.cursor()
		}
		if len(r.Vars()) == 0 {
			l.items = append(l.items, resourceJSON(r))
			continue
		}
		if r.List == nil || !l.adapter.sees(ctx, r.List.Method) {
			continue
		}
		if next := l.collections(ctx, r, at); next != "" {
			return next
		}
	}
	return ""
}

// full says whether the page is to end here.
func (l *lister) full(ctx context.Context) bool {
	return len(l.items) >= listItems || l.calls >= listCalls || ctx.Err() != nil
}

// collections lists the one collection of a resource, or those in its parents, as far as these can be listed themselves.
func (l *lister) collections(ctx context.Context, r *catalog.Resource, at place) (next string) {
	parents := []string{""}
	if r.HasParent() {
		if r.Parent == nil || r.Parent.List == nil || r.Parent.HasParent() {
			return ""
		}
		var ok bool
		if parents, ok = l.parentsOf(ctx, r); !ok {
			return ""
		}
	}
	for _, parent := range parents {
		if parent < at.Parent {
			continue
		}
		if parent != at.Parent {
			at.Parent, at.Token, at.Count = parent, "", 0
		}
		for more := true; more; more = at.Token != "" {
			if l.full(ctx) {
				return at.cursor()
			}
			if at.Count >= listCollection {
				l.missing = append(l.missing, unlisted{URI: r.URI, Parent: parent, Why: fmt.Sprintf("there are more than the first %d", at.Count)})
				break
			}
			if !l.page(ctx, r, &at) {
				break
			}
		}
	}
	return ""
}

// page lists one page of a collection and moves at to the next.
func (l *lister) page(ctx context.Context, r *catalog.Resource, at *place) bool {
	l.calls++
	found, token, err := l.adapter.listCollection(ctx, l.from, r, at.Parent, at.Token, listItems-len(l.items))
	if err != nil {
		l.miss(r, at.Parent, err)
		return false
	}
	at.Token = token
	if room := listCollection - at.Count; len(found) > room { // the backend gives more than it was asked for
		found, at.Token = found[:room], "more"
	}
	for i := range found {
		l.items = append(l.items, found[i].json(r))
	}
	at.Count += len(found)
	return true
}

func (l *lister) miss(r *catalog.Resource, parent string, err error) {
	code, text := reason(err)
	l.missing = append(l.missing, unlisted{URI: r.URI, Parent: parent, Code: codeName(code), Why: text})
}

// parentsOf returns the names of the first parents, sorted.
func (l *lister) parentsOf(ctx context.Context, r *catalog.Resource) ([]string, bool) {
	if names, ok := l.parents[r.Parent]; ok {
		return names, names != nil
	}
	l.calls++
	found, more, err := l.adapter.listCollection(ctx, l.from, r.Parent, "", "", listParents)
	if err != nil {
		l.parents[r.Parent] = nil
		l.miss(r, "", err)
		return nil, false
	}
	names := make([]string, 0, len(found))
	for _, f := range found {
		names = append(names, f.name)
	}
	slices.Sort(names)
	if len(names) > listParents {
		names, more = names[:listParents], "more"
	}
	if more != "" {
		l.missing = append(l.missing, unlisted{URI: r.URI, Why: fmt.Sprintf("only the first %d of %q were looked into", len(names), r.Parent.URI)})
	}
	l.parents[r.Parent] = names
	return names, true
}

// json encodes a listed resource of r.
func (f *listedResource) json(r *catalog.Resource) []byte {
	out := appendString([]byte(`{"uri":`), r.Expand(f.values))
	out = appendString(append(out, `,"name":`...), f.name)
	if f.title != "" {
		out = appendString(append(out, `,"title":`...), f.title)
	}
	if r.MIMEType != "" {
		out = appendString(append(out, `,"mimeType":`...), r.MIMEType)
	}
	if f.updated != "" {
		out = append(appendString(append(out, `,"annotations":{"lastModified":`...), f.updated), '}')
	}
	if f.etag != "" {
		out = append(appendString(append(out, `,"_meta":{"`+metaETag+`":`...), f.etag), '}')
	}
	return append(out, '}')
}

// listCollection calls the List method once. Names that are none of the resource's pattern are left out.
func (a *Adapter) listCollection(ctx context.Context, from asker, r *catalog.Resource, parent, token string, size int) (found []listedResource, next string, err error) {
	l := r.List
	var request []byte
	set := func(field, value string) {
		if err == nil && field != "" && value != "" {
			request, err = l.Method.Request().AppendParam(request, field, []string{value})
		}
	}
	set(l.Parent, parent)
	set(l.PageSize, strconv.Itoa(size))
	set(l.PageToken, token)
	if err != nil {
		return nil, "", err
	}
	reply, _, err := a.fetch(ctx, from, l.Method, request, listCallTime)
	if err != nil {
		return nil, "", err
	}
	whole, err := l.Method.Response().AppendJSON(nil, reply, transcode.WriteOptions{})
	if err != nil {
		return nil, "", err
	}
	var page map[string]json.RawMessage
	if err := json.Unmarshal(whole, &page); err != nil {
		return nil, "", err
	}
	var items []map[string]json.RawMessage
	if raw := page[l.Items.JSONName()]; raw != nil {
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, "", err
		}
	}
	if l.NextToken != nil {
		next = textOf(page[l.NextToken.JSONName()])
	}
	for _, item := range items {
		f := listedResource{name: textOf(item[l.Name.JSONName()]), etag: textOf(item["etag"]), updated: textOf(item["updateTime"])}
		f.title = cut(call.PlainText(or(textOf(item["displayName"]), textOf(item["title"]))), 200)
		var fits bool
		if f.values, fits = r.MatchName(f.name); fits {
			found = append(found, f)
		}
	}
	return found, next, nil
}

// textOf returns a JSON string, or "".
func textOf(raw json.RawMessage) string {
	var s string
	if raw == nil || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}
