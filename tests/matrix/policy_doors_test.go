package matrix_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// wanted is one call, whatever the door.
type wanted struct {
	method string
	json   string // the request; of a stream one message a line
	key, confirm,
	credential string // an API key
}

func (w wanted) kind() kind {
	if w.method == "Label" {
		return unary
	}
	return kind(w.method)
}

func (w wanted) request() proto.Message {
	switch w.method {
	case "Label":
		return &probev1.LabelRequest{}
	case "Ask":
		return &probev1.AskRequest{}
	case "Watch":
		return &probev1.WatchRequest{}
	case "Collect":
		return &probev1.CollectRequest{}
	}
	return &probev1.ChatRequest{}
}

func (w wanted) reply() proto.Message {
	if w.method == "Label" {
		return &probev1.LabelResponse{}
	}
	return w.kind().reply()
}

// told is what the caller gets, in the same words from every door.
type told struct {
	text     string   // the texts of the replies
	replies  []string // as JSON
	code     string
	message  string
	reason   string
	metadata map[string]string
	details  []string // all as JSON, where the door has them
	replayed bool
	http     int
	after    string // Retry-After
	shown    string // the request and the answer as the door has them
}

func (a told) String() string { return strings.TrimSpace(a.code + " " + a.reason) }

// add adds a reply.
func (a *told) add(reply []byte) error {
	var fields struct{ Text string }
	if err := json.Unmarshal(reply, &fields); err != nil {
		return fmt.Errorf("reply %.300q: %w", reply, err)
	}
	if len(a.replies) > 0 {
		a.text += ","
	}
	a.text += fields.Text
	a.replies = append(a.replies, tidy(reply))
	return nil
}

// tidy is JSON without what protojson varies: its spaces, and the order of keys.
func tidy(b []byte) string {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return string(b)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return string(b)
	}
	return string(out)
}

func (o *once) call(ctx context.Context, t testing.TB, door string, w wanted) told {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, run.Patience)
	defer cancel()
	var a told
	var err error
	switch door {
	case "grpc":
		a, err = o.callGRPC(ctx, w)
	case "http":
		a, err = o.callHTTP(ctx, w)
	default:
		a, err = o.callMCP(ctx, strings.TrimPrefix(door, "mcp "), w)
	}
	if err != nil {
		t.Fatalf("%s, %+v: %v", door, w, err)
	}
	return a
}

