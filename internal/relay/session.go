package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// session is what a host of a version before 2026-07-28 and the mesh have agreed on. The mesh may forget it; then it is made again from the
// host's own initialize, and the host does not notice.
type session struct {
	mu          sync.Mutex
	id, version string
	generation  int
	initialize  *message
}

func (s *session) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id != ""
}

// headers sets what older versions want on every request after initialize, and returns the session's generation.
func (s *session) headers(h http.Header, method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if method == "initialize" {
		return s.generation
	}
	if s.id != "" {
		h.Set("Mcp-Session-Id", s.id)
	}
	if s.version != "" {
		h.Set("Mcp-Protocol-Version", s.version)
	}
	return s.generation
}

// begin notes what the mesh answered to initialize.
func (s *session) begin(m *message, header http.Header, result []byte) {
	var r struct {
		Result struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"result"`
	}
	_ = json.Unmarshal(result, &r) // without a version there is no header, and the mesh says what it thinks of that
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.version, s.initialize = header.Get("Mcp-Session-Id"), r.Result.ProtocolVersion, m
	s.generation++
}

// initialized notes the session and has the mesh's notices passed on from now on. Without a session there is no stream for them; where the mesh
// speaks 2026-07-28 too, the relay listens that way, and tells the host that it will hear of changes.
func (r *Relay) initialized(m *message, header http.Header, answer []byte) []byte {
	r.session.begin(m, header, answer)
	var reply map[string]json.RawMessage
	var result, capabilities map[string]json.RawMessage
	if json.Unmarshal(answer, &reply) != nil || json.Unmarshal(reply["result"], &result) != nil || json.Unmarshal(result["capabilities"], &capabilities) != nil {
		return answer
	}
	wanted := map[string]bool{}
	for _, list := range []string{"tools", "prompts", "resources"} {
		var c struct {
			ListChanged bool `json:"listChanged"`
		}
		if json.Unmarshal(capabilities[list], &c) == nil && capabilities[list] != nil {
			wanted[list] = !c.ListChanged
			if c.ListChanged { // there is a stream for it
				r.running.Go(r.hear)
				return answer
			}
		}
	}
	honoured := r.listen(wanted)
	for list, yes := range honoured {
		if !yes {
			continue
		}
		var c map[string]json.RawMessage
		if json.Unmarshal(capabilities[list], &c) != nil || c == nil {
			c = map[string]json.RawMessage{}
		}
		c["listChanged"] = json.RawMessage("true")
		capabilities[list], _ = json.Marshal(c) // raw messages that have been decoded can be encoded
	}
	if len(honoured) == 0 {
		return answer
	}
	result["capabilities"], _ = json.Marshal(capabilities)
	reply["result"], _ = json.Marshal(result)
	out, err := json.Marshal(reply)
	if err != nil {
		return answer
	}
	return out
}

// hear passes on what the mesh says unasked on the stream of a session, until the relay ends.
func (r *Relay) hear() {
	ctx, lastID := r.ctx, ""
	delays := newDelays()
	for ctx.Err() == nil {
		body, status, err := r.get(ctx, lastID)
		switch {
		case err == nil && status == http.StatusOK:
			delays.Reset()
			e := newEvents(body, r.conf.MaxMessageBytes)
			for data, err := e.next(); err == nil; data, err = e.next() {
				if told, err := parse(bytes.TrimSpace(data)); err == nil && told.valid() {
					r.write(data)
				}
			}
			body.Close()
			lastID = e.lastID
		case err == nil && status == http.StatusMethodNotAllowed:
			return
		case err == nil: // a lost session is made again by the next request
			lastID = ""
		}
		pause(ctx, delays.NextBackOff())
	}
}

const (
	listenID       = "toolway-relay"
	listenVersion  = "2026-07-28"
	listenPatience = 3 * time.Second
)

// listen opens a subscription for the lists that the host would not hear of otherwise, and returns those that the mesh honours, if it answers
// soon.
func (r *Relay) listen(wanted map[string]bool) map[string]bool {
	raw := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{}},"notifications":{"toolsListChanged":%t,"promptsListChanged":%t,"resourcesListChanged":%t}}}`,
		listenID, listenVersion, wanted["tools"], wanted["prompts"], wanted["resources"])
	m, err := parse([]byte(raw))
	if err != nil { // it is our own
		return nil
	}
	acknowledged := make(chan map[string]bool, 1)
	r.running.Go(func() {
		delays := newDelays()
		for first := true; r.ctx.Err() == nil; first = false {
			if !r.listenOnce(&m, first, acknowledged) {
				return
			}
			pause(r.ctx, delays.NextBackOff())
		}
	})
	t := time.NewTimer(listenPatience)
	defer t.Stop()
	select {
	case honoured := <-acknowledged:
		return honoured
	case <-t.C:
		return nil
	case <-r.ctx.Done():
		return nil
	}
}

