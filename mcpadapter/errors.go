package mcpadapter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/transcode"
)

// toolError is a status as an agent reads it: the member "error" of a result with isError.
type toolError struct {
	Code            string            `json:"code"`
	Message         string            `json:"message"`
	Reason          string            `json:"reason,omitempty"`
	Domain          string            `json:"domain,omitempty"`
	Metadata        map[string]string `json:"metadata,omitempty"`
	FieldViolations []fieldViolation  `json:"fieldViolations,omitempty"`
	Preconditions   []violation       `json:"preconditions,omitempty"`
	Resource        *resource         `json:"resource,omitempty"`
	RetryDelay      string            `json:"retryDelay,omitempty"`
	Links           []link            `json:"links,omitempty"`
	// Details are the details of the status that none of the above can hold, in ProtoJSON.
	Details []json.RawMessage `json:"details,omitempty"`
	Hint    string            `json:"hint,omitempty"`
}

type fieldViolation struct {
	Field       string `json:"field"`
	Description string `json:"description,omitempty"`
	Reason      string `json:"reason,omitempty"`
}

type violation struct {
	Type        string `json:"type,omitempty"`
	Subject     string `json:"subject,omitempty"`
	Description string `json:"description,omitempty"`
}

type resource struct {
	Type        string `json:"type,omitempty"`
	Name        string `json:"name,omitempty"`
	Owner       string `json:"owner,omitempty"`
	Description string `json:"description,omitempty"`
}

type link struct {
	Description string `json:"description,omitempty"`
	URL         string `json:"url"`
}

// codeNames are the names of the codes as google.rpc.Code has them.
var codeNames = [...]string{
	codes.OK: "OK", codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED", codes.FailedPrecondition: "FAILED_PRECONDITION",
	codes.Aborted: "ABORTED", codes.OutOfRange: "OUT_OF_RANGE", codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL",
	codes.Unavailable: "UNAVAILABLE", codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
}

func codeName(c codes.Code) string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("CODE_%d", c)
}

// hints say what the caller does next, by code.
var hints = map[codes.Code]string{
	codes.Canceled:           "the call was cancelled; call again if the result is still wanted",
	codes.Unknown:            "the backend gave no reason; do not repeat the same call blindly",
	codes.InvalidArgument:    "mend the arguments and call again",
	codes.NotFound:           "check the name or id; list or search first to find one that exists",
	codes.AlreadyExists:      "it exists already; read it, or choose another name",
	codes.PermissionDenied:   "the caller may not do this; repeating the call does not help",
	codes.ResourceExhausted:  "a limit is reached; wait before calling again, or ask for less",
	codes.FailedPrecondition: "the state does not allow this yet; read the state and do what is missing first",
	codes.Aborted:            "somebody else changed it at the same time; read the current state and call again",
	codes.OutOfRange:         "the arguments go beyond what exists; read the valid range first",
	codes.Unimplemented:      "the backend does not offer this; use another tool",
	codes.Internal:           "a fault in the backend or the mesh, not in the arguments; report it if it stays",
	codes.DataLoss:           "data is damaged or lost; report it, do not repeat the call",
	codes.Unauthenticated:    "the credentials are missing or no longer valid; sign in again",
}

// describe returns what an agent is told about a failed call.
func describe(st *status.Status, c *call.Call) *toolError {
	e := &toolError{Code: codeName(st.Code()), Message: st.Message()}
	for _, d := range st.Proto().GetDetails() {
		e.add(d, c.Method)
	}
	for i := range e.FieldViolations {
		e.FieldViolations[i].Field = jsonPath(c.Method.Desc.Input(), e.FieldViolations[i].Field)
	}
	e.Hint = e.hint(st.Code(), c)
	if len(e.FieldViolations) > 0 && st.Code() == codes.InvalidArgument {
		e.Hint = or(e.ownHint(), "mend the fields named and call again")
	}
	return e
}

// describeCaller reads a status that is about who calls, when it is not known yet what.
func describeCaller(st *status.Status) *toolError {
	e := &toolError{Code: codeName(st.Code()), Message: st.Message()}
	for _, d := range st.Details() {
		if detail, ok := d.(proto.Message); ok {
			e.addStandard(detail)
		}
	}
	e.Hint = or(e.ownHint(), hints[st.Code()])
	return e
}

