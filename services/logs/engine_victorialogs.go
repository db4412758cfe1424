package logs

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// VictoriaLogsOptions configures [NewVictoriaLogs]. The zero value works.
type VictoriaLogsOptions struct {
	// Client makes the requests. Default: one with Go's default transport. Its Timeout must not be set: calls bring deadlines.
	Client *http.Client
	// Retention is what the server is set to (-retentionPeriod). Default (0): not known; old cursors are then not refused.
	Retention time.Duration
	// StreamFields are the fields whose values group entries on disk. Default: "service".
	StreamFields []string
	// Settle is how long an entry may take from its time until the server shows it. Followers stay this far behind; an entry
	// that is later than this is not followed. Default: 5 s, the server's own choice for its live tail.
	Settle time.Duration
	// Poll is how often followers ask. Default: 1 s.
	Poll time.Duration
}

// VictoriaLogs is a VictoriaLogs server, reached over its HTTP API. It also sees entries that others put there.
type VictoriaLogs struct {
	base    *url.URL
	options VictoriaLogsOptions
	gate    gate

	mu   sync.Mutex
	last uint64 // the newest sequence given out
}

// NewVictoriaLogs returns an engine on the server at base, such as http://victorialogs:9428. It makes no request yet.
func NewVictoriaLogs(base string, options VictoriaLogsOptions) (*VictoriaLogs, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("read VictoriaLogs URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("VictoriaLogs URL %q is not http or https; use one like http://victorialogs:9428", u.Redacted())
	}
	if options.Client == nil {
		options.Client = &http.Client{}
	}
	if options.StreamFields == nil {
		options.StreamFields = []string{"service"}
	}
	options.Settle = cmp.Or(options.Settle, 5*time.Second)
	options.Poll = cmp.Or(options.Poll, time.Second)
	return &VictoriaLogs{base: u, options: options}, nil
}

// Retention implements [Engine].
func (v *VictoriaLogs) Retention() time.Duration { return v.options.Retention }

// Select implements [Engine].
func (v *VictoriaLogs) Select(ctx context.Context, s Selection) ([]Entry, bool, error) {
	ctx, leave, err := v.gate.enter(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	order := "sort by (" + fieldTime + ")"
	if s.NewestFirst {
		order += " desc"
	}
	body, err := v.post(ctx, "select/logsql/query", nil, "application/x-www-form-urlencoded", strings.NewReader(url.Values{
		"query": {fmt.Sprintf("%s | %s limit %d", s.Filter, order, s.Limit+1)},
		"start": {strconv.FormatInt(s.Start.UnixNano(), 10)},
		"end":   {strconv.FormatInt(s.End.UnixNano(), 10)},
		"time":  {strconv.FormatInt(s.At.UnixNano(), 10)},
	}.Encode()))
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = body.Close() }()
	entries, more, err := readEntries(body, s)
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		if s.NewestFirst {
			a, b = b, a
		}
		return a.Time.Compare(b.Time)
	})
	return entries, more, err
}

// readEntries reads the server's JSON lines within the limits of s.
func readEntries(r io.Reader, s Selection) (entries []Entry, more bool, err error) {
	decoder := json.NewDecoder(bufio.NewReader(r))
	bytes := 0
	for {
		var row map[string]string
		if err := decoder.Decode(&row); errors.Is(err, io.EOF) {
			return entries, false, nil
		} else if err != nil {
			return nil, false, fmt.Errorf("read VictoriaLogs' answer: %w", errors.Join(ErrUnreachable, err))
		}
		entry := Entry{Fields: make(map[string]string, len(row))}
		for name, value := range row {
			if err := entry.set(name, value); err != nil {
				return nil, false, err
			}
		}
		if entry.Time.Before(s.Start) || !entry.Time.Before(s.End) {
			continue
		}
		bytes += entry.size()
		if len(entries) == s.Limit || bytes > s.MaxBytes && len(entries) > 0 {
			return entries, true, nil
		}
		entries = append(entries, entry)
	}
}

// Append implements [Engine]. The server shows the entries within about a second.
func (v *VictoriaLogs) Append(ctx context.Context, entries []Entry) error {
	ctx, leave, err := v.gate.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if len(entries) == 0 {
		return nil
	}
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	for _, entry := range entries {
		row := make(map[string]string, len(entry.Fields)+3)
		for name, value := range entry.Fields {
			row[name] = value
		}
		row[fieldTime] = stamp(entry.Time)
		row[fieldMessage] = entry.Message
		row[fieldSequence] = strconv.FormatUint(v.sequence(), 10)
		if err := encoder.Encode(row); err != nil {
			return fmt.Errorf("encode entry: %w", err)
		}
	}
	body, err := v.post(ctx, "insert/jsonline", url.Values{
		"_stream_fields": {strings.Join(v.options.StreamFields, ",")},
		"_time_field":    {fieldTime},
		"_msg_field":     {fieldMessage},
	}, "application/stream+json", &lines)
	if err != nil {
		return err
	}
	return body.Close()
}

func (v *VictoriaLogs) sequence() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = max(v.last+1, uint64(time.Now().UnixMicro()))
	return v.last
}

// Origin implements [Engine].
func (v *VictoriaLogs) Origin(since time.Time) Position { return v.polled().origin(since) }

// Check implements [Engine]. Where the retention is not known, no position is too old.
func (v *VictoriaLogs) Check(after Position) error { return v.polled().check(after) }

// Follow implements [Engine]. The order is that of time, since entries need not have come through this service.
func (v *VictoriaLogs) Follow(ctx context.Context, filter string, after Position, limit int) ([]Followed, Position, error) {
	ctx, leave, err := v.gate.enter(ctx)
	if err != nil {
		return nil, after, err
	}
	defer leave()
	return v.polled().follow(ctx, v, filter, after, limit)
}

func (v *VictoriaLogs) polled() polled {
	return polled{retention: v.options.Retention, settle: v.options.Settle, poll: v.options.Poll}
}

// post makes a request and returns the body of a good answer.
func (v *VictoriaLogs) post(ctx context.Context, path string, query url.Values, contentType string, body io.Reader) (io.ReadCloser, error) {
	u := v.base.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make request to VictoriaLogs: %w", err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := v.options.Client.Do(req)
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
	err = fmt.Errorf("VictoriaLogs answered %s to %s: %s", resp.Status, path, bytes.TrimSpace(text))
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return nil, err
}

// Close implements [Engine]. Connections that the client keeps open are closed too.
func (v *VictoriaLogs) Close() error {
	v.gate.close()
	v.options.Client.CloseIdleConnections()
	return nil
}
