package interceptors

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"buf.build/go/protovalidate"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
)

// Validate refuses requests that break the rules of their contract, before anything is done about them: the buf.validate rules of the
// request message and all that it holds, and those fields that google.api.field_behavior calls REQUIRED and whose absence the wire can tell
// (messages, and scalars with presence). Of a client stream each message is checked as it passes.
//
// The refusal is INVALID_ARGUMENT with reason INVALID_REQUEST and a google.rpc.BadRequest: each field by its path in proto names, what
// is wrong with it, and as reason the rule in capitals, such as STRING_EMAIL. Values are not in it.
//
// A method whose rules do not compile is called without them, which is logged: its backend is the judge then. A rule that fails while it
// is evaluated refuses the request.
func Validate(o Options) Policy {
	o = o.withDefaults()
	return inHalves("validate", func(m *catalog.Method) *halves {
		v := &validation{log: o.Logger, method: m, required: requiredFields(m.Desc.Input()), marks: m.Sensitive(toolschema.Input)}
		if ruled := ruledMessages(m.Desc.Input()); len(ruled) > 0 {
			validator, err := validatorOf(m, ruled)
			if err != nil {
				o.Logger.Warn("requests are not validated: a rule of the contract does not compile", "method", m.FullMethod, "error", err)
			} else {
				v.validator = validator
			}
		}
		if v.validator == nil && len(v.required) == 0 {
			return nil
		}
		if m.Kind().Client {
			return &halves{around: v.intercept}
		}
		return &halves{enter: v.enter}
	})
}

// validation checks the requests of one method.
type validation struct {
	log       *slog.Logger
	method    *catalog.Method
	validator protovalidate.Validator // nil: there are no rules
	required  []protoreflect.FieldDescriptor
	marks     *catalog.FieldSet
}

func (v *validation) enter(c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
	f, err := call.Request(stream)
	if err != nil {
		return nil, err
	}
	if err := v.check(f, -1); err != nil {
		c.Decide("validate", "refused", status.Convert(err).Message())
		return nil, err
	}
	return stream, nil
}

// intercept is for calls that stream requests.
func (v *validation) intercept(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	checked := &validatedStream{ServerStream: stream, validation: v}
	err := handler(srv, checked)
	if checked.refused != nil {
		call.FromContext(stream.Context()).Decide("validate", "refused", status.Convert(checked.refused).Message())
	}
	return err
}

// validatedStream checks each request of a client stream.
type validatedStream struct {
	grpc.ServerStream
	*validation
	n       int
	refused error
}

