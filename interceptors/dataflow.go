package interceptors

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
)

// DataFlowRule says where values that some backends have given must not go.
type DataFlowRule struct {
	// Name is the rule's in refusals and logs.
	Name string
	// Label is the kind of data (toolway.v1.field's data_label). "sensitive" is that of fields that are sensitive and have no label; "*" is
	// any.
	Label string
	// From are the backends whose values are meant; empty means all.
	From []string
	// To are the backends that must not get them; "*" is every other than the one that gave the value.
	To []string
	// LogOnly logs what would be refused, and lets it pass.
	LogOnly bool
}

// DataFlowOptions are the rules of DataFlow and what it remembers. Without rules it is in no chain.
type DataFlowOptions struct {
	// Rules, at most 64.
	Rules []DataFlowRule
	// MinBytes is the length below which a value is not told from others. Default 8.
	MinBytes int
	// Remember is for how long a value is known after it was given. Default one hour.
	Remember time.Duration
	// MaxValues bounds the values that are known; those given longest ago are forgotten first. Default 100,000.
	MaxValues int
}

// DataFlow keeps what one backend has given from being handed to another. The text of fields that a rule means is remembered, when it goes
// to a caller, as a keyed hash; when a request of the same principal to a forbidden backend holds such a text, anywhere in its strings and
// bytes, the call is refused with PERMISSION_DENIED and reason DATA_FLOW_FORBIDDEN, which names field, label and rule, never the value.
//
// A text is found as a whole field, or as up to eight words of one, whatever stands between the words and in either case. What is shorter
// than MinBytes, numbers, and what the caller has changed (encoded, translated, taken apart) is not found: it is a guard against accidents and
// simple tricks, not against a determined caller. This process remembers only what it has given itself.
func DataFlow(o Options) Policy {
	o = o.withDefaults()
	known := newKnownValues(&o.DataFlow)
	return Policy{Name: "data_flow", For: func(m *catalog.Method) grpc.StreamServerInterceptor {
		f := &flow{known: known, rules: o.DataFlow.Rules, log: o.Logger, method: m, from: map[*catalog.FieldMark]uint64{}}
		f.to = f.target()
		gives := f.source(m.Sensitive(toolschema.Output), map[*catalog.FieldSet]bool{})
		if f.to == 0 && !gives {
			return nil
		}
		f.gives = gives
		return f.intercept
	}}
}

// flow is what goes in and out of one method.
type flow struct {
	known  *knownValues
	rules  []DataFlowRule
	log    *slog.Logger
	method *catalog.Method
	// to are the rules that forbid something to the method's backend, from those that mean a field of its replies; one bit a rule.
	to    uint64
	from  map[*catalog.FieldMark]uint64
	gives bool
}

// target returns the rules that may forbid requests of the method.
func (f *flow) target() (rules uint64) {
	for i, r := range f.rules {
		if slices.Contains(r.To, f.method.Backend.Name) || slices.Contains(r.To, "*") {
			rules |= 1 << i
		}
	}
	return rules
}

// source finds the fields of replies that rules mean, and says whether there are any.
func (f *flow) source(s *catalog.FieldSet, seen map[*catalog.FieldSet]bool) (found bool) {
	if s == nil || seen[s] {
		return false
	}
	seen[s] = true
	marks := s.Marks()
	for i := range marks {
		m := &marks[i]
		for j, r := range f.rules {
			if (len(r.From) == 0 || slices.Contains(r.From, f.method.Backend.Name)) && (r.Label == "*" || r.Label == labelOf(m)) && labelOf(m) != "" {
				f.from[m] |= 1 << j
				found = true
			}
		}
		found = f.source(m.Within, seen) || found
	}
	return found
}

// labelOf returns the label of a field; "" if it has none and is not sensitive.
func labelOf(m *catalog.FieldMark) string {
	if m.Label == "" && m.Sensitive {
		return "sensitive"
	}
	return m.Label
}

func (f *flow) intercept(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := call.FromContext(stream.Context())
	owner := ""
	if c.Principal != nil {
		owner = fmt.Sprintf("%q %q", c.Principal.Tenant, c.Principal.ID)
	}
	s := &flowing{ServerStream: stream, flow: f, owner: owner}
	if f.to != 0 && !info.IsClientStream && f.known.any() {
		request, err := call.Request(stream)
		if err != nil {
			return err
		}
		s.check(request.Bytes())
	}
	if s.refused == nil {
		err := handler(srv, s)
		if s.refused == nil {
			if s.noted != "" {
				c.Decide("data_flow", "noted", s.noted)
			}
			return err
		}
	}
	c.Decide("data_flow", "refused", s.noted)
	return s.refused
}

// flowing is the stream of one call.
type flowing struct {
	grpc.ServerStream
	*flow
	owner   string
	refused error
	noted   string // which rule has found something
}

