package logs_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// lokiFake answers the two calls of Grafana Loki's HTTP API that the driver makes, as its reference (API v1: push, query_range) documents them:
// the shapes, the codes and texts of errors, limits of entries, start inclusive and end exclusive, entries that are the same being one. It is
// written from the documents: no Loki server could be run here, since its licence (AGPL) keeps it off these machines.
//
// It holds the LogQL that the driver writes against the entries with an evaluator of its own, of no more than the driver writes.
type lokiFake struct {
	t *testing.T

	mu       sync.Mutex
	entries  []fakeEntry
	answer   func(http.ResponseWriter, *http.Request) bool // before all else; true if it has answered
	queries  []string
	maxLimit int
}

type fakeEntry struct {
	at     int64
	line   string
	labels map[string]string // with the metadata
}

func startLoki(t *testing.T) (*lokiFake, string) {
	t.Helper()
	f := &lokiFake{t: t, maxLimit: 5000}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server.URL
}

func (f *lokiFake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answer != nil && f.answer(w, r) {
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /loki/api/v1/push":
		f.push(w, r)
	case "GET /loki/api/v1/query_range":
		f.queryRange(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (f *lokiFake) push(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Streams []struct {
			Stream map[string]string
			Values [][]json.RawMessage
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, fmt.Sprint("loghttp.PushRequest: ", err), http.StatusBadRequest)
		return
	}
	for _, s := range body.Streams {
		if s.Stream["service_name"] == "" {
			f.t.Errorf("push of a stream without service_name: %v", s.Stream)
		}
		for _, v := range s.Values {
			var at, line string
			var metadata map[string]string
			if len(v) != 3 || json.Unmarshal(v[0], &at) != nil || json.Unmarshal(v[1], &line) != nil || json.Unmarshal(v[2], &metadata) != nil {
				http.Error(w, "Value looks like Number/Boolean/None, but can't find its end", http.StatusBadRequest)
				return
			}
			nanos, _ := strconv.ParseInt(at, 10, 64)
			labels := map[string]string{"detected_level": "unknown"}
			for _, m := range []map[string]string{s.Stream, metadata} {
				for name, value := range m {
					if !regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(name) {
						f.t.Errorf("push with the name %q", name)
					}
					labels[name] = value
				}
			}
			f.add(fakeEntry{nanos, line, labels})
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// add stores an entry as if another producer had pushed it.
func (f *lokiFake) add(e fakeEntry) {
	if !slices.ContainsFunc(f.entries, func(o fakeEntry) bool {
		return o.at == e.at && o.line == e.line && fmt.Sprint(o.labels) == fmt.Sprint(e.labels)
	}) {
		f.entries = append(f.entries, e)
	}
}

func (f *lokiFake) queryRange(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f.queries = append(f.queries, q.Get("query"))
	start, _ := strconv.ParseInt(q.Get("start"), 10, 64)
	end, _ := strconv.ParseInt(q.Get("end"), 10, 64)
	limit, _ := strconv.Atoi(q.Get("limit"))
	if limit > f.maxLimit {
		http.Error(w, fmt.Sprintf("max entries limit per query exceeded, limit > max_entries_limit (%d > %d)", limit, f.maxLimit), http.StatusBadRequest)
		return
	}
	matches, err := parseFakeLogQL(q.Get("query"))
	if err != nil {
		f.t.Errorf("the driver wrote %s: %v", q.Get("query"), err)
		http.Error(w, "parse error at line 1, col 1: syntax error", http.StatusBadRequest)
		return
	}
	var found []fakeEntry
	for _, e := range f.entries {
		if e.at >= start && e.at < end && matches(e) {
			found = append(found, e)
		}
	}
	slices.SortStableFunc(found, func(a, b fakeEntry) int {
		if q.Get("direction") == "backward" {
			a, b = b, a
		}
		return cmp.Compare(a.at, b.at)
	})
	found = found[:min(len(found), limit)]
	// One stream for each set of labels, each with its entries in order.
	type stream struct {
		Stream map[string]string `json:"stream"`
		Values [][2]string       `json:"values"`
	}
	streams := []*stream{}
	for _, e := range found {
		i := slices.IndexFunc(streams, func(s *stream) bool { return fmt.Sprint(s.Stream) == fmt.Sprint(e.labels) })
		if i < 0 {
			i = len(streams)
			streams = append(streams, &stream{Stream: e.labels})
		}
		streams[i].Values = append(streams[i].Values, [2]string{strconv.FormatInt(e.at, 10), e.line})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "streams", "result": streams, "stats": map[string]any{}}})
}

// parseFakeLogQL reads a stream selector, line filters and label filters.
func parseFakeLogQL(query string) (func(fakeEntry) bool, error) {
	p := &fakeLogQL{rest: query}
	var all []func(fakeEntry) bool
	if !p.take("{") {
		return nil, fmt.Errorf("no selector")
	}
	for {
		all = append(all, p.label())
		if !p.take(",") {
			break
		}
	}
	if !p.take("}") {
		return nil, fmt.Errorf("selector without end at %q", p.rest)
	}
	for p.rest != "" && p.err == nil {
		switch {
		case p.take("|~"):
			re := p.regexp()
			all = append(all, func(e fakeEntry) bool { return re.MatchString(e.line) })
		case p.take("!~"):
			re := p.regexp()
			all = append(all, func(e fakeEntry) bool { return !re.MatchString(e.line) })
		case p.take("|"):
			all = append(all, p.either())
		default:
			p.err = fmt.Errorf("not understood at %q", p.rest)
		}
	}
	return func(e fakeEntry) bool {
		return !slices.ContainsFunc(all, func(f func(fakeEntry) bool) bool { return !f(e) })
	}, p.err
}

type fakeLogQL struct {
	rest string
	err  error
}

func (p *fakeLogQL) take(token string) bool {
	rest := strings.TrimLeft(p.rest, " ")
	if !strings.HasPrefix(rest, token) {
		return false
	}
	p.rest = strings.TrimLeft(rest[len(token):], " ")
	return true
}

func (p *fakeLogQL) text() string {
	quoted, err := strconv.QuotedPrefix(p.rest)
	if err != nil {
		p.err = fmt.Errorf("no text at %q", p.rest)
		return ""
	}
	p.rest = strings.TrimLeft(p.rest[len(quoted):], " ")
	text, _ := strconv.Unquote(quoted)
	return text
}

func (p *fakeLogQL) regexp() *regexp.Regexp {
	re, err := regexp.Compile(p.text())
	if err != nil {
		p.err = err
		return regexp.MustCompile("")
	}
	return re
}

func (p *fakeLogQL) either() func(fakeEntry) bool {
	f := p.both()
	for p.take("or ") {
		g, h := f, p.both()
		f = func(e fakeEntry) bool { return g(e) || h(e) }
	}
	return f
}

func (p *fakeLogQL) both() func(fakeEntry) bool {
	f := p.label()
	for p.take("and ") {
		g, h := f, p.label()
		f = func(e fakeEntry) bool { return g(e) && h(e) }
	}
	return f
}

func (p *fakeLogQL) label() func(fakeEntry) bool {
	if p.take("(") {
		f := p.either()
		if !p.take(")") {
			p.err = fmt.Errorf("no ) at %q", p.rest)
		}
		return f
	}
	name := regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*`).FindString(p.rest)
	p.rest = p.rest[len(name):]
	for _, op := range []string{"=~", "!~", "!=", "="} {
		if name == "" || !p.take(op) {
			continue
		}
		value := p.text()
		negated := op[0] == '!'
		if op[1:] != "~" {
			return func(e fakeEntry) bool { return (e.labels[name] == value) != negated }
		}
		re, err := regexp.Compile("^(?:" + value + ")$")
		if err != nil {
			p.err = err
			re = regexp.MustCompile("")
		}
		return func(e fakeEntry) bool { return re.MatchString(e.labels[name]) != negated }
	}
	p.err = fmt.Errorf("no label filter at %q", p.rest)
	return func(fakeEntry) bool { return false }
}
