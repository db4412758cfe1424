package matrix_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
)

// kind is a call kind, by the probe method that has it.
type kind string

const (
	unary        kind = "Ask"
	serverStream kind = "Watch"
	clientStream kind = "Collect"
	bidi         kind = "Chat"
)

var kinds = []kind{unary, serverStream, clientStream, bidi}

func (k kind) streamsRequests() bool  { return k == clientStream || k == bidi }
func (k kind) streamsResponses() bool { return k == serverStream || k == bidi }

// ask is what a call sends. A kind that streams requests sends the texts one by one; the others join them.
type ask struct {
	id      string
	texts   []string
	plan    *probev1.Plan
	unknown []byte // fields that the contract does not know; only doors that carry wire bytes can send them
	timeout time.Duration
}

func (a ask) messages(k kind) []proto.Message {
	var ms []proto.Message
	texts := a.texts
	if !k.streamsRequests() {
		texts = []string{strings.Join(a.texts, ",")}
	}
	for _, text := range texts {
		var m proto.Message
		switch k {
		case unary:
			m = &probev1.AskRequest{Id: a.id, Text: text, Plan: a.plan, Number: 1<<62 + 1}
		case serverStream:
			m = &probev1.WatchRequest{Id: a.id, Text: text, Plan: a.plan}
		case clientStream:
			m = &probev1.CollectRequest{Id: a.id, Text: text, Plan: a.plan}
		case bidi:
			m = &probev1.ChatRequest{Id: a.id, Text: text, Plan: a.plan}
		}
		m.ProtoReflect().SetUnknown(a.unknown)
		ms = append(ms, m)
	}
	return ms
}

func (k kind) reply() proto.Message {
	switch k {
	case unary:
		return &probev1.AskResponse{}
	case serverStream:
		return &probev1.WatchResponse{}
	case clientStream:
		return &probev1.CollectResponse{}
	}
	return &probev1.ChatResponse{}
}

// outcome is what a caller got, whatever the door.
type outcome struct {
	replies []proto.Message
	code    codes.Code
	message string
	reason  string   // of ErrorInfo
	fields  []string // of BadRequest
	retry   time.Duration
	http    int // status of the HTTP door, else 0
}

func (o outcome) texts() []string {
	var ts []string
	for _, r := range o.replies {
		ts = append(ts, r.(interface{ GetText() string }).GetText())
	}
	return ts
}

func (o *outcome) fail(st *status.Status) {
	o.code, o.message = st.Code(), st.Message()
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			o.reason = d.GetReason()
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				o.fields = append(o.fields, v.GetField())
			}
		case *errdetails.RetryInfo:
			o.retry = d.GetRetryDelay().AsDuration()
		}
	}
}

// door is a way to the probe.
type door struct {
	name string
	// wire says that messages pass as wire bytes.
	wire bool
	// deadline says that a caller can bring a deadline.
	deadline bool
	// stream is how large a message of a stream may be.
	stream int
	call   func(ctx context.Context, k kind, a ask) (outcome, error)
}

func grpcDoor(name string, cc *grpc.ClientConn) door {
	return door{name: name, wire: true, deadline: true, stream: 16 << 20, call: func(ctx context.Context, k kind, a ask) (outcome, error) {
		if a.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.timeout)
			defer cancel()
		}
		desc := &grpc.StreamDesc{ClientStreams: k.streamsRequests(), ServerStreams: k.streamsResponses()}
		var o outcome
		fail := func(err error) (outcome, error) {
			o.fail(status.Convert(err))
			return o, nil
		}
		s, err := cc.NewStream(ctx, desc, "/probe.v1.Probe/"+string(k))
		if err != nil {
			return fail(err)
		}
		for _, m := range a.messages(k) {
			// io.EOF says that the call has ended; RecvMsg says how.
			if err := s.SendMsg(m); err != nil && !errors.Is(err, io.EOF) {
				return fail(err)
			}
		}
		if err := s.CloseSend(); err != nil {
			return fail(err)
		}
		for {
			r := k.reply()
			switch err := s.RecvMsg(r); {
			case errors.Is(err, io.EOF):
				return o, nil
			case err != nil:
				return fail(err)
			}
			o.replies = append(o.replies, r)
			if !k.streamsResponses() {
				return o, nil
			}
		}
	}}
}

