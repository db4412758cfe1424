package catalog

import (
	"net/http"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
)

// evidence says on what a method's hints rest.
type evidence int

const (
	noEvidence evidence = iota
	verbEvidence
	levelEvidence
	optionEvidence
)

// hintEvidence says on what each hint rests.
type hintEvidence struct {
	readOnly, destructive, idempotent, openWorld evidence
	verb, level                                  string
	// idempotentBy is the option on which idempotent rests, where it is one.
	idempotentBy string
}

// annotated is the best evidence about what the method does, "open world" apart.
func (e hintEvidence) annotated() evidence { return max(e.readOnly, e.destructive, e.idempotent) }

// origin says in words on what a hint rests; name is the hint's in the configuration.
func (e hintEvidence) origin(ev evidence, name string) string {
	switch ev {
	case verbEvidence:
		return "HTTP verb " + e.verb
	case levelEvidence:
		return "idempotency_level = " + e.level
	case optionEvidence:
		return "option (toolway.v1.method)." + name
	}
	return ""
}

// note writes the origins of the hints that are not defaults; rules holds those of values that rules have set.
func (e hintEvidence) note(from, rules map[string]string) {
	for _, h := range []struct {
		name, by string
		evidence evidence
	}{{"read_only", "read_only", e.readOnly}, {"destructive", "destructive", e.destructive}, {"idempotent", e.idempotentBy, e.idempotent}, {"open_world", "open_world", e.openWorld}} {
		if h.evidence == noEvidence {
			continue
		}
		from[h.name] = e.origin(h.evidence, h.by)
		if rule := rules[h.by]; rule != "" && h.evidence == optionEvidence {
			from[h.name] = rule
		}
	}
}

// hints resolves a method's annotations by the ladder option, idempotency_level, HTTP verb of the first binding, cautious default. Each
// hint is resolved for itself: an option that sets one leaves the others to the next rung.
func hints(md protoreflect.MethodDescriptor, opt *toolwayv1.MethodOptions, bindings []Binding) (Hints, hintEvidence) {
	h := Hints{Destructive: true, OpenWorld: true}
	var ev hintEvidence
	level := methodOptions(md).GetIdempotencyLevel()
	ev.level = level.String()
	switch {
	case level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS:
		h.ReadOnly, h.Idempotent, ev.readOnly, ev.idempotent = true, true, levelEvidence, levelEvidence
	case level == descriptorpb.MethodOptions_IDEMPOTENT:
		h.Idempotent, ev.idempotent = true, levelEvidence
	case len(bindings) > 0:
		switch ev.verb = bindings[0].Verb; ev.verb {
		case http.MethodGet, http.MethodHead:
			h.ReadOnly, h.Idempotent, ev.readOnly, ev.idempotent = true, true, verbEvidence, verbEvidence
		case http.MethodPut, http.MethodDelete:
			h.Idempotent, ev.idempotent = true, verbEvidence
		}
	}
	set := func(dst *bool, from *evidence, v *bool) {
		if v != nil {
			*dst, *from = *v, optionEvidence
		}
	}
	if opt != nil {
		if opt.GetReadOnly() {
			h.Idempotent, ev.idempotent, ev.idempotentBy = true, optionEvidence, "read_only"
		}
		if opt.Idempotent != nil {
			ev.idempotentBy = "idempotent"
		}
		set(&h.ReadOnly, &ev.readOnly, opt.ReadOnly)
		set(&h.Idempotent, &ev.idempotent, opt.Idempotent)
		h.Destructive = !h.ReadOnly
		set(&h.Destructive, &ev.destructive, opt.Destructive)
		set(&h.OpenWorld, &ev.openWorld, opt.OpenWorld)
	}
	if h.ReadOnly {
		h.Destructive = false
	}
	return h, ev
}

func methodOptions(md protoreflect.MethodDescriptor) *descriptorpb.MethodOptions {
	o, _ := md.Options().(*descriptorpb.MethodOptions)
	return o
}