// RecvMsg gives no message that breaks the rules, and none after one that did.
func (s *validatedStream) RecvMsg(m any) error {
	if s.refused != nil {
		return s.refused
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	f, ok := m.(*call.Frame)
	if !ok {
		msg, isMessage := m.(proto.Message)
		if !isMessage {
			return nil
		}
		wire, err := proto.Marshal(msg)
		if err != nil {
			return err
		}
		f = call.NewFrame(s.method.Desc.Input(), wire)
	}
	s.refused = s.check(f, s.n)
	s.n++
	return s.refused
}

// check returns the refusal of a request, the nth of a stream; -1 for the only one.
func (v *validation) check(f *call.Frame, n int) error {
	if missing := v.missing(f.Bytes()); len(missing) > 0 {
		return invalidRequest(missing, len(missing), n)
	}
	if v.validator == nil {
		return nil
	}
	msg, err := f.Message()
	if err != nil {
		return call.Error(codes.InvalidArgument, "MALFORMED_REQUEST", err.Error(), "hint", "the bytes are no message of that type; check which version of the contract the caller was built with")
	}
	var options []protovalidate.ValidationOption
	if f.Len() > maxThorough {
		options = firstOnly
	}
	err = v.validator.Validate(msg, options...)
	if err == nil {
		return nil
	}
	var broken *protovalidate.ValidationError
	if errors.As(err, &broken) {
		return invalidRequest(v.describe(broken), len(broken.Violations), n)
	}
	v.log.Warn("a rule of the contract cannot be evaluated", "method", v.method.FullMethod, "error", err)
	return call.Error(codes.InvalidArgument, "INVALID_REQUEST", "a rule of the contract cannot be evaluated for this request", "hint", "mend the arguments; if they are right, the contract's rule is wrong")
}

// missing returns the required fields that the message does not have, by a look at its outermost tags only.
func (v *validation) missing(wire []byte) []*errdetails.BadRequest_FieldViolation {
	var out []*errdetails.BadRequest_FieldViolation
	for _, fd := range v.required {
		if !hasField(wire, fd.Number()) {
			out = append(out, &errdetails.BadRequest_FieldViolation{Field: string(fd.Name()), Description: "is required", Reason: "REQUIRED"})
		}
	}
	return out
}

// hasField says whether a field occurs in a message. Of malformed bytes it says that it does: others refuse them.
func hasField(wire []byte, number protoreflect.FieldNumber) bool {
	for len(wire) > 0 {
		num, typ, n := protowire.ConsumeTag(wire)
		if n < 0 || num == number {
			return true
		}
		size := protowire.ConsumeFieldValue(num, typ, wire[n:])
		if size < 0 {
			return true
		}
		wire = wire[n+size:]
	}
	return false
}

// Beyond maxThorough bytes only the first violation is looked for: a large request may have millions.
const maxThorough = 64 << 10

var firstOnly = []protovalidate.ValidationOption{protovalidate.WithFailFast()}

// maxViolations bounds how many are told, maxViolation the bytes of each text.
const (
	maxViolations = 20
	maxViolation  = 500
)

// describe turns what protovalidate found into field violations. What a rule says about a sensitive field may hold the value, so only the
// rule's name is told.
func (v *validation) describe(broken *protovalidate.ValidationError) []*errdetails.BadRequest_FieldViolation {
	told := broken.Violations[:min(len(broken.Violations), maxViolations)]
	out := make([]*errdetails.BadRequest_FieldViolation, 0, len(told))
	for _, b := range told {
		text := call.PlainText(b.Proto.GetMessage())
		if text == "" || v.marks != nil && b.FieldDescriptor != nil && markedSensitive(v.marks, b.FieldDescriptor) {
			text = fmt.Sprintf("breaks the rule %q", b.Proto.GetRuleId())
		}
		if b.Proto.GetForKey() {
			text = "key: " + text
		}
		out = append(out, &errdetails.BadRequest_FieldViolation{
			Field: shorten(call.PlainText(protovalidate.FieldPathString(b.Proto.GetField()))), Description: shorten(text), Reason: reasonOf(b.Proto.GetRuleId()),
		})
	}
	return out
}

func shorten(s string) string {
	if len(s) <= maxViolation {
		return s
	}
	return strings.ToValidUTF8(s[:maxViolation], "") + "…"
}

// markedSensitive says whether a field is marked anywhere in a set. It is asked only about requests that are refused.
func markedSensitive(s *catalog.FieldSet, fd protoreflect.FieldDescriptor) bool {
	seen := map[*catalog.FieldSet]bool{}
	var find func(*catalog.FieldSet) bool
	find = func(s *catalog.FieldSet) bool {
		if s == nil || seen[s] {
			return false
		}
		seen[s] = true
		for _, m := range s.Marks() {
			if m.Sensitive && m.Field.FullName() == fd.FullName() || find(m.Within) {
				return true
			}
		}
		return false
	}
	return find(s)
}

// reasonOf writes the id of a rule, such as "string.min_len", as google.rpc asks of reasons: STRING_MIN_LEN, at most 63 characters.
func reasonOf(rule string) string {
	out := make([]byte, 0, len(rule))
	for i := 0; i < len(rule) && len(out) < 63; i++ {
		switch c := rule[i]; {
		case c >= 'a' && c <= 'z':
			out = append(out, c-'a'+'A')
		case c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			out = append(out, c)
		default:
			out = append(out, '_')
		}
	}
	return strings.Trim(string(out), "_")
}

// invalidRequest is the refusal of the nth message of a stream, or of the only one, with the first of all violations.
func invalidRequest(violations []*errdetails.BadRequest_FieldViolation, all, n int) error {
	text := "the request is not valid: "
	if n >= 0 {
		text = fmt.Sprintf("message %d of the request stream is not valid: ", n+1)
	}
	first := violations[0]
	if first.Field != "" {
		text += first.Field + ": "
	}
	text += first.Description
	if more := all - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	st, err := status.New(codes.InvalidArgument, text).WithDetails(
		&errdetails.ErrorInfo{Reason: "INVALID_REQUEST", Domain: call.Domain, Metadata: map[string]string{"hint": call.Mend("the fields named", max(n, 0))}},
		&errdetails.BadRequest{FieldViolations: violations[:min(len(violations), maxViolations)]})
	if err != nil {
		return status.Error(codes.InvalidArgument, text)
	}
	return st.Err()
}

// requiredFields are the fields of md that have to be there and whose absence the wire can tell. Members of a oneof exclude each other, so
// none of them can be demanded.
func requiredFields(md protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	var out []protoreflect.FieldDescriptor
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if !fd.HasPresence() || fd.ContainingOneof() != nil && !fd.ContainingOneof().IsSynthetic() {
			continue
		}
		o, _ := fd.Options().(*descriptorpb.FieldOptions)
		behaviours, _ := proto.GetExtension(o, annotations.E_FieldBehavior).([]annotations.FieldBehavior)
		for _, b := range behaviours {
			if b == annotations.FieldBehavior_REQUIRED {
				out = append(out, fd)
				break
			}
		}
	}
	return out
}

