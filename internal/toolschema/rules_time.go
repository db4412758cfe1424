package toolschema

import (
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// timeRules tells the rules of a duration or timestamp in words.
func timeRules(n *node, m protoreflect.Message) {
	text := func(v protoreflect.Value) string {
		switch t := v.Message().Interface().(type) {
		case *durationpb.Duration:
			if err := t.CheckValid(); err != nil {
				return t.AsDuration().String()
			}
			return strings.Trim(protojson.Format(t), `"`)
		case *timestamppb.Timestamp:
			return t.AsTime().Format(time.RFC3339Nano)
		}
		return ""
	}
	for _, part := range []struct {
		name  protoreflect.Name
		words string
	}{{"const", "Must be "}, {"gt", "Must be more than "}, {"gte", "Must be at least "}, {"lt", "Must be less than "}, {"lte", "Must be at most "}, {"within", "Must be this close to now: "}} {
		fd := m.Descriptor().Fields().ByName(part.name)
		if fd == nil || !m.Has(fd) || fd.Message() == nil {
			continue
		}
		n.say(part.words + text(m.Get(fd)) + ".")
	}
	for _, part := range []struct {
		name  protoreflect.Name
		words string
	}{{"lt_now", "Must be in the past."}, {"gt_now", "Must be in the future."}} {
		if fd := m.Descriptor().Fields().ByName(part.name); fd != nil && m.Get(fd).Bool() {
			n.say(part.words)
		}
	}
	for _, part := range []struct {
		name  protoreflect.Name
		words string
	}{{"in", "One of "}, {"not_in", "None of "}} {
		fd := m.Descriptor().Fields().ByName(part.name)
		if fd == nil || !m.Has(fd) {
			continue
		}
		var names []string
		for _, v := range values(m.Get(fd).List()) {
			names = append(names, text(v))
		}
		n.say(listWords(part.words, names))
	}
}