func (o *once) callGRPC(ctx context.Context, w wanted) (a told, err error) {
	var b strings.Builder
	fmt.Fprintf(&b, "gRPC  probe.v1.Probe/%s %s\n", w.method, strings.ReplaceAll(w.json, "\n", " "))
	for _, h := range [][2]string{{"x-api-key", w.credential}, {"idempotency-key", w.key}, {"toolway-confirm", w.confirm}} {
		if h[1] != "" {
			fmt.Fprintf(&b, "      %s: %s\n", h[0], h[1])
			ctx = metadata.AppendToOutgoingContext(ctx, h[0], h[1])
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k := w.kind()
	s, err := o.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: k.streamsResponses(), ClientStreams: k.streamsRequests()}, "/probe.v1.Probe/"+w.method)
	if err != nil {
		return a, err
	}
	for line := range strings.SplitSeq(w.json, "\n") {
		in := w.request()
		if err := protojson.Unmarshal([]byte(line), in); err != nil {
			return a, err
		}
		if err := s.SendMsg(in); err != nil && !errors.Is(err, io.EOF) {
			return a, err
		}
	}
	if err := s.CloseSend(); err != nil {
		return a, err
	}
	for err == nil {
		out := w.reply()
		if err = s.RecvMsg(out); err == nil {
			raw, _ := protojson.Marshal(out) // of strings and numbers
			if err := a.add(raw); err != nil {
				return a, err
			}
			if !k.streamsResponses() {
				break
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	a.status(status.Convert(err))
	if err == nil {
		fmt.Fprintf(&b, "   → OK %s\n", strings.Join(a.replies, " "))
	} else {
		fmt.Fprintf(&b, "   → %s: %s\n", a.code, a.message)
	}
	for _, d := range a.details {
		fmt.Fprintf(&b, "      %s\n", d)
	}
	header, _ := s.Header()
	for _, h := range []string{"toolway-replayed", "toolway-cache", "toolway-stale"} {
		if v := header.Get(h); len(v) > 0 {
			fmt.Fprintf(&b, "      %s: %s\n", h, v[0])
		}
	}
	a.replayed, a.shown = len(header.Get("toolway-replayed")) > 0, b.String()
	return a, nil
}

// status reads a gRPC status.
func (a *told) status(st *status.Status) {
	a.code, a.message = code.Code(st.Code()).String(), st.Message()
	for i, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			a.reason, a.metadata = info.GetReason(), info.GetMetadata()
		}
		raw, err := protojson.Marshal(st.Proto().GetDetails()[i])
		if err != nil {
			raw = []byte(err.Error())
		}
		a.details = append(a.details, tidy(raw))
	}
}

// statusJSON reads a google.rpc.Status as JSON.
func (a *told) statusJSON(body []byte) error {
	st := status.New(0, "").Proto()
	if err := protojson.Unmarshal(body, st); err != nil {
		return fmt.Errorf("error %.300q: %w", body, err)
	}
	a.status(status.FromProto(st))
	return nil
}

func (o *once) callHTTP(ctx context.Context, w wanted) (a told, err error) {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP  POST /probe.v1.Probe/%s %s\n", w.method, strings.ReplaceAll(w.json, "\n", " "))
	header := http.Header{"Content-Type": {"application/json"}}
	if w.kind().streamsRequests() {
		header.Set("Content-Type", "application/x-ndjson")
	}
	if w.key != "" {
		w.key = `"` + w.key + `"` // as the draft has it
	}
	for _, h := range [][2]string{{"X-Api-Key", w.credential}, {"Idempotency-Key", w.key}, {"Toolway-Confirm", w.confirm}} {
		if h[1] != "" {
			fmt.Fprintf(&b, "      %s: %s\n", h[0], h[1])
			header.Set(h[0], h[1])
		}
	}
	res, body, err := o.post(ctx, "/probe.v1.Probe/"+w.method, w.json, header)
	if err != nil {
		return a, err
	}
	a.code, a.http, a.after, a.replayed = "OK", res.StatusCode, res.Header.Get("Retry-After"), res.Header.Get("Idempotent-Replayed") == "true"
	fmt.Fprintf(&b, "   → %s\n", res.Status)
	for _, h := range []string{"WWW-Authenticate", "Idempotent-Replayed", "Toolway-Cache", "Toolway-Stale", "Cache-Control", "Retry-After"} {
		if v := res.Header.Get(h); v != "" && (h != "Cache-Control" || v != "no-store") {
			fmt.Fprintf(&b, "      %s: %s\n", h, v)
		}
	}
	for line := range bytes.Lines(body) {
		fmt.Fprintf(&b, "      %s\n", tidy(line))
		var last map[string]json.RawMessage
		if err := json.Unmarshal(line, &last); err != nil {
			return a, fmt.Errorf("%s: %w", body, err)
		}
		switch {
		case res.StatusCode != http.StatusOK:
			err = a.statusJSON(line)
		case last["error"] != nil:
			err = a.statusJSON(last["error"])
		default:
			err = a.add(line)
		}
		if err != nil {
			return a, err
		}
	}
	a.shown = b.String()
	return a, nil
}

// post makes a request at the HTTP listener and reads the answer.
func (o *once) post(ctx context.Context, path, body string, header http.Header) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL(path), strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return res, raw, err
}

