package logs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits that a Loki server has unless told otherwise.
const (
	// LokiMaxRange is the longest range of one search on Loki: its max_query_length is 721h.
	LokiMaxRange = 30 * 24 * time.Hour
	// lokiMaxEntries is its max_entries_limit_per_query.
	lokiMaxEntries = 5000
)

// lokiService is the label that Loki gives every stream, and lokiUnknown its value where there is no better one.
const (
	lokiService = "service_name"
	lokiUnknown = "unknown_service"
)

// LokiOptions configures [NewLoki]. The zero value works.
type LokiOptions struct {
	// Client makes the requests. Default: one with Go's default transport. Its Timeout must not be set: calls bring deadlines.
	Client *http.Client
	// Tenant is sent as X-Scope-OrgID. Default: none, for a server without tenants.
	Tenant string
	// Selector are the matchers that choose the streams that are served, as in LogQL without braces. Default: service_name=~".+", which is every
	// stream of a server since 3.0.
	Selector string
	// Labels are the fields that become labels of streams, in Loki's index; all others become structured metadata. Default: "service".
	Labels []string
	// Retention is what the server is set to. Default (0): not known; old cursors are then not refused.
	Retention time.Duration
	// Settle and Poll are as in [VictoriaLogsOptions].
	Settle, Poll time.Duration
}

// Loki is a Grafana Loki server (3.0 or later, for structured metadata), reached over its HTTP API. It also sees entries that others put there.
//
// It takes a part of LogsQL; see [Loki.Compile]. Names of fields come back as Loki has them: with _ for what is no letter or digit. Entries that
// are the same in time, labels and line are one to Loki.
type Loki struct {
	base    *url.URL
	options LokiOptions
	gate    gate

	mu   sync.Mutex
	last uint64 // the newest sequence given out
}

// NewLoki returns an engine on the server at base, such as http://loki:3100. It makes no request yet.
func NewLoki(base string, options LokiOptions) (*Loki, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("read Loki URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("Loki URL %q is not http or https; use one like http://loki:3100", u.Redacted())
	}
	if options.Client == nil {
		options.Client = &http.Client{}
	}
	if options.Labels == nil {
		options.Labels = []string{"service"}
	}
	options.Selector = cmp.Or(options.Selector, lokiService+`=~".+"`)
	options.Settle = cmp.Or(options.Settle, 5*time.Second)
	options.Poll = cmp.Or(options.Poll, time.Second)
	return &Loki{base: u, options: options}, nil
}

// Compile turns a query into LogQL. What LogQL has no equal for is refused with a [*QueryError] that says where.
func (l *Loki) Compile(query string) (string, error) {
	return toLogQL(query, l.options.Selector, l.options.Labels)
}

// Retention implements [Engine].
func (l *Loki) Retention() time.Duration { return l.options.Retention }

// Select implements [Engine].
func (l *Loki) Select(ctx context.Context, s Selection) ([]Entry, bool, error) {
	ctx, leave, err := l.gate.enter(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	limit := min(s.Limit+1, lokiMaxEntries)
	direction := "forward"
	if s.NewestFirst {
		direction = "backward"
	}
	body, err := l.do(ctx, http.MethodGet, "loki/api/v1/query_range", url.Values{
		"query":     {s.Filter},
		"start":     {strconv.FormatInt(s.Start.UnixNano(), 10)},
		"end":       {strconv.FormatInt(s.End.UnixNano(), 10)},
		"limit":     {strconv.Itoa(limit)},
		"direction": {direction},
	}, nil)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = body.Close() }()
	entries, err := readStreams(body)
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	if err != nil {
		return nil, false, err
	}
	// An answer that is full may have been cut, also where the server's own limit is below what was asked for.
	more := len(entries) >= limit
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return e.Time.Before(s.Start) || !e.Time.Before(s.End) })
	slices.SortStableFunc(entries, func(a, b Entry) int {
		if s.NewestFirst {
			a, b = b, a
		}
		return a.Time.Compare(b.Time)
	})
	n, bytes := 0, 0
	for n < min(len(entries), s.Limit) {
		bytes += entries[n].size()
		if bytes > s.MaxBytes && n > 0 {
			break
		}
		n++
	}
	return entries[:n], more || n < len(entries), nil
}

// lokiAnswer is what query_range answers for a log query.
type lokiAnswer struct {
	Status string `json:"status"`
	Data   struct {
		ResultType string `json:"resultType"`
		Result     []struct {
			Stream map[string]string   `json:"stream"`
			Values [][]json.RawMessage `json:"values"`
		} `json:"result"`
	} `json:"data"`
}

// maxLokiAnswer bounds what is read of an answer: a page with its ties may have [maxTiesBytes], and JSON makes it longer.
const maxLokiAnswer = 2 * maxTiesBytes

// readStreams reads an answer: each stream's labels, with the structured metadata among them, and its entries.
func readStreams(r io.Reader) ([]Entry, error) {
	limited := &io.LimitedReader{R: r, N: maxLokiAnswer}
	var answer lokiAnswer
	if err := json.NewDecoder(limited).Decode(&answer); err != nil {
		if limited.N <= 0 {
			return nil, errTies
		}
		return nil, fmt.Errorf("read Loki's answer: %w", errors.Join(ErrUnreachable, err))
	}
	if answer.Status != "success" || answer.Data.ResultType != "streams" {
		return nil, fmt.Errorf("Loki answered status %q with a result of type %q, not streams", answer.Status, answer.Data.ResultType)
	}
	var entries []Entry
	for _, stream := range answer.Data.Result {
		for _, value := range stream.Values {
			entry, err := readValue(stream.Stream, value)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry)
		}
	}
	return entries, nil
}

