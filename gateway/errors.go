package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/transcode"
)

// httpStatus is the one table from a status code to an HTTP status: grpc-gateway's.
func httpStatus(c codes.Code) int {
	if c > codes.Unauthenticated {
		return http.StatusInternalServerError
	}
	return runtime.HTTPStatusFromCode(c)
}

// reasonStatus are the reasons of the mesh's own errors for which HTTP has a better word than the status code's.
var reasonStatus = map[string]int{
	"IDEMPOTENCY_KEY_REUSED":      http.StatusUnprocessableEntity, // draft-ietf-httpapi-idempotency-key-header, section 2.7
	"IDEMPOTENCY_ANSWER_NOT_KEPT": http.StatusConflict,
	"APPROVAL_REQUIRED":           http.StatusConflict,
	"APPROVAL_IMPOSSIBLE":         http.StatusConflict,
	"APPROVAL_DECIDED":            http.StatusConflict,
	"CONFIRMATION_REQUIRED":       http.StatusConflict,
	"INPUT_REQUIRED":              http.StatusConflict,
	"TOOL_QUARANTINED":            http.StatusConflict,
}

// httpStatusOf is httpStatus, but for the reasons in reasonStatus.
func httpStatusOf(st *status.Status) int {
	for _, d := range st.Proto().GetDetails() {
		var info errdetails.ErrorInfo
		if !d.MessageIs(&info) || d.UnmarshalTo(&info) != nil || info.GetDomain() != call.Domain {
			continue
		}
		if code := reasonStatus[info.GetReason()]; code != 0 {
			return code
		}
	}
	return httpStatus(st.Code())
}

// refusal is what this door itself says no to, where HTTP has a better word than the status code's.
type refusal struct {
	http   int
	status *status.Status
	header [2]string // one more header, or none
}

// Error returns the text that the caller sees.
func (e *refusal) Error() string { return e.status.Message() }

// GRPCStatus makes it a status for everyone else.
func (e *refusal) GRPCStatus() *status.Status { return e.status }

func refuse(http int, c codes.Code, text string) *refusal {
	return &refusal{http: http, status: status.New(c, text)}
}

func (e *refusal) with(key, value string) *refusal {
	e.header = [2]string{key, value}
	return e
}

// statusOf returns the status that the caller sees. What is no status becomes INTERNAL with a fixed text, and goes to the log.
func (g *Gateway) statusOf(ctx context.Context, id ids, err error) *status.Status {
	var typed interface{ GRPCStatus() *status.Status }
	if errors.As(err, &typed) {
		return typed.GRPCStatus()
	}
	var bad *transcode.Error
	if errors.As(err, &bad) {
		return invalid(bad, 0)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err)
	}
	g.logger.LogAttrs(ctx, slog.LevelError, "error without a status", slog.String("call_id", id.call), slog.Any("error", err))
	return status.New(codes.Internal, "internal error; the log has the cause under call id "+id.call)
}

// messageError is what is wrong with one message of a request stream, counted from 1.
type messageError struct {
	n   int
	why *transcode.Error
}

// Error returns the text that the caller sees.
func (e *messageError) Error() string { return inMessage(e.n) + e.why.Error() }

// Unwrap returns what is wrong, without the number.
func (e *messageError) Unwrap() error { return e.why }

// GRPCStatus is what the chain, its log and its audit take it for.
func (e *messageError) GRPCStatus() *status.Status { return invalid(e.why, e.n) }

func inMessage(n int) string { return "message " + strconv.Itoa(n) + " of the request stream: " }

// invalid is INVALID_ARGUMENT with the field that is at fault; n is the number of the message in a request stream, or 0.
func invalid(e *transcode.Error, n int) *status.Status {
	text, field := e.Error(), e.Where()
	description := (&transcode.Error{Problem: e.Problem, Want: e.Want, Suggestion: e.Suggestion}).Error()
	if n > 0 {
		text = inMessage(n) + text
		field = strings.TrimSuffix("messages["+strconv.Itoa(n-1)+"]."+field, ".")
	}
	st := status.Convert(call.Error(codes.InvalidArgument, "INVALID_ARGUMENTS", text, "hint", call.Mend("the request", max(n-1, 0))))
	if field == "" {
		return st
	}
	with, err := st.WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: description}}})
	if err != nil {
		return st
	}
	return with
}