// RecvMsg looks at each request of a client stream.
func (s *flowing) RecvMsg(m any) error {
	if s.refused != nil {
		return s.refused
	}
	if err := s.ServerStream.RecvMsg(m); err != nil || s.to == 0 || !s.method.Desc.IsStreamingClient() || !s.known.any() {
		return err
	}
	wire, err := wireOf(m)
	if err != nil {
		return err
	}
	s.check(wire)
	return s.refused
}

// SendMsg remembers what each reply gives.
func (s *flowing) SendMsg(m any) error {
	if s.gives {
		wire, err := wireOf(m)
		if err != nil {
			return err
		}
		s.learn(wire, s.method.Sensitive(toolschema.Output), maxDepth)
	}
	return s.ServerStream.SendMsg(m)
}

// learn remembers the texts of the fields that rules mean. What is malformed gives nothing that anybody could read.
func (s *flowing) learn(wire []byte, set *catalog.FieldSet, depth int) {
	for len(wire) > 0 && depth > 0 {
		num, typ, tag := protowire.ConsumeTag(wire)
		if tag < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(num, typ, wire[tag:])
		if size < 0 {
			return
		}
		value := wire[tag : tag+size]
		wire = wire[tag+size:]
		mark := set.Mark(num)
		if mark == nil {
			continue
		}
		body := inner(num, typ, value)
		if rules := s.from[mark]; rules != 0 {
			note := func(_ *place, text []byte) bool {
				s.known.learn(s.owner, text, rules, labelOf(mark), s.method.Backend.Name)
				return true
			}
			if mark.Field.Message() == nil {
				if texts(mark.Field, typ) {
					note(nil, body)
				}
				continue
			}
			eachText(s.method.Backend.Files, mark.Field.Message(), body, nil, depth-1, note)
		}
		switch {
		case mark.Within == nil:
		case mark.Field.IsMap():
			s.learn(mapValue(body), mark.Within, depth-1)
		default:
			s.learn(body, mark.Within, depth-1)
		}
	}
}

// mapValue returns the value of a map entry; the last one counts.
func mapValue(entry []byte) (value []byte) {
	for len(entry) > 0 {
		num, typ, tag := protowire.ConsumeTag(entry)
		if tag < 0 {
			return value
		}
		size := protowire.ConsumeFieldValue(num, typ, entry[tag:])
		if size < 0 {
			return value
		}
		if num == 2 {
			value = inner(num, typ, entry[tag:tag+size])
		}
		entry = entry[tag+size:]
	}
	return value
}

// check looks for texts in a request that must not go to the method's backend.
func (s *flowing) check(wire []byte) {
	eachText(s.method.Backend.Files, s.method.Desc.Input(), wire, nil, maxDepth, func(at *place, text []byte) bool {
		return s.known.find(s.owner, text, func(v *knownValue) bool {
			for i, r := range s.rules {
				if v.rules&s.to&(1<<i) == 0 || slices.Contains(r.To, "*") && !slices.Contains(r.To, s.method.Backend.Name) && v.backend == s.method.Backend.Name {
					continue
				}
				if s.forbid(r, v, at.String()) {
					return false
				}
			}
			return true
		})
	})
}

// forbid refuses the call, or logs that the rule would, and says whether it is refused.
func (s *flowing) forbid(r DataFlowRule, v *knownValue, field string) bool {
	s.noted = fmt.Sprintf("rule %q: %s data of backend %q in field %q", r.Name, v.label, v.backend, field)
	if r.LogOnly {
		s.log.Warn("data flows against a rule", "rule", r.Name, "label", v.label, "from", v.backend, "to", s.method.Backend.Name, "method", s.method.FullMethod, "field", field)
		return false
	}
	s.refused = call.Error(codes.PermissionDenied, "DATA_FLOW_FORBIDDEN",
		fmt.Sprintf("field %q holds %s data that backend %q has given, and rule %q keeps it from backend %q", field, v.label, v.backend, r.Name, s.method.Backend.Name),
		"field", field, "label", v.label, "rule", r.Name, "hint", "leave that value out of the arguments; repeating the call does not help")
	return true
}

// inner returns the bytes of a length-prefixed field or a group.
func inner(num protowire.Number, typ protowire.Type, value []byte) []byte {
	switch typ {
	case protowire.BytesType:
		body, _ := protowire.ConsumeBytes(value)
		return body
	case protowire.StartGroupType:
		body, _ := protowire.ConsumeGroup(num, value)
		return body
	}
	return nil
}

// texts says whether a field's value is text, or bytes that may be.
func texts(fd protoreflect.FieldDescriptor, typ protowire.Type) bool {
	return (fd.Kind() == protoreflect.StringKind || fd.Kind() == protoreflect.BytesKind) && typ == protowire.BytesType
}
