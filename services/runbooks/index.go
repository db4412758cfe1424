package runbooks

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/keyword"
	_ "github.com/blevesearch/bleve/v2/analysis/lang/en" // the analyzer named in newIndex
	"github.com/blevesearch/bleve/v2/search/query"
)

// weights say how much a match in a field counts.
var weights = []struct {
	field string
	boost float64
}{{"title", 4}, {"alerts", 4}, {"name", 3}, {"services", 2}, {"tags", 2}, {fieldContent, 1}}

const (
	fieldContent = "content"
	// fieldAbout has the services as they are written, or everything.
	fieldAbout = "about"
	everything = "\x00"
)

// index finds runbooks by their words. It is kept in memory.
type index struct{ bleve bleve.Index }

// match is a runbook that fits.
type match struct {
	runbook  *Runbook
	passages []string
	score    float64
}

func newIndex() (*index, error) {
	words := bleve.NewTextFieldMapping()
	words.Analyzer, words.Store, words.DocValues, words.IncludeInAll = "en", false, false, false
	about := bleve.NewTextFieldMapping()
	about.Analyzer, about.Store, about.DocValues, about.IncludeInAll, about.IncludeTermVectors = keyword.Name, false, false, false, false
	doc := bleve.NewDocumentStaticMapping()
	for _, w := range weights {
		doc.AddFieldMappingsAt(w.field, words)
	}
	doc.AddFieldMappingsAt(fieldAbout, about)
	m := bleve.NewIndexMapping()
	m.DefaultMapping = doc
	b, err := bleve.NewMemOnly(m)
	if err != nil {
		return nil, fmt.Errorf("make the index: %w", err)
	}
	return &index{b}, nil
}

func (x *index) close() error { return x.bleve.Close() }

// update brings the index up to date.
func (x *index) update(changes []change) error {
	if len(changes) == 0 {
		return nil
	}
	batch := x.bleve.NewBatch()
	for _, c := range changes {
		if c.now == nil {
			batch.Delete(c.name)
			continue
		}
		about := c.now.Services
		if len(about) == 0 {
			about = []string{everything}
		}
		err := batch.Index(c.name, map[string]any{
			"title":      c.now.Title,
			"alerts":     apart(c.now.Alerts...),
			"name":       apart(c.name),
			"services":   apart(c.now.Services...),
			"tags":       apart(c.now.Tags...),
			fieldContent: c.now.Content,
			fieldAbout:   about,
		})
		if err != nil {
			return fmt.Errorf("index %q: %w", c.name, err)
		}
	}
	return x.bleve.Batch(batch)
}

// search finds the runbooks that have any of the words, the best first; about a service if it is not "". named returns what is indexed under
// a name.
func (x *index) search(ctx context.Context, words, service string, limit int, named func(string) *Runbook) ([]match, error) {
	for _, fuzziness := range []int{0, 1} {
		request := bleve.NewSearchRequestOptions(wanted(words, service, fuzziness), limit, 0, false)
		request.SortBy([]string{"-_score", "_id"})
		request.IncludeLocations = true
		result, err := x.bleve.SearchInContext(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("search the index: %w", err)
		}
		var found []match
		for _, hit := range result.Hits {
			r := named(hit.ID)
			if r == nil {
				return nil, fmt.Errorf("the index has %q, which is not served", hit.ID)
			}
			var places []place
			for term, locations := range hit.Locations[fieldContent] {
				for _, l := range locations {
					places = append(places, place{term, int(l.Start), int(l.End)})
				}
			}
			found = append(found, match{r, passages(r.Content, places), hit.Score / result.MaxScore})
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

// wanted is the query for any of the words in any field.
func wanted(words, service string, fuzziness int) query.Query {
	words = apart(words)
	fits := bleve.NewDisjunctionQuery()
	for _, w := range weights {
		q := bleve.NewMatchQuery(words)
		q.SetField(w.field)
		q.SetBoost(w.boost)
		q.SetFuzziness(fuzziness)
		fits.AddQuery(q)
	}
	if service == "" {
		return fits
	}
	about := bleve.NewDisjunctionQuery()
	for _, s := range []string{service, everything} {
		q := bleve.NewTermQuery(s)
		q.SetField(fieldAbout)
		q.SetBoost(0) // it says which, not how well
		about.AddQuery(q)
	}
	// Not a BooleanQuery with a filter: its iterators are not closed, and each leaves a goroutine (bleve v2.6.3).
	return bleve.NewConjunctionQuery(fits, about)
}

var (
	humps      = regexp.MustCompile(`(\p{Ll}|\d)(\p{Lu})`)
	separators = strings.NewReplacer("_", " ", "-", " ", ".", " ", "/", " ")
)

// apart adds the words in identifiers to them: CheckoutLatencyHigh is found by "latency" too.
func apart(identifiers ...string) string {
	whole := strings.Join(identifiers, " ")
	split := separators.Replace(humps.ReplaceAllString(whole, "$1 $2"))
	if split == whole {
		return whole
	}
	return whole + " " + split
}
