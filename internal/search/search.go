// Package search finds the tools of a catalog that fit a few words.
package search

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/blevesearch/bleve/v2"
	_ "github.com/blevesearch/bleve/v2/analysis/lang/en" // the analyzer named in newMapping
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/mapping"
	"github.com/blevesearch/bleve/v2/search/query"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/catalog"
)

// MaxQuery is how much of a query is looked at, in bytes: what is beyond adds time, not sense.
const MaxQuery = 400

// maxUpdates is how often an index is brought up to date before it is made anew: each update adds a segment that every search goes through, and
// nothing merges segments in memory.
const maxUpdates = 16

// Index finds tools. The zero value is ready. It is safe for concurrent use. Close it.
//
// The index is kept in memory, made at the first search, and brought up to date at the first search after a change: only what has changed is
// indexed again. With 10,000 tools the first search takes about half a second of processor time.
type Index struct {
	mu       sync.RWMutex // held for reading while the index is searched
	index    bleve.Index
	snapshot *catalog.Snapshot
	known    map[string]string // what was indexed, by tool name
	updates  int               // since the index was made
}

// Close frees the index once running searches have ended. Later searches make it anew.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.drop()
}

// Find returns at most limit tools of s that fit the query, best first; keep, if not nil, says which may be shown. Names and titles count
// more than descriptions, and these more than names of fields. Words are compared by their English stems, and, if nothing fits them, with one
// letter more, less or different.
func (x *Index) Find(ctx context.Context, s *catalog.Snapshot, words string, limit int, keep func(*catalog.Method) bool) ([]*catalog.Method, error) {
	words = strings.ToValidUTF8(words[:min(len(words), MaxQuery)], "")
	if strings.TrimSpace(words) == "" || limit <= 0 {
		return nil, nil
	}
	unlock, err := x.current(s)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, fuzziness := range []int{0, 1} {
		found, err := find(ctx, x.index, s, wanted(words, fuzziness), limit, keep)
		if err != nil || len(found) > 0 {
			return exactFirst(found, words), err
		}
	}
	return nil, nil
}

// weights say how much a match in a field counts.
var weights = []struct {
	field string
	boost float64
}{{"name", 5}, {"title", 4}, {"labels", 3}, {"service", 2}, {"description", 2}, {"arguments", 1}}

func wanted(words string, fuzziness int) query.Query {
	words = strings.Join(split(words), " ")
	anyField := bleve.NewDisjunctionQuery()
	for _, w := range weights {
		q := bleve.NewMatchQuery(words)
		q.SetField(w.field)
		q.SetBoost(w.boost)
		q.SetFuzziness(fuzziness)
		anyField.AddQuery(q)
	}
	return anyField
}

// find asks for more until enough of the hits may be shown.
func find(ctx context.Context, index bleve.Index, s *catalog.Snapshot, q query.Query, limit int, keep func(*catalog.Method) bool) ([]*catalog.Method, error) {
	var out []*catalog.Method
	for from, size := 0, limit*2; ; from, size = from+size, size*2 {
		r := bleve.NewSearchRequestOptions(q, size, from, false)
		r.SortBy([]string{"-_score", "_id"})
		res, err := index.SearchInContext(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("search the catalog: %w", err)
		}
		for _, hit := range res.Hits {
			m := s.Tool(hit.ID)
			if m == nil || keep != nil && !keep(m) {
				continue
			}
			if out = append(out, m); len(out) == limit {
				return out, nil
			}
		}
		if len(res.Hits) < size {
			return out, nil
		}
	}
}

// exactFirst puts the tool that has the query for its name first.
func exactFirst(found []*catalog.Method, words string) []*catalog.Method {
	i := slices.IndexFunc(found, func(m *catalog.Method) bool { return m.Tool.Name == strings.TrimSpace(words) })
	if i <= 0 {
		return found
	}
	m := found[i]
	return slices.Insert(slices.Delete(found, i, i+1), 0, m)
}

