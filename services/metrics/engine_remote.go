package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// maxRemoteBytes bounds what is read of one answer.
const maxRemoteBytes = 32 << 20

// RemoteOptions configures [NewRemote]. The zero value works.
type RemoteOptions struct {
	// Transport makes the connections, with TLS as it is set up there. Default: Go's default one.
	Transport *http.Transport
	// TokenFile is a file with a bearer token, which is read for each request. Default: none. Over http, it is sent to this machine only.
	TokenFile string
	// Headers are added to each request, such as X-Scope-OrgID.
	Headers http.Header
	// Retention is how long the server keeps samples. Default (0): not known; old cursors are then not refused.
	Retention time.Duration
	// MaxBytes bounds one answer of the server. Default: 32 MiB.
	MaxBytes int64
}

// Remote is a server with Prometheus' HTTP API: Prometheus itself, or Thanos, Mimir, VictoriaMetrics and others that have it.
//
// It is plain net/http, since the official client reads answers of any size into memory, and answers with a dialect's own query errors must come
// through as they are.
type Remote struct {
	base    *url.URL
	client  *http.Client
	options RemoteOptions
	gate    *gate
}

// NewRemote returns an engine on the server at base, such as http://prometheus:9090. It makes no request yet.
func NewRemote(base string, options RemoteOptions) (*Remote, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, errors.New("the Prometheus URL cannot be read; use one like http://prometheus:9090")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the Prometheus URL %q is not http or https; use one like http://prometheus:9090", u.Redacted())
	}
	if secret := options.TokenFile != "" || u.User != nil; secret && u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil, fmt.Errorf("the Prometheus URL %q would carry a credential in the clear to another machine; use https", u.Redacted())
	}
	if options.MaxBytes == 0 {
		options.MaxBytes = maxRemoteBytes
	}
	transport := options.Transport
	if transport == nil {
		transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	return &Remote{base: u, options: options, gate: newGate(), client: &http.Client{
		Transport: transport,
		// A redirect would turn a POST into a GET, and may lead to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Instant implements [Engine].
func (r *Remote) Instant(ctx context.Context, query string, at time.Time) (*Answer, error) {
	return r.query(ctx, "query", query, url.Values{"time": {unix(at)}})
}

// Range implements [Engine].
func (r *Remote) Range(ctx context.Context, query string, grid Grid) (*Answer, error) {
	answer, err := r.query(ctx, "query_range", query, url.Values{
		"start": {unix(grid.Start)},
		"end":   {unix(grid.End)},
		"step":  {strconv.FormatFloat(grid.Step.Seconds(), 'f', -1, 64)},
	})
	if err == nil {
		answer.Matrix = false
	}
	return answer, err
}

func (r *Remote) query(ctx context.Context, path, query string, form url.Values) (*Answer, error) {
	form.Set("query", query)
	if deadline, ok := ctx.Deadline(); ok {
		// The server has its own limit, which it keeps if it is shorter.
		form.Set("timeout", strconv.FormatFloat(max(time.Until(deadline).Seconds(), 0.001), 'f', 3, 64))
	}
	var data remoteData
	said, err := r.post(ctx, path, query, form, &data)
	if err != nil {
		return nil, err
	}
	answer, err := data.answer()
	if err != nil {
		return nil, err
	}
	answer.Warnings = said
	return answer, nil
}

// Series implements [Engine].
func (r *Remote) Series(ctx context.Context, selector string, start, end time.Time) ([]labels.Labels, error) {
	var data []map[string]string
	if _, err := r.post(ctx, "series", selector, url.Values{"match[]": {selector}, "start": {unix(start)}, "end": {unix(end)}}, &data); err != nil {
		return nil, err
	}
	all := make([]labels.Labels, len(data))
	for i, m := range data {
		all[i] = labels.FromMap(m)
	}
	slices.SortFunc(all, labels.Compare)
	return all, nil
}

// Oldest implements [Engine].
func (r *Remote) Oldest() time.Time {
	if r.options.Retention == 0 {
		return time.Time{}
	}
	return time.Now().Add(-r.options.Retention)
}

// Close implements [Engine]. Connections that are kept open are closed too.
func (r *Remote) Close() error {
	r.gate.close()
	r.client.CloseIdleConnections()
	return nil
}

// post asks the server, and reads a good answer's data and what the server warns of. query is what errors are about.
func (r *Remote) post(ctx context.Context, path, query string, form url.Values, data any) (said []string, err error) {
	ctx, leave, err := r.gate.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base.JoinPath("api/v1", path).String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("make request to Prometheus: %w", err)
	}
	for name, values := range r.options.Headers {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if r.options.TokenFile != "" {
		token, err := os.ReadFile(r.options.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read Prometheus token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, lost(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, r.options.MaxBytes+1))
	if err != nil {
		return nil, lost(ctx, err)
	}
	if int64(len(body)) > r.options.MaxBytes {
		return nil, &TooLargeError{Text: fmt.Sprintf("the engine's answer has more than %d MiB", r.options.MaxBytes>>20)}
	}
	var answer struct {
		Status    string          `json:"status"`
		Data      json.RawMessage `json:"data"`
		ErrorType string          `json:"errorType"`
		Error     string          `json:"error"`
		Warnings  []string        `json:"warnings"`
		Infos     []string        `json:"infos"`
	}
	switch err := json.Unmarshal(body, &answer); {
	case err != nil, answer.Status != "success" && answer.Status != "error":
		return nil, refusedBy(resp, path, body)
	case answer.Status == "error":
		return nil, remoteError(resp, path, query, answer.ErrorType, answer.Error)
	}
	if err := json.Unmarshal(answer.Data, data); err != nil {
		return nil, fmt.Errorf("read Prometheus' answer to %s: %w", path, err)
	}
	return append(answer.Warnings, answer.Infos...), nil
}

// lost is the error of a request without a whole answer.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// refusedBy is the error for an answer that is not the API's: from something between, or from a server that is none.
func refusedBy(resp *http.Response, path string, body []byte) error {
	err := fmt.Errorf("prometheus answered %s to %s: %s", resp.Status, path, cut(string(bytes.TrimSpace(body)), 500))
	switch {
	case resp.StatusCode == http.StatusRequestEntityTooLarge, resp.StatusCode == http.StatusRequestURITooLong:
		return &TooLargeError{Text: "the engine answered " + resp.Status}
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode >= 500:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}

// place is how Prometheus says where a query does not parse: line and column, from 1.
var place = regexp.MustCompile(`(?s)^.*?(\d+):(\d+): (parse error: .*)$`)

// tooLarge is how engines say that a query is beyond their limits, which has no error type of its own.
var tooLarge = regexp.MustCompile(`(?i)too many (samples|series|points)|exceed|\bmax(imum)?\b.*\blimit`)

// remoteError turns the API's error into what an [Engine] returns.
func remoteError(resp *http.Response, path, query, kind, text string) error {
	switch kind {
	case "bad_data":
		if tooLarge.MatchString(text) && !place.MatchString(text) {
			return &TooLargeError{Text: text}
		}
		q := &QueryError{Text: strings.TrimPrefix(text, `invalid parameter "query": `), Position: -1}
		if m := place.FindStringSubmatch(text); m != nil {
			q.Text = strings.TrimPrefix(m[3], "parse error: ")
			q.Position = offset(query, m[1], m[2])
		}
		return q
	case "execution", "422":
		if tooLarge.MatchString(text) {
			return &TooLargeError{Text: text}
		}
		return &QueryError{Text: strings.TrimPrefix(text, "expanding series: "), Position: -1, Parsed: true}
	case "timeout":
		return context.DeadlineExceeded
	case "canceled", "unavailable", "too_many_requests":
		return fmt.Errorf("%w: prometheus answered %s to %s: %s", ErrUnreachable, resp.Status, path, text)
	}
	return refusedBy(resp, path, []byte(kind+": "+text))
}

// offset is the byte of a line and a column, or -1.
func offset(query, line, column string) int {
	l, err := strconv.Atoi(line)
	c, err2 := strconv.Atoi(column)
	if errors.Join(err, err2) != nil || l < 1 || c < 1 {
		return -1
	}
	at := 0
	for ; l > 1; l-- {
		i := strings.IndexByte(query[at:], '\n')
		if i < 0 {
			return -1
		}
		at += i + 1
	}
	if at += c - 1; at > len(query) {
		return -1
	}
	return at
}

// unix is a time as the API takes it.
func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