// hint says what to do next. Where the code leaves open whether anything happened, it depends on how far the call got and on whether
// the contract lets it be repeated. Of an error of the mesh's own, its own hint fits better than one for any such code.
func (e *toolError) hint(code codes.Code, c *call.Call) string {
	if at, field := e.Metadata["cursor"], e.Metadata["cursor_field"]; at != "" && field != "" && c.Method.Kind().Server {
		return fmt.Sprintf("the stream broke; the items up to cursor %q may be kept: call again with %s %q to go on behind them", at, jsonPath(c.Method.Desc.Input(), field), at)
	}
	own := e.ownHint()
	if code != codes.Unavailable && code != codes.DeadlineExceeded {
		return or(own, hints[code])
	}
	h := c.Method.Tool.Hints
	switch {
	case !c.Sent:
		own = strings.TrimPrefix(own, "nothing was done; ")
		if strings.Contains(own, "nothing was done") {
			return "the call did not reach the backend; " + own
		}
		return "the call did not reach the backend, so nothing was done; " + or(own, "try again in a moment")
	case h.ReadOnly || h.Idempotent:
		return "it is not known whether the call took effect; this tool may be called again with the same arguments"
	case own != "" && e.Reason == "OUTCOME_UNKNOWN":
		return own // it names what to look the state up with
	}
	return "it is not known whether the call took effect; look up the state before calling again"
}

// ownHint is the hint in the metadata of an error that the mesh itself found.
func (e *toolError) ownHint() string {
	if e.Domain != call.Domain {
		return ""
	}
	return e.Metadata["hint"]
}

// add takes over one detail of a status.
func (e *toolError) add(d *anypb.Any, m *catalog.Method) {
	detail, err := d.UnmarshalNew()
	if err == nil && e.addStandard(detail) {
		return
	}
	e.Details = append(e.Details, detailJSON(d, detail, m))
}

// addStandard takes over a google.rpc detail, and says whether it did.
func (e *toolError) addStandard(detail proto.Message) bool {
	switch d := detail.(type) {
	case *errdetails.ErrorInfo:
		if e.Reason != "" {
			return false
		}
		e.Reason, e.Domain, e.Metadata = d.GetReason(), d.GetDomain(), d.GetMetadata()
	case *errdetails.BadRequest:
		for _, v := range d.GetFieldViolations() {
			e.FieldViolations = append(e.FieldViolations, fieldViolation{Field: v.GetField(), Description: v.GetDescription(), Reason: v.GetReason()})
		}
	case *errdetails.PreconditionFailure:
		for _, v := range d.GetViolations() {
			e.Preconditions = append(e.Preconditions, violation{Type: v.GetType(), Subject: v.GetSubject(), Description: v.GetDescription()})
		}
	case *errdetails.ResourceInfo:
		if e.Resource != nil {
			return false
		}
		e.Resource = &resource{Type: d.GetResourceType(), Name: d.GetResourceName(), Owner: d.GetOwner(), Description: d.GetDescription()}
	case *errdetails.RetryInfo:
		e.RetryDelay = strconv.FormatFloat(d.GetRetryDelay().AsDuration().Seconds(), 'f', -1, 64) + "s" // as ProtoJSON has it
	case *errdetails.Help:
		for _, l := range d.GetLinks() {
			e.Links = append(e.Links, link{Description: l.GetDescription(), URL: l.GetUrl()})
		}
	case *errdetails.DebugInfo:
		// Stack traces are for the log, which observation has already written; a caller never gets one.
	default:
		return false
	}
	return true
}

// detailJSON returns any other detail, whose type only the backend may know: then its files say how to read it. If nobody can, it is the
// name of the type alone.
func detailJSON(d *anypb.Any, detail proto.Message, m *catalog.Method) json.RawMessage {
	body := backendJSON(d, m)
	if body == nil && detail != nil {
		if spaced, err := protojson.Marshal(detail); err == nil {
			var b bytes.Buffer
			if json.Compact(&b, spaced) == nil {
				body = b.Bytes()
			}
		}
	}
	out := appendString([]byte(`{"@type":`), cut(d.GetTypeUrl(), 200))
	if len(body) > 2 && body[0] == '{' {
		out = append(append(out, ','), body[1:len(body)-1]...)
	}
	return append(out, '}')
}

func backendJSON(d *anypb.Any, m *catalog.Method) []byte {
	if m.Backend == nil || m.Backend.Files == nil || !d.MessageName().IsValid() {
		return nil
	}
	found, err := m.Backend.Files.FindDescriptorByName(d.MessageName())
	if err != nil {
		return nil
	}
	md, ok := found.(protoreflect.MessageDescriptor)
	if !ok {
		return nil
	}
	body, err := m.Backend.Codecs.Message(md).AppendJSON(nil, d.GetValue(), transcode.WriteOptions{})
	if err != nil {
		return nil
	}
	return body
}