// current brings the index to s and keeps it there until unlock is called.
func (x *Index) current(s *catalog.Snapshot) (unlock func(), err error) {
	for {
		x.mu.RLock()
		if x.snapshot == s {
			return x.mu.RUnlock, nil
		}
		x.mu.RUnlock()
		x.mu.Lock()
		if x.snapshot != s {
			err = x.update(s)
		}
		x.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

// update is called with x.mu held.
func (x *Index) update(s *catalog.Snapshot) error {
	if x.updates == maxUpdates {
		if err := x.drop(); err != nil {
			return err
		}
	}
	if x.index == nil {
		index, err := bleve.NewUsing("", newMapping(), scorch.Name, scorch.Name, nil) // no path: in memory
		if err != nil {
			return fmt.Errorf("make the search index: %w", err)
		}
		x.index, x.known, x.updates = index, map[string]string{}, 0
	}
	batch := x.index.NewBatch()
	now := make(map[string]string, len(s.Tools()))
	for _, m := range s.Tools() {
		d := documentOf(m)
		mark := fmt.Sprint(d)
		now[m.Tool.Name] = mark
		if x.known[m.Tool.Name] == mark {
			continue
		}
		if err := batch.Index(m.Tool.Name, d); err != nil {
			return fmt.Errorf("index tool %q: %w", m.Tool.Name, err)
		}
	}
	for name := range x.known {
		if _, still := now[name]; !still {
			batch.Delete(name)
		}
	}
	if batch.Size() > 0 {
		if err := x.index.Batch(batch); err != nil {
			return fmt.Errorf("bring the search index up to date: %w", err)
		}
		x.updates++
	}
	x.snapshot, x.known = s, now
	return nil
}

// drop is called with x.mu held.
func (x *Index) drop() error {
	index := x.index
	x.index, x.snapshot, x.known, x.updates = nil, nil, nil, 0
	if index == nil {
		return nil
	}
	if err := index.Close(); err != nil {
		return fmt.Errorf("close the search index: %w", err)
	}
	return nil
}

// document is what is indexed of a tool.
type document struct {
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Service     string `json:"service"`
	Labels      string `json:"labels"`
	Arguments   string `json:"arguments"`
}

func documentOf(m *catalog.Method) document {
	return document{
		Name:        strings.Join(split(m.Tool.Name+" "+string(m.Desc.Name())), " "),
		Title:       m.Tool.Title,
		Description: m.Tool.Description,
		Service:     strings.Join(split(string(m.Service.Desc.FullName())), " "),
		Labels:      strings.Join(m.Policy.Labels, " "),
		Arguments:   arguments(m.Desc.Input()),
	}
}

// arguments are the words in the names of the request's fields.
func arguments(md protoreflect.MessageDescriptor) string {
	var words []string
	for i := range md.Fields().Len() {
		words = append(words, split(string(md.Fields().Get(i).Name()))...)
	}
	return strings.Join(words, " ")
}

// split makes words of identifiers: "ListPods", "list_pods" and "acme.list-pods" have the word "pods" in them.
func split(s string) []string {
	var out []string
	start := 0
	flush := func(end int) {
		if end > start {
			out = append(out, s[start:end])
		}
		start = end
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_' || c == '.' || c == '-' || c == '/' || c == ' ':
			flush(i)
			start = i + 1
		case i > start && isUpper(c) && (!isUpper(s[i-1]) || i+1 < len(s) && isLower(s[i+1])):
			flush(i)
		}
	}
	flush(len(s))
	return out
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

func newMapping() mapping.IndexMapping {
	text := bleve.NewTextFieldMapping()
	text.Analyzer, text.Store, text.DocValues, text.IncludeTermVectors, text.IncludeInAll = "en", false, false, false, false
	doc := bleve.NewDocumentStaticMapping()
	for _, w := range weights {
		doc.AddFieldMappingsAt(w.field, text)
	}
	m := bleve.NewIndexMapping()
	m.DefaultMapping = doc
	return m
}