// fail answers with the status of err. Nothing may have been written before. b, which may be nil, resolves details.
func (g *Gateway) fail(x *exchange, b *catalog.Backend, err error) {
	st := g.statusOf(x.r.Context(), x.id, err)
	code := httpStatusOf(st)
	if x.conditional && overtaken(st) {
		code = http.StatusPreconditionFailed
	}
	h := x.w.Header()
	var no *refusal
	if errors.As(err, &no) {
		code = no.http
		if no.header[0] != "" {
			h.Set(no.header[0], no.header[1])
		}
	}
	if challenge := g.challenge(x, st.Code(), err); challenge != "" {
		h.Set("WWW-Authenticate", challenge)
	}
	if after := retryAfter(st.Proto()); after != "" {
		h.Set("Retry-After", after)
	}
	body := appendStatus(nil, st.Proto(), b)
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	g.write(x, code, body)
}

// retryAfter is the delay of a RetryInfo in whole seconds, rounded up.
func retryAfter(st *spb.Status) string {
	for _, d := range st.GetDetails() {
		if !d.MessageIs((*errdetails.RetryInfo)(nil)) {
			continue
		}
		var info errdetails.RetryInfo
		if d.UnmarshalTo(&info) != nil || info.GetRetryDelay() == nil {
			continue
		}
		delay := max(info.GetRetryDelay().AsDuration(), 0)
		return strconv.FormatInt(int64((delay+time.Second-1)/time.Second), 10)
	}
	return ""
}

// appendStatus appends st as ProtoJSON of google.rpc.Status; its message is for people and agents. Details that neither the mesh nor the backend knows keep their bytes in base64.
func appendStatus(dst []byte, st *spb.Status, b *catalog.Backend) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(st.GetCode()), 10)
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, call.PlainText(st.GetMessage()))
	for i, d := range st.GetDetails() {
		if i == 0 {
			dst = append(dst, `,"details":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = appendAny(dst, d, b)
	}
	if len(st.GetDetails()) > 0 {
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func appendAny(dst []byte, a *anypb.Any, b *catalog.Backend) []byte {
	dst = append(dst, `{"@type":`...)
	dst = appendString(dst, a.GetTypeUrl())
	fields, special, ok := detailJSON(a, b)
	switch {
	case !ok:
		dst = append(dst, `,"value":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, a.GetValue())
		return append(dst, `"}`...)
	case special:
		dst = append(dst, `,"value":`...)
		dst = append(dst, fields...)
		return append(dst, '}')
	case len(fields) > len("{}"):
		dst = append(dst, ',')
		return append(dst, fields[1:]...)
	}
	return append(dst, '}')
}

// detailJSON returns the JSON of a detail, and whether its JSON is not made of its fields.
func detailJSON(a *anypb.Any, b *catalog.Backend) (body []byte, special, ok bool) {
	name := protoreflect.FullName(a.GetTypeUrl()[strings.LastIndexByte(a.GetTypeUrl(), '/')+1:])
	codec := details.message(name)
	if codec == nil && b != nil && b.Files != nil {
		if d, err := b.Files.FindDescriptorByName(name); err == nil {
			if md, isMessage := d.(protoreflect.MessageDescriptor); isMessage {
				codec = b.Codecs.Message(md)
			}
		}
	}
	if codec == nil {
		return nil, false, false
	}
	body, err := codec.AppendJSON(nil, a.GetValue(), transcode.WriteOptions{})
	if err != nil {
		return nil, false, false
	}
	return body, len(body) == 0 || body[0] != '{' || strings.HasPrefix(string(name), "google.protobuf."), true
}

// knownDetails are the types of google/rpc/error_details.proto, known whatever the backend's own files hold.
type knownDetails struct {
	files  *protoregistry.Files
	codecs *transcode.Set
}

var details = newKnownDetails()

func newKnownDetails() *knownDetails {
	files := &protoregistry.Files{}
	for _, fd := range []protoreflect.FileDescriptor{durationpb.File_google_protobuf_duration_proto, errdetails.File_google_rpc_error_details_proto} {
		// Two files of Go's own registry cannot conflict.
		_ = files.RegisterFile(fd)
	}
	return &knownDetails{files: files, codecs: transcode.NewSet(dynamicpb.NewTypes(files))}
}

func (k *knownDetails) message(name protoreflect.FullName) *transcode.Message {
	d, err := k.files.FindDescriptorByName(name)
	if err != nil {
		return nil
	}
	md, ok := d.(protoreflect.MessageDescriptor)
	if !ok {
		return nil
	}
	return k.codecs.Message(md)
}

// appendString appends s as a JSON string, with invalid UTF-8 replaced.
func appendString(dst []byte, s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil {
		return append(dst, `""`...)
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