// plain takes from all texts what agents and people cannot see, but what changes how they read. A status is words, not data.
func (e *toolError) plain() {
	texts := []*string{&e.Message, &e.Reason, &e.Domain, &e.Hint}
	for i := range e.FieldViolations {
		v := &e.FieldViolations[i]
		texts = append(texts, &v.Field, &v.Description, &v.Reason)
	}
	for i := range e.Preconditions {
		v := &e.Preconditions[i]
		texts = append(texts, &v.Type, &v.Subject, &v.Description)
	}
	if r := e.Resource; r != nil {
		texts = append(texts, &r.Type, &r.Name, &r.Owner, &r.Description)
	}
	for i := range e.Links {
		texts = append(texts, &e.Links[i].Description, &e.Links[i].URL)
	}
	for _, s := range texts {
		*s = call.PlainText(*s)
	}
	if len(e.Metadata) > 0 {
		metadata := make(map[string]string, len(e.Metadata))
		for k, v := range e.Metadata {
			metadata[call.PlainText(k)] = call.PlainText(v)
		}
		e.Metadata = metadata
	}
	for i, d := range e.Details {
		e.Details[i] = plainJSON(d)
	}
}

// text is the error in words, for models that read only text.
func (e *toolError) text() []byte {
	var b strings.Builder
	b.WriteString(e.Code)
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	for _, v := range e.FieldViolations {
		if strings.Contains(e.Message, v.Description) {
			continue // the message of bad arguments has it already
		}
		fmt.Fprintf(&b, "\nfield %q: %s", v.Field, v.Description)
	}
	for _, v := range e.Preconditions {
		fmt.Fprintf(&b, "\n%s: %s", strings.TrimSpace(v.Type+" "+v.Subject), v.Description)
	}
	if e.Reason != "" {
		b.WriteString("\nreason: " + e.Reason)
		if e.Domain != "" {
			b.WriteString(" (" + e.Domain + ")")
		}
		for _, k := range sorted(e.Metadata) {
			if k == "hint" && e.ownHint() != "" {
				continue // it is in Hint, or Hint knows better
			}
			fmt.Fprintf(&b, "\n%s: %s", k, e.Metadata[k])
		}
	}
	if e.Resource != nil {
		fmt.Fprintf(&b, "\nresource: %s", strings.TrimSpace(e.Resource.Type+" "+e.Resource.Name+" "+e.Resource.Description))
	}
	if e.RetryDelay != "" {
		b.WriteString("\nretry after: " + e.RetryDelay)
	}
	for _, l := range e.Links {
		fmt.Fprintf(&b, "\nsee: %s", strings.TrimSpace(l.Description+" "+l.URL))
	}
	for _, d := range e.Details {
		fmt.Fprintf(&b, "\ndetail: %s", d)
	}
	if e.Hint != "" {
		b.WriteString("\nhint: " + e.Hint)
	}
	return []byte(b.String())
}

// errorResult is a tool error, with the items of a stream that came before it.
//
// Its structured content has to satisfy the tool's output schema, since @modelcontextprotocol/sdk 1.x checks error results too and then
// hides the error from the model. The listed schema is open at its root, so {"error":{…}} passes unless the contract has a field "error"
// of its own: then the error is in _meta.
func errorResult(m *catalog.Method, e *toolError, items []byte) *result {
	e.plain()
	r := &result{isError: true}
	r.addText(e.text())
	body, err := marshal(e)
	if err != nil {
		return r // the text says it all
	}
	if !errorFits(m) {
		r.meta = map[string]any{metaError: json.RawMessage(body)}
		return r
	}
	r.structured = append([]byte(`{"error":`), body...)
	if items != nil {
		r.addText(append([]byte("What arrived before the stream broke: "), items...))
		r.structured = append(append(r.structured, `,"items":`...), items...)
	}
	r.structured = append(r.structured, '}')
	return r
}

// badArguments describes arguments that are not the JSON form of the request message.
func badArguments(err error) *toolError {
	e := &toolError{Code: codeName(codes.InvalidArgument), Message: "arguments: " + err.Error(), Reason: "INVALID_ARGUMENTS", Domain: call.Domain, Hint: call.Mend("the arguments", 0)}
	var all mistakes
	var t *transcode.Error
	switch {
	case errors.As(err, &all):
	case errors.As(err, &t):
		all = mistakes{t}
	default:
		return e
	}
	e.Message = "the arguments do not fit the tool: " + all.Error()
	for _, m := range all {
		if where := m.Where(); where != "" {
			description := (&transcode.Error{Problem: m.Problem, Want: m.Want, Suggestion: m.Suggestion}).Error()
			e.FieldViolations = append(e.FieldViolations, fieldViolation{Field: where, Description: description})
		}
	}
	return e
}

// withdrawn describes a call of a tool whose backend is down.
func withdrawn(m *catalog.Method) *toolError {
	return &toolError{
		Code:       codeName(codes.Unavailable),
		Message:    fmt.Sprintf("tool %q is withdrawn, since its backend %q is down", m.Tool.Name, m.Backend.Name),
		Reason:     "TOOL_UNAVAILABLE",
		Domain:     "toolway",
		RetryDelay: call.WithdrawnRetry.String(),
		Hint:       "nothing was done; try again later, or use another tool: this one is listed again when its backend is back",
	}
}
