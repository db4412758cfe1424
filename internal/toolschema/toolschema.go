// Package toolschema derives JSON Schema (draft 2020-12) from a protobuf message descriptor.
//
// What the contract says goes into the schema: comments, google.api.field_behavior, google.api.resource_reference,
// buf.validate, proto2 defaults, oneofs. What a profile cannot say in keywords is said in words, and the call enforces it all the same.
// The rules that a profile keeps are in [Rules]; [Problems] checks a schema against them.
package toolschema

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Direction says which side of a call a schema describes.
type Direction int

const (
	// Input is what a caller may send: output-only fields are left out, lenient forms are allowed.
	Input Direction = iota
	// Output is exactly what the mesh writes: input-only fields are left out.
	Output
)

// Profile says which subset of JSON Schema is used.
type Profile int

const (
	// Portable stays inside the subset that the major model APIs accept. It is the default.
	Portable Profile = iota
	// Full uses draft 2020-12 with everything.
	Full
	// Strict requires every property, nullable where optional, and closes every object. What cannot be said that way (maps,
	// google.protobuf.Struct, Value, Any) is left out and named. It is for what models write: an output schema is that of Full.
	Strict
)

// String returns the profile's name in configuration: "portable", "full" or "strict".
func (p Profile) String() string {
	switch p {
	case Full:
		return "full"
	case Strict:
		return "strict"
	default:
		return "portable"
	}
}

// ParseProfile returns the profile that String names.
func ParseProfile(name string) (Profile, error) {
	for _, p := range []Profile{Portable, Full, Strict} {
		if p.String() == name {
			return p, nil
		}
	}
	return 0, fmt.Errorf("profile %q: want portable, full or strict", name)
}

// Default limits of [Options].
const (
	DefaultMaxBytes = 32 << 10
	DefaultMaxDepth = 10
	// hardMaxBytes bounds a schema that was asked for without a bound.
	hardMaxBytes = 4 << 20
)

// Options say what schema to derive. The zero value is the portable input schema.
type Options struct {
	Direction Direction
	Profile   Profile
	// MaxBytes bounds the encoded schema; what is cut is stated and still accepted by the call. Default 32 KiB;
	// negative means no bound but 4 MiB. Below 256 bytes it is taken as 256.
	MaxBytes int
	// MaxDepth bounds how deep objects nest in the portable profile; the others refer to definitions. Default 10.
	MaxDepth int
	// List, if not empty, describes a stream instead of one message: an object whose one property List is an array of messages.
	List string
	// AnyTypes are full names of messages to name where a google.protobuf.Any is taken.
	AnyTypes []string
}

// For returns the schema of md: always a JSON object whose root is "type":"object".
// It never fails: what cannot be said in the schema is said in words. The result is compact and must not be changed.
// Equal descriptors and options give equal bytes. The schema is self-contained: every "$ref" points below its own "#/$defs".
func For(md protoreflect.MessageDescriptor, o Options) json.RawMessage {
	switch {
	case o.MaxBytes == 0:
		o.MaxBytes = DefaultMaxBytes
	case o.MaxBytes < 0 || o.MaxBytes > hardMaxBytes:
		o.MaxBytes = hardMaxBytes
	case o.MaxBytes < 256:
		o.MaxBytes = 256
	}
	if o.MaxDepth <= 0 {
		o.MaxDepth = DefaultMaxDepth
	}
	if o.Profile == Strict && o.Direction == Output {
		o.Profile = Full // no model writes a result, and a writer leaves out what is not set
	}
	if o.Profile == Portable {
		return inlined(md, o)
	}
	return referenced(md, o)
}