// listenOnce listens until the stream breaks, and says whether it is worth another try: not where the mesh does not know subscriptions.
func (r *Relay) listenOnce(m *message, first bool, acknowledged chan<- map[string]bool) (again bool) {
	if first {
		defer func() {
			select {
			case acknowledged <- nil:
			default:
			}
		}()
	}
	_, resp, err := r.post(r.ctx, m)
	if err != nil {
		return !first
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return !first && resp.StatusCode >= http.StatusInternalServerError
	}
	e := newEvents(resp.Body, r.conf.MaxMessageBytes)
	for {
		data, err := e.next()
		if err != nil {
			return r.ctx.Err() == nil
		}
		var n struct {
			Method string `json:"method"`
			Error  json.RawMessage
			Params struct {
				Notifications notifications `json:"notifications"`
			} `json:"params"`
		}
		if json.Unmarshal(data, &n) != nil || n.Error != nil {
			return false
		}
		switch n.Method {
		case "notifications/subscriptions/acknowledged":
			on := n.Params.Notifications
			lists := map[string]bool{"tools": on.Tools, "prompts": on.Prompts, "resources": on.Resources}
			if first {
				acknowledged <- lists
				continue
			}
			for list, yes := range lists { // what changed meanwhile was not heard
				if yes {
					r.tellChanged(list)
				}
			}
		case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
			r.write([]byte(`{"jsonrpc":"2.0","method":"` + n.Method + `"}`))
		}
	}
}

func (r *Relay) tellChanged(list string) {
	r.write([]byte(`{"jsonrpc":"2.0","method":"notifications/` + list + `/list_changed"}`))
}

// renew makes the session again that the mesh has lost, unless somebody has done so since the request that noticed it.
func (r *Relay) renew(ctx context.Context, generation int) *unanswered {
	r.renewing.Lock()
	defer r.renewing.Unlock()
	r.session.mu.Lock()
	now, initialize := r.session.generation, r.session.initialize
	r.session.mu.Unlock()
	if now != generation {
		return &unanswered{text: "the session was made again", again: true}
	}
	lost := &unanswered{text: "the mesh has lost the session, and does not begin another; restart the connection"}
	_, resp, err := r.post(ctx, initialize)
	if err != nil {
		return &unanswered{text: "the mesh has lost the session, and cannot be reached: " + reason(err), again: notSent(err)}
	}
	defer resp.Body.Close()
	var answer []byte
	if e := newEvents(resp.Body, r.conf.MaxMessageBytes); resp.Header.Get("Content-Type") == "text/event-stream" {
		answer, err = e.next()
	} else {
		answer, err = io.ReadAll(io.LimitReader(resp.Body, int64(r.conf.MaxMessageBytes)))
	}
	answer, ok := answers(answer, initialize)
	if err != nil || !ok || resp.StatusCode != http.StatusOK {
		return lost
	}
	r.session.begin(initialize, resp.Header, answer)
	r.notify(ctx, message{raw: []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), Method: "notifications/initialized"})
	r.conf.Logger.Info("the mesh had lost the session; it was made again")
	return &unanswered{text: "the session was made again", again: true}
}

// endSession tells the mesh that the host has gone.
func (r *Relay) endSession() {
	if !r.session.known() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, r.conf.URL, nil)
	if err != nil {
		return
	}
	r.session.headers(req.Header, "")
	if r.authorise(req) != nil {
		return
	}
	if resp, err := r.conf.Client.Do(req); err == nil {
		resp.Body.Close()
	}
}
