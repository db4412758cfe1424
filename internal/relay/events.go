package relay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// events reads server-sent events (WHATWG HTML, "Interpreting an event stream"), as far as MCP uses them: id and data.
type events struct {
	scanner *bufio.Scanner
	lastID  string
}

func newEvents(r io.Reader, maxBytes int) *events {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxBytes)
	return &events{scanner: s}
}

// next returns the data of the next event that has some. The error is io.EOF at the end.
func (e *events) next() ([]byte, error) {
	var data []byte
	has := false
	for e.scanner.Scan() {
		line := bytes.TrimSuffix(e.scanner.Bytes(), []byte("\r"))
		if len(line) == 0 {
			if has && len(data) > 0 {
				return data, nil
			}
			data, has = nil, false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if has {
				data = append(data, '\n')
			}
			data, has = append(data, value...), true
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.lastID = string(value)
			}
		}
	}
	if err := e.scanner.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

// stream passes on what comes on the stream that answers m, and returns the answer. A stream that breaks before is resumed if its events have
// ids, and begun again if m only reads.
func (r *Relay) stream(ctx context.Context, m *message, resp *http.Response) ([]byte, *unanswered) {
	header := resp.Header
	e := newEvents(resp.Body, r.conf.MaxMessageBytes)
	delays := newDelays()
	for {
		answer, err := r.follow(e, m, header)
		if answer != nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			return nil, &unanswered{text: "the relay was stopped before the mesh answered"}
		}
		if e.lastID == "" || m.modern() {
			return nil, m.outcome(fmt.Sprintf("the mesh's stream broke: %v", err))
		}
		pause(ctx, delays.NextBackOff())
		again, status, err := r.get(ctx, e.lastID)
		switch {
		case err != nil:
			r.conf.Logger.Warn("a broken stream was not resumed; trying again", "method", m.Method, "error", err)
			continue
		case status != http.StatusOK:
			return nil, m.outcome("the mesh does not resume a broken stream")
		}
		defer again.Close()
		e = &events{scanner: newEvents(again, r.conf.MaxMessageBytes).scanner, lastID: e.lastID}
	}
}

// follow passes on messages until the answer to m comes.
func (r *Relay) follow(e *events, m *message, header http.Header) ([]byte, error) {
	for {
		data, err := e.next()
		if err != nil {
			return nil, err
		}
		if answer, ok := answers(data, m); ok {
			if m.Method == "initialize" {
				answer = r.initialized(m, header, answer)
			}
			return answer, nil
		}
		told, err := parse(bytes.TrimSpace(data))
		if err != nil || !told.valid() {
			r.conf.Logger.Warn("something that is no message came on the mesh's stream", "method", m.Method)
			continue
		}
		if told.Method == "notifications/subscriptions/acknowledged" {
			if m.acknowledged { // the host has had it; what changed meanwhile it has not heard
				r.missed(m, told.Params.Notifications)
				continue
			}
			m.acknowledged = true
		}
		r.write(data)
	}
}

// missed tells a host whose subscription was interrupted of everything that it listens for: it may have changed.
func (r *Relay) missed(m *message, on notifications) {
	meta := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID) + `}`
	for _, list := range []struct {
		name string
		on   bool
	}{{"tools", on.Tools}, {"prompts", on.Prompts}, {"resources", on.Resources}} {
		if list.on {
			r.write([]byte(`{"jsonrpc":"2.0","method":"notifications/` + list.name + `/list_changed","params":{` + meta + `}}`))
		}
	}
	for _, uri := range on.Updates {
		quoted, _ := json.Marshal(uri) // a string can always be encoded
		r.write([]byte(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{` + meta + `,"uri":` + string(quoted) + `}}`))
	}
}

// get opens the stream of the session on which the mesh speaks unasked, or resumes a broken one after the event of the id.
func (r *Relay) get(ctx context.Context, lastID string) (io.ReadCloser, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.conf.URL, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	r.session.headers(req.Header, "")
	if err := r.authorise(req); err != nil {
		return nil, 0, err
	}
	resp, err := r.conf.Client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, resp.StatusCode, nil
	}
	return resp.Body, resp.StatusCode, nil
}
