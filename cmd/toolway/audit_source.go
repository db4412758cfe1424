package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/audit"
)

// auditFlags say where records of calls are read: from a mesh that runs, or from its audit file.
type auditFlags struct {
	mesh, file, tokenFile string
}

func (f *auditFlags) register(cmd *cobra.Command) {
	f.registerMesh(cmd)
	cmd.Flags().StringVar(&f.file, "file", "", "audit `FILE` to read in place of a mesh; - reads standard input")
	cmd.MarkFlagsMutuallyExclusive("mesh", "file")
}

// registerMesh adds the flags for those who read from a mesh alone.
func (f *auditFlags) registerMesh(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.mesh, "mesh", "http://127.0.0.1:8080", "`URL` of the HTTP door of the mesh")
	fs.StringVar(&f.tokenFile, "token-file", "", "`FILE` with a bearer token that has the scope toolway:audit; else TOOLWAY_TOKEN or TOOLWAY_API_KEY")
}

// get asks the mesh for a resource of the audit.
func (f *auditFlags) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	target := strings.TrimSuffix(f.mesh, "/") + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, fmt.Errorf("--mesh %q: want a URL such as http://127.0.0.1:8080: %w", f.mesh, err)
	}
	if err := credential(f.tokenFile)(req.Header); err != nil {
		return nil, err
	}
	if req.URL.Scheme == "http" && req.Header.Get("Authorization")+req.Header.Get("X-API-Key") != "" && !onThisMachine(req.URL.Hostname()) {
		return nil, errInTheClear
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // a key is not sent on
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the mesh: %w; say where it is with --mesh, or read its audit file with --file", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("ask the mesh: %w", err)
	}
	if res.StatusCode == http.StatusOK {
		return body, nil
	}
	var st struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &st) != nil || st.Message == "" {
		return nil, fmt.Errorf("ask the mesh at %s: %s; is that the HTTP door of a mesh?", f.mesh, res.Status)
	}
	return nil, fmt.Errorf("%s (%s)", st.Message, res.Status)
}

// call returns the record of one call.
func (f *auditFlags) call(ctx context.Context, id string) (*toolwayv1.AuditRecord, error) {
	if f.file == "" {
		body, err := f.get(ctx, "/v1/audit/calls/"+url.PathEscape(id), nil)
		if err != nil {
			return nil, err
		}
		var answer struct {
			Record json.RawMessage `json:"record"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return nil, fmt.Errorf("the mesh's answer: %w", err)
		}
		return audit.ParseJSON(answer.Record)
	}
	var found *toolwayv1.AuditRecord
	err := f.scan(func(r *toolwayv1.AuditRecord) {
		if r.GetCallId() == id {
			found = r
		}
	})
	if err == nil && found == nil {
		err = fmt.Errorf("no call %q is in %s; older ones are in the files that it was rotated to", id, f.file)
	}
	return found, err
}

// scan gives every record of the file, in its order. Lines that are no records are passed over: a crash may have cut one short.
func (f *auditFlags) scan(each func(*toolwayv1.AuditRecord)) error {
	var in io.Reader = os.Stdin
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	records, bad := 0, error(nil)
	for r, err := range audit.Read(in) {
		if err != nil {
			bad = err
			continue
		}
		records++
		each(r)
	}
	if records == 0 && bad != nil {
		return fmt.Errorf("%s is no audit file: %w", f.file, bad)
	}
	return nil
}

// list returns up to limit records that q wants, the newest first.
func (f *auditFlags) list(ctx context.Context, q audit.Query, limit int) ([]*toolwayv1.AuditRecord, error) {
	if f.file != "" {
		var kept []*toolwayv1.AuditRecord
		err := f.scan(func(r *toolwayv1.AuditRecord) {
			if q.Match(r) {
				if kept = append(kept, r); len(kept) >= 2*limit {
					kept = append(kept[:0], kept[len(kept)-limit:]...)
				}
			}
		})
		kept = kept[max(0, len(kept)-limit):]
		slices.Reverse(kept)
		return kept, err
	}
	var out []*toolwayv1.AuditRecord
	err := f.pages(ctx, q, limit, func(r *toolwayv1.AuditRecord) error {
		out = append(out, r)
		return nil
	})
	return out, err
}

// pages gives up to limit records of the mesh that q wants, the newest first, to each, or all if limit is 0.
func (f *auditFlags) pages(ctx context.Context, q audit.Query, limit int, each func(*toolwayv1.AuditRecord) error) error {
	query := url.Values{}
	for name, value := range map[string]string{"principal": q.Principal, "tenant": q.Tenant, "trace_id": q.TraceID, "tool": q.Tool} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if q.Outcome != toolwayv1.AuditRecord_OUTCOME_UNSPECIFIED {
		query.Set("outcome", q.Outcome.String())
	}
	for name, at := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !at.IsZero() {
			query.Set(name, timestamppb.New(at).AsTime().Format(time.RFC3339Nano))
		}
	}
	const page = 500
	for given := 0; ; {
		size := page
		if limit > 0 {
			size = min(page, limit-given)
		}
		query.Set("page_size", strconv.Itoa(size))
		body, err := f.get(ctx, "/v1/audit/calls", query)
		if err != nil {
			return err
		}
		var answer struct {
			Records []json.RawMessage `json:"records"`
			Next    string            `json:"nextPageToken"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return fmt.Errorf("the mesh's answer: %w", err)
		}
		for _, raw := range answer.Records {
			r, err := audit.ParseJSON(raw)
			if err != nil {
				return err
			}
			if err := each(r); err != nil {
				return err
			}
			given++
		}
		if answer.Next == "" || limit > 0 && given >= limit {
			return nil
		}
		query.Set("page_token", answer.Next)
	}
}