func httpDoor(t *testing.T, base string) door {
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return door{name: "http", deadline: true, stream: 16 << 20, call: func(ctx context.Context, k kind, a ask) (outcome, error) {
		var body bytes.Buffer
		for _, m := range a.messages(k) {
			b, err := protojson.Marshal(m)
			if err != nil {
				return outcome{}, err
			}
			body.Write(b)
			body.WriteByte('\n')
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/probe.v1.Probe/"+string(k), &body)
		if err != nil {
			return outcome{}, err
		}
		req.Header.Set("Content-Type", "application/json")
		if k.streamsRequests() {
			req.Header.Set("Content-Type", "application/x-ndjson")
		}
		if a.timeout > 0 {
			req.Header.Set("Grpc-Timeout", fmt.Sprintf("%dm", a.timeout.Milliseconds()))
		}
		resp, err := client.Do(req)
		if err != nil {
			return outcome{}, err
		}
		defer resp.Body.Close()
		o := outcome{http: resp.StatusCode}
		typ, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if resp.StatusCode != http.StatusOK || !k.streamsResponses() {
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				return o, err
			}
			if typ != "application/json" {
				return o, fmt.Errorf("answer is %q: %s", typ, b)
			}
			if resp.StatusCode != http.StatusOK {
				return o, o.failJSON(b)
			}
			return o, o.addJSON(k, b)
		}
		if typ != "application/x-ndjson" {
			return o, fmt.Errorf("stream is %q, want application/x-ndjson", typ)
		}
		return o, o.readLines(k, resp.Body)
	}}
}

func (o *outcome) readLines(k kind, r io.Reader) error {
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var last map[string]json.RawMessage
			if err := json.Unmarshal(line, &last); err != nil {
				return fmt.Errorf("line %.200q: %w", line, err)
			}
			if e := last["error"]; e != nil {
				if err := o.failJSON(e); err != nil {
					return err
				}
			} else if err := o.addJSON(k, line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (o *outcome) addJSON(k kind, b []byte) error {
	r := k.reply()
	if err := protojson.Unmarshal(b, r); err != nil {
		return fmt.Errorf("reply %.200q: %w", b, err)
	}
	o.replies = append(o.replies, r)
	return nil
}

// failJSON reads a google.rpc.Status in ProtoJSON.
func (o *outcome) failJSON(b []byte) error {
	st := status.New(codes.OK, "").Proto()
	if err := protojson.Unmarshal(b, st); err != nil {
		return fmt.Errorf("error %.200q: %w", b, err)
	}
	o.fail(status.FromProto(st))
	return nil
}

func mcpDoor(name string, connect func(ctx context.Context) (agent.Requester, error)) door {
	return door{name: name, stream: 1 << 20, call: func(ctx context.Context, k kind, a ask) (outcome, error) {
		client, err := connect(ctx)
		if err != nil {
			return outcome{}, err
		}
		var raw []json.RawMessage
		for _, m := range a.messages(k) {
			b, err := protojson.Marshal(m)
			if err != nil {
				return outcome{}, err
			}
			raw = append(raw, b)
		}
		var arguments any
		if k.streamsRequests() {
			arguments = map[string]any{"messages": raw}
		} else {
			arguments = raw[0]
		}
		res, err := agent.Call(ctx, client, "probe_"+strings.ToLower(string(k)), arguments, nil)
		if err != nil {
			return outcome{}, err
		}
		var o outcome
		return o, o.readResult(k, res)
	}}
}

// readResult reads the structured content of a tool result, and holds the text against it.
func (o *outcome) readResult(k kind, res *agent.Result) error {
	var content struct {
		Error *struct {
			Code            string `json:"code"`
			Message         string `json:"message"`
			Reason          string `json:"reason"`
			FieldViolations []struct {
				Field string `json:"field"`
			} `json:"fieldViolations"`
			RetryDelay string `json:"retryDelay"`
			Hint       string `json:"hint"`
		} `json:"error"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(res.StructuredContent, &content); err != nil {
		return fmt.Errorf("structuredContent %.200q: %w", res.StructuredContent, err)
	}
	if len(res.Content) == 0 || res.Text() == "" {
		return errors.New("result without text")
	}
	for _, item := range content.Items {
		if err := o.addJSON(k, item); err != nil {
			return err
		}
	}
	if res.IsError != (content.Error != nil) {
		return fmt.Errorf("isError is %v, structuredContent is %.200s", res.IsError, res.StructuredContent)
	}
	if e := content.Error; e != nil {
		if err := o.code.UnmarshalJSON([]byte(`"` + e.Code + `"`)); err != nil {
			return err
		}
		o.message, o.reason = e.Message, e.Reason
		for _, v := range e.FieldViolations {
			o.fields = append(o.fields, v.Field)
		}
		if e.RetryDelay != "" {
			var err error
			if o.retry, err = time.ParseDuration(e.RetryDelay); err != nil {
				return err
			}
		}
		if e.Hint == "" {
			return errors.New("error without a hint")
		}
		return nil
	}
	if !k.streamsResponses() {
		if err := o.addJSON(k, res.StructuredContent); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(res.Content, func(c struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}) bool {
		return equalJSON([]byte(c.Text), res.StructuredContent)
	}) {
		return fmt.Errorf("no text says what structuredContent says: %.300q", res.Text())
	}
	return nil
}

func equalJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}