// callMCP calls a tool without a session, in one of the protocol's eras.
func (o *once) callMCP(ctx context.Context, version string, w wanted) (a told, err error) {
	tool := "probe_" + strings.ToLower(w.method)
	arguments := w.json
	if w.kind().streamsRequests() {
		arguments = `{"messages":[` + strings.ReplaceAll(w.json, "\n", ",") + `]}`
	}
	params, meta := map[string]any{"name": tool, "arguments": json.RawMessage(arguments)}, map[string]any{}
	for _, m := range [][2]string{{"io.toolway/idempotency-key", w.key}, {"io.toolway/confirm", w.confirm}} {
		if m[1] != "" {
			meta[m[0]] = m[1]
		}
	}
	if len(meta) > 0 {
		params["_meta"] = meta
	}
	sent, err := json.Marshal(params)
	if err != nil {
		return a, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "MCP   tools/call %s\n", sent)
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {version}}
	if w.credential != "" {
		fmt.Fprintf(&b, "      X-Api-Key: %s\n", w.credential)
		header.Set("X-Api-Key", w.credential)
	}
	if version >= agent.V20260728 {
		header.Set("Mcp-Method", "tools/call")
		header.Set("Mcp-Name", tool)
		meta = maps.Clone(meta)
		meta["io.modelcontextprotocol/protocolVersion"], meta["io.modelcontextprotocol/clientCapabilities"] = version, map[string]any{}
		params["_meta"] = meta
	}
	envelope, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
	if err != nil {
		return a, err
	}
	res, raw, err := o.post(ctx, "/mcp", string(envelope), header)
	if err != nil {
		return a, err
	}
	if res.StatusCode != http.StatusOK {
		fmt.Fprintf(&b, "   → %s\n", res.Status)
		if v := res.Header.Get("WWW-Authenticate"); v != "" {
			fmt.Fprintf(&b, "      WWW-Authenticate: %s\n", v)
		}
	}
	if _, event, ok := bytes.Cut(raw, []byte("data: ")); ok { // the one event of a stream
		raw = event
	}
	shown, err := a.readMCP(raw)
	if err != nil {
		return a, fmt.Errorf("%s %s: %w", res.Status, raw, err)
	}
	a.shown = b.String() + shown
	return a, nil
}

// failure is a status as MCP has it.
type failure struct {
	Code, Message, Reason, RetryDelay string
	Metadata                          map[string]string
}

// readMCP reads a response, and returns what of it is shown.
func (a *told) readMCP(raw []byte) (shown string, err error) {
	var m struct {
		Result struct {
			Content           []struct{ Text string }
			StructuredContent json.RawMessage
			IsError           bool
			Meta              map[string]json.RawMessage `json:"_meta"`
		}
		Error *struct {
			Data json.RawMessage
		}
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return "", err
	}
	var content struct {
		Items []json.RawMessage
		Error failure
	}
	if m.Error != nil {
		var whole struct{ Error json.RawMessage }
		if err := json.Unmarshal(raw, &whole); err != nil {
			return "", err
		}
		if err := json.Unmarshal(m.Error.Data, &content.Error); err != nil {
			return "", err
		}
		a.fail(content.Error)
		return fmt.Sprintf("   → error %s\n", tidy(whole.Error)), nil
	}
	r := m.Result
	if err := json.Unmarshal(r.StructuredContent, &content); err != nil {
		return "", err
	}
	shown = fmt.Sprintf("   → isError %v %s\n", r.IsError, tidy(r.StructuredContent))
	for _, k := range slices.Sorted(maps.Keys(r.Meta)) {
		if strings.HasPrefix(k, "io.toolway/") && k != "io.toolway/age" && k != "io.toolway/call-id" {
			shown += fmt.Sprintf("      _meta %s: %s\n", k, r.Meta[k])
		}
	}
	a.code, a.replayed = "OK", string(r.Meta["io.toolway/replayed"]) == "true"
	for _, item := range content.Items {
		if err := a.add(item); err != nil {
			return "", err
		}
	}
	switch {
	case r.IsError:
		a.fail(content.Error)
	case !bytes.HasPrefix(r.StructuredContent, []byte(`{"items":`)):
		err = a.add(r.StructuredContent)
	}
	return shown, err
}

func (a *told) fail(f failure) {
	a.code, a.message, a.reason, a.metadata = f.Code, f.Message, f.Reason, f.Metadata
}