// ruledMessages returns md and all messages that it can hold if one of them has rules, else nil.
func ruledMessages(md protoreflect.MessageDescriptor) []protoreflect.MessageDescriptor {
	seen := map[protoreflect.FullName]bool{md.FullName(): true}
	all := []protoreflect.MessageDescriptor{md}
	ruled := false
	for i := 0; i < len(all); i++ {
		ruled = ruled || hasRules(all[i])
		fields := all[i].Fields()
		for j := range fields.Len() {
			if in := fields.Get(j).Message(); in != nil && !seen[in.FullName()] {
				seen[in.FullName()] = true
				all = append(all, in)
			}
		}
	}
	if !ruled {
		return nil
	}
	return all
}

// hasRules says whether a message itself has rules. Rules that cannot be read count: they come to light when they are compiled.
func hasRules(md protoreflect.MessageDescriptor) bool {
	if r, err := protovalidate.ResolveMessageRules(md); r != nil || err != nil {
		return true
	}
	for i := range md.Oneofs().Len() {
		if r, err := protovalidate.ResolveOneofRules(md.Oneofs().Get(i)); r != nil || err != nil {
			return true
		}
	}
	for i := range md.Fields().Len() {
		if r, err := protovalidate.ResolveFieldRules(md.Fields().Get(i)); r != nil || err != nil {
			return true
		}
	}
	return false
}

type validatorKey struct{}

// validatorOf returns the validator of the method's backend, with which messages compile. There is one for each contract, with types of its
// own: what the contract's predefined rules mean is found in its own files.
func validatorOf(m *catalog.Method, messages []protoreflect.MessageDescriptor) (_ protovalidate.Validator, err error) {
	made := m.Backend.Memo(validatorKey{}, func() any {
		files := m.Backend.Files
		if files == nil {
			files = new(catalog.Files)
		}
		v, err := protovalidate.New(protovalidate.WithExtensionTypeResolver(dynamicpb.NewTypes(files)))
		if err != nil {
			return err
		}
		return v
	})
	if err, bad := made.(error); bad {
		return nil, err
	}
	v := made.(protovalidate.Validator)
	defer func() {
		if r := recover(); r != nil { // a contract from outside must not end a call by a panic
			err = fmt.Errorf("compile rules: %v", r)
		}
	}()
	for _, md := range messages {
		var refused *protovalidate.CompilationError
		if err := v.Validate(dynamicpb.NewMessage(md)); errors.As(err, &refused) {
			return nil, fmt.Errorf("%s: %w", md.FullName(), refused)
		}
	}
	return v, nil
}
