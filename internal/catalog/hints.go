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

// hints resolves a method's annotations by the ladder option, idempotency_level, HTTP verb of the first binding, cautious default. Each
// hint is resolved for itself: an option that sets one leaves the others to the next rung.
func hints(md protoreflect.MethodDescriptor, opt *toolwayv1.MethodOptions, bindings []Binding) (Hints, evidence) {
	h := Hints{Destructive: true, OpenWorld: true}
	ev := noEvidence
	switch level := methodOptions(md).GetIdempotencyLevel(); {
	case level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS:
		h.ReadOnly, h.Idempotent, ev = true, true, levelEvidence
	case level == descriptorpb.MethodOptions_IDEMPOTENT:
		h.Idempotent, ev = true, levelEvidence
	case len(bindings) > 0:
		switch bindings[0].Verb {
		case http.MethodGet, http.MethodHead:
			h.ReadOnly, h.Idempotent, ev = true, true, verbEvidence
		case http.MethodPut, http.MethodDelete:
			h.Idempotent, ev = true, verbEvidence
		}
	}
	if opt.GetReadOnly() {
		h.Idempotent = true
	}
	if opt != nil {
		set := func(dst *bool, v *bool) {
			if v != nil {
				*dst, ev = *v, optionEvidence
			}
		}
		set(&h.ReadOnly, opt.ReadOnly)
		set(&h.Idempotent, opt.Idempotent)
		h.Destructive = !h.ReadOnly
		set(&h.Destructive, opt.Destructive)
		if opt.OpenWorld != nil {
			h.OpenWorld = *opt.OpenWorld
		}
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
