package mcpadapter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/toolschema"
)

// listing is the encoded tools that some callers see of one snapshot.
type listing struct {
	names []string
	// encoded are all tools, each followed by a comma; tool i is encoded[ends[i-1]:ends[i]-1].
	encoded []byte
	ends    []int
	hash    [sha256.Size]byte
}

// currentListing returns what the caller may see of the current snapshot. It encodes once per snapshot and set of visible tools, or, when
// several callers come at once right after a change, at most once for each of them.
func (a *Adapter) currentListing(ctx context.Context) *listing {
	return a.listingsOf(a.conf.Catalog.Snapshot()).forCaller(a, call.PrincipalFrom(ctx))
}

func (a *Adapter) listingsOf(s *catalog.Snapshot) *listings {
	last := a.listed.Load()
	if last != nil && last.snapshot == s {
		return last
	}
	ls := &listings{snapshot: s, tools: a.conf.View.toolsOf(s), byTool: map[[sha256.Size]byte]*listing{}, byWho: map[*identity.Principal]*listing{}}
	ls.all = newListing(ls.tools, a.conf.Profile)
	if last != nil {
		for _, name := range last.all.names {
			if _, listed := slices.BinarySearch(ls.all.names, name); !listed {
				a.removed.add(name)
			}
		}
	}
	a.listed.Store(ls)
	return ls
}

func newListing(tools []listedTool, p toolschema.Profile) *listing {
	l := &listing{names: make([]string, len(tools)), ends: make([]int, len(tools))}
	for i, t := range tools {
		l.names[i] = t.name
		if t.method == nil {
			l.encoded = append(l.encoded, callToolDefinition...)
		} else {
			l.encoded = appendTool(l.encoded, t.name, t.method, p)
		}
		l.encoded = append(l.encoded, ',')
		l.ends[i] = len(l.encoded)
	}
	l.hash = sha256.Sum256(l.encoded)
	return l
}

// page returns the encoded tools, separated by commas, of the page that begins after the cursor, "" being the beginning, and the cursor
// of the next one, which is "" after the last.
func (l *listing) page(cursor string, maxTools, maxBytes int) (tools []byte, next string, err error) {
	first, start := 0, 0
	if cursor != "" {
		after, ok := decodeCursor(toolsCursor, cursor)
		if !ok {
			return nil, "", unknownCursor(cursor)
		}
		first = sort.Search(len(l.names), func(i int) bool { return l.names[i] > after })
		if first > 0 {
			start = l.ends[first-1]
		}
	}
	end, last := start, first
	for last < len(l.names) && last-first < maxTools && (last == first || l.ends[last]-start <= maxBytes) {
		end = l.ends[last]
		last++
	}
	if last < len(l.names) {
		next = encodeCursor(toolsCursor, l.names[last-1])
	}
	return l.encoded[start:max(start, end-1)], next, nil
}

// The lists that have cursors.
const (
	toolsCursor     = "tools/list"
	promptsCursor   = "prompts/list"
	templatesCursor = "resources/templates/list"
	resourcesCursor = "resources/list"
)

// A cursor is the name of the last tool seen, so that it means the same after tools have come and gone, in any instance, before and
// after a restart. The checksum only tells a made-up cursor, and one of another list, from a real one.
func encodeCursor(list, name string) string {
	sum := cursorSum(list, name)
	return base64.RawURLEncoding.EncodeToString(append(sum[:], name...))
}

func decodeCursor(list, cursor string) (name string, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) < 6 {
		return "", false
	}
	name = string(raw[6:])
	sum := cursorSum(list, name)
	return name, bytes.Equal(sum[:], raw[:6])
}

func cursorSum(list, name string) [6]byte {
	sum := sha256.Sum256([]byte("toolway " + list + " cursor " + name))
	return [6]byte(sum[:6])
}

// appendTool appends the MCP definition of m under a name, with schemas of the profile. All four hints are always present, since their defaults in MCP are easy to misread.
func appendTool(dst []byte, name string, m *catalog.Method, p toolschema.Profile) []byte {
	h := m.Tool.Hints
	dst = append(dst, `{"name":`...)
	dst = appendString(dst, name)
	dst = append(dst, `,"title":`...)
	dst = appendString(dst, m.Tool.Title)
	dst = append(dst, `,"description":`...)
	dst = appendString(dst, m.Tool.Description)
	dst = append(dst, `,"inputSchema":`...)
	dst = append(dst, m.InputSchema(p)...)
	if shapeOf(m) == asMessage { // content has no schema
		dst = append(dst, `,"outputSchema":`...)
		dst = append(dst, openSchema(m.OutputSchema(p))...)
	}
	return fmt.Appendf(dst, `,"annotations":{"readOnlyHint":%t,"destructiveHint":%t,"idempotentHint":%t,"openWorldHint":%t}}`,
		h.ReadOnly, h.Destructive, h.Idempotent, h.OpenWorld)
}

// openSchema takes from the root of an output schema what would refuse {"error":{…}}: MCP clients that check results against the
// schema check those with isError too (@modelcontextprotocol/sdk 1.32 does).
func openSchema(schema []byte) []byte {
	var root map[string]json.RawMessage
	if err := json.Unmarshal(schema, &root); err != nil {
		return schema
	}
	closed := false
	for _, keyword := range []string{"required", "additionalProperties", "minProperties", "propertyNames"} {
		if _, ok := root[keyword]; ok {
			delete(root, keyword)
			closed = true
		}
	}
	if !closed {
		return schema
	}
	out, err := marshal(root)
	if err != nil {
		return schema
	}
	return out
}

// errorFits says whether a result of m may have the member "error" besides what the contract gives it.
func errorFits(m *catalog.Method) bool {
	return m == nil || m.Kind().Server || m.Desc.Output().Fields().ByJSONName("error") == nil
}