func readValue(labels map[string]string, value []json.RawMessage) (Entry, error) {
	var at string
	entry := Entry{Fields: make(map[string]string, len(labels))}
	if len(value) < 2 || json.Unmarshal(value[0], &at) != nil || json.Unmarshal(value[1], &entry.Message) != nil {
		return Entry{}, fmt.Errorf("Loki answered the entry %.200q, which is no pair of time and line", value)
	}
	nanos, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return Entry{}, fmt.Errorf("read an entry's time %q: %w", at, err)
	}
	entry.Time = time.Unix(0, nanos)
	for name, v := range labels {
		switch name {
		case lokiService, "detected_level": // Loki's own
			continue
		}
		if err := entry.set(name, v); err != nil {
			return Entry{}, err
		}
	}
	if name := labels[lokiService]; entry.Fields["service"] == "" && name != "" && name != lokiUnknown {
		entry.Fields["service"] = name
	}
	return entry, nil
}

// lokiStream is one stream of a push.
type lokiStream struct {
	Stream map[string]string `json:"stream"`
	Values [][3]any          `json:"values"`
}

// Append implements [Engine]. Loki refuses what is too old for its settings: an hour behind the newest of the stream, or a week, unless told
// otherwise; then entries of the batch that it took stay.
func (l *Loki) Append(ctx context.Context, entries []Entry) error {
	ctx, leave, err := l.gate.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if len(entries) == 0 {
		return nil
	}
	streams := make(map[string]*lokiStream)
	var order []*lokiStream
	for _, entry := range entries {
		labels, metadata := l.split(entry)
		id := fmt.Sprint(labels)
		if streams[id] == nil {
			streams[id] = &lokiStream{Stream: labels}
			order = append(order, streams[id])
		}
		streams[id].Values = append(streams[id].Values, [3]any{strconv.FormatInt(entry.Time.UnixNano(), 10), entry.Message, metadata})
	}
	text, err := json.Marshal(map[string]any{"streams": order})
	if err != nil {
		return fmt.Errorf("encode entries: %w", err)
	}
	body, err := l.do(ctx, http.MethodPost, "loki/api/v1/push", nil, bytes.NewReader(text))
	if err != nil {
		return err
	}
	return body.Close()
}

// split says which fields are labels and which are metadata. Of two names that are one to Loki, the later in their order gets more _ at its end.
func (l *Loki) split(entry Entry) (labels, metadata map[string]string) {
	labels = map[string]string{lokiService: cmp.Or(entry.Fields["service"], lokiUnknown)}
	metadata = map[string]string{fieldSequence: strconv.FormatUint(l.sequence(), 10)}
	for _, field := range slices.Sorted(maps.Keys(entry.Fields)) {
		name, value := label(field), entry.Fields[field]
		for labels[name] != "" || metadata[name] != "" {
			name += "_"
		}
		switch {
		case value == "":
		case slices.Contains(l.options.Labels, name):
			labels[name] = value
		default:
			metadata[name] = value
		}
	}
	return labels, metadata
}

func (l *Loki) sequence() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last+1, uint64(time.Now().UnixMicro()))
	return l.last
}

// Origin implements [Engine].
func (l *Loki) Origin(since time.Time) Position { return l.polled().origin(since) }

// Check implements [Engine]. Where the retention is not known, no position is too old.
func (l *Loki) Check(after Position) error { return l.polled().check(after) }

// Follow implements [Engine]. The order is that of time, since entries need not have come through this service.
func (l *Loki) Follow(ctx context.Context, filter string, after Position, limit int) ([]Followed, Position, error) {
	ctx, leave, err := l.gate.enter(ctx)
	if err != nil {
		return nil, after, err
	}
	defer leave()
	return l.polled().follow(ctx, l, filter, after, limit)
}

func (l *Loki) polled() polled {
	return polled{retention: l.options.Retention, settle: l.options.Settle, poll: l.options.Poll}
}

// do makes a request and returns the body of a good answer.
func (l *Loki) do(ctx context.Context, method, path string, query url.Values, body io.Reader) (io.ReadCloser, error) {
	u := l.base.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make request to Loki: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if l.options.Tenant != "" {
		req.Header.Set("X-Scope-OrgID", l.options.Tenant)
	}
	resp, err := l.options.Client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if resp.StatusCode < 300 {
		return resp.Body, nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	_ = resp.Body.Close()
	return nil, lokiError(method, path, resp, strings.Join(strings.Fields(string(text)), " "))
}

// lokiError says what an answer that is not good means here.
func lokiError(method, path string, resp *http.Response, text string) error {
	err := fmt.Errorf("Loki answered %s to %s: %s", resp.Status, path, text)
	switch {
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	case resp.StatusCode == http.StatusBadRequest && method == http.MethodPost:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case resp.StatusCode == http.StatusBadRequest && strings.Contains(text, "exceeds the limit"):
		return &QueryError{Text: "the store's own limits refuse it: " + text, Position: -1}
	}
	return err
}

// Close implements [Engine]. Connections that the client keeps open are closed too.
func (l *Loki) Close() error {
	l.gate.close()
	l.options.Client.CloseIdleConnections()
	return nil
}
