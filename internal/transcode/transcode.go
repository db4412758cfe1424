// Package transcode turns protobuf wire bytes into ProtoJSON and back for any message descriptor, with no generated code.
//
// It follows the ProtoJSON mapping (https://protobuf.dev/programming-guides/json/).
package transcode

import (
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Resolver finds the types that google.protobuf.Any values and extensions name. A *dynamicpb.Types is one.
type Resolver interface {
	protoregistry.MessageTypeResolver
	protoregistry.ExtensionTypeResolver
}

// Set holds the compiled messages of one resolver. It is safe for concurrent use.
type Set struct {
	types    Resolver
	messages sync.Map // protoreflect.MessageDescriptor → *Message
	enums    sync.Map // protoreflect.EnumDescriptor → *enum
	urls     urlCache
}

// NewSet returns an empty set whose messages resolve Any and extensions through types.
func NewSet(types Resolver) *Set { return &Set{types: types} }

// Message returns the transcoder of md, compiling it at first use.
func (s *Set) Message(md protoreflect.MessageDescriptor) *Message {
	if m, ok := s.messages.Load(md); ok {
		return m.(*Message)
	}
	m, _ := s.messages.LoadOrStore(md, &Message{set: s, desc: md})
	return m.(*Message)
}

// Message transcodes one message type. It is immutable and safe for concurrent use.
type Message struct {
	set      *Set
	desc     protoreflect.MessageDescriptor
	compiled atomic.Pointer[plan]
}

// Descriptor returns the descriptor that m was compiled from.
func (m *Message) Descriptor() protoreflect.MessageDescriptor { return m.desc }

// WriteOptions say how JSON is written. The zero value writes canonical ProtoJSON: lowerCamelCase names, unset fields left out,
// enums by name.
type WriteOptions struct {
	// EmitDefaults writes unset implicit-presence scalars, empty lists and maps too.
	EmitDefaults bool
	// EnumNumbers writes enum values as numbers.
	EnumNumbers bool
	// ProtoNames writes the names of the .proto file instead of lowerCamelCase.
	ProtoNames bool
	// OpaqueAny writes a google.protobuf.Any of an unknown type as its "@type" and, under "value", its bytes in base64, instead of failing.
	OpaqueAny bool
	// MaxBytes bounds the text: list and map elements, then other fields, that would go beyond are left out. 0 means no bound. A root
	// that is no object or list (a wrapper, a timestamp), and the "@type" of a root that is an Any, are never cut.
	MaxBytes int
	// MaxItems bounds the elements written of each list and map. 0 means no bound.
	MaxItems int
	// MaxDepth bounds the nesting of the text: an object or list below it is written empty. 0 means no bound.
	MaxDepth int
	// Cut, when not nil, is set to what the limits left out.
	Cut *Cut
}

// ReadOptions say how JSON is read. The zero value refuses unknown fields.
type ReadOptions struct {
	// DiscardUnknown drops unknown fields and unknown enum names instead of refusing them.
	DiscardUnknown bool
	// MaxDepth bounds the nesting of the input. Default 100.
	MaxDepth int
}
