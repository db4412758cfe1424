// Package transcode turns protobuf wire bytes into ProtoJSON and back for any message descriptor, with no generated code.
//
// It follows the ProtoJSON mapping (https://protobuf.dev/programming-guides/json/).
package transcode

import (
	"sync"

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
	messages sync.Map // protoreflect.FullName → *Message
}

// NewSet returns an empty set whose messages resolve Any and extensions through types.
func NewSet(types Resolver) *Set { return &Set{types: types} }

// Message returns the transcoder of md, compiling it at first use.
func (s *Set) Message(md protoreflect.MessageDescriptor) *Message {
	if m, ok := s.messages.Load(md.FullName()); ok {
		return m.(*Message)
	}
	m, _ := s.messages.LoadOrStore(md.FullName(), &Message{set: s, desc: md})
	return m.(*Message)
}

// Message transcodes one message type. It is immutable and safe for concurrent use.
type Message struct {
	set  *Set
	desc protoreflect.MessageDescriptor
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
}

// ReadOptions say how JSON is read. The zero value refuses unknown fields.
type ReadOptions struct {
	// DiscardUnknown drops unknown fields and unknown enum names instead of refusing them.
	DiscardUnknown bool
	// MaxDepth bounds the nesting of the input. Default 100.
	MaxDepth int
}

// Error says why JSON is not a valid form of a message. Its text is meant for the caller who wrote the JSON.
type Error struct {
	// Path is where in the JSON, as dotted field names and [index], e.g. "orders[2].price"; "" is the root.
	Path string
	// Problem says what is wrong, e.g. `unknown field "minuts"`.
	Problem string
	// Want says what was expected there, e.g. "int32"; may be empty.
	Want string
	// Suggestion is a near miss that would have been right; may be empty.
	Suggestion string
}

// Error returns the one text that every door shows.
func (e *Error) Error() string {
	s := e.Problem
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	if e.Want != "" {
		s += ": want " + e.Want
	}
	if e.Suggestion != "" {
		s += `; did you mean "` + e.Suggestion + `"?`
	}
	return s
}