// follow gives the records that q wants and that come from now on, until ctx is done.
func (f *auditFlags) follow(ctx context.Context, q audit.Query, each func(*toolwayv1.AuditRecord) error) error {
	if f.file == "-" {
		return errors.New("standard input cannot be followed: pipe it into toolway audit list --file -")
	}
	if f.file != "" {
		return f.followFile(ctx, q, each)
	}
	seen := map[string]bool{}
	q.Since = time.Now()
	for wait(ctx) {
		records, err := f.list(ctx, q, 500)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		// A record comes when its call has ended: look back far enough not to miss one that was slow to be written.
		q.Since = time.Now().Add(-10 * time.Second)
		now := map[string]bool{}
		for _, r := range slices.Backward(records) {
			now[r.GetCallId()] = true
			if !seen[r.GetCallId()] {
				if err := each(r); err != nil {
					return err
				}
			}
		}
		seen = now
	}
	return nil
}

// wait waits for a moment; it says no if ctx is done.
func wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(500 * time.Millisecond):
		return true
	}
}

// followFile reads what is appended to the file, and goes on with its successor when it is rotated.
func (f *auditFlags) followFile(ctx context.Context, q audit.Query, each func(*toolwayv1.AuditRecord) error) error {
	file, err := os.Open(f.file)
	if err != nil {
		return err
	}
	defer func() { file.Close() }()
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	var rest []byte
	for wait(ctx) {
		more, err := io.ReadAll(file)
		if err != nil {
			return err
		}
		rest = append(rest, more...)
		for {
			line, after, whole := strings.Cut(string(rest), "\n")
			if !whole {
				break
			}
			rest = []byte(after)
			if r, err := audit.ParseJSON([]byte(line)); err == nil && q.Match(r) {
				if err := each(r); err != nil {
					return err
				}
			}
		}
		have, err := file.Stat()
		if err != nil {
			return err
		}
		if now, err := os.Stat(f.file); err == nil && len(more) == 0 && !os.SameFile(have, now) {
			next, err := os.Open(f.file)
			if err != nil {
				return err
			}
			file.Close()
			file, rest = next, nil
		}
	}
	return nil
}
