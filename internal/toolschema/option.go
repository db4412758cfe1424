package toolschema

import (
	"sync"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	openapi "github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-openapiv2/options"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// known are the option extensions that a schema is made from.
var known = sync.OnceValue(func() *protoregistry.Types {
	t := new(protoregistry.Types)
	for _, x := range []protoreflect.ExtensionType{
		validate.E_Field, validate.E_Message, validate.E_Oneof,
		annotations.E_FieldBehavior, annotations.E_ResourceReference, annotations.E_Resource, annotations.E_FieldInfo,
		openapi.E_Openapiv2Field,
	} {
		// The numbers are distinct per extendee, so registration cannot fail.
		_ = t.RegisterExtension(x)
	}
	return t
})

// options returns the options of d with the known extensions parsed as their generated types, or nil.
// Loaders differ: an extension may be an unknown field, or be parsed with another type.
func options(d protoreflect.Descriptor) proto.Message {
	o := d.Options()
	if o == nil {
		return nil
	}
	m := o.ProtoReflect()
	if !m.IsValid() {
		return nil
	}
	foreign := len(m.GetUnknown()) > 0
	m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if fd.IsExtension() {
			x, err := known().FindExtensionByNumber(fd.ContainingMessage().FullName(), fd.Number())
			if err == nil && fd != protoreflect.FieldDescriptor(x.TypeDescriptor()) {
				foreign = true
			}
		}
		return !foreign
	})
	if !foreign {
		return o
	}
	b, err := proto.MarshalOptions{AllowPartial: true}.Marshal(o)
	if err != nil {
		return o
	}
	again := m.Type().New().Interface()
	if err := (proto.UnmarshalOptions{AllowPartial: true, Resolver: known()}).Unmarshal(b, again); err != nil {
		return nil
	}
	return again
}

// option returns the value of extension x in o, which options returned, or the zero value.
func option[T any](o proto.Message, x protoreflect.ExtensionType) T {
	var zero T
	if o == nil || !proto.HasExtension(o, x) {
		return zero
	}
	v, ok := proto.GetExtension(o, x).(T)
	if !ok {
		return zero
	}
	return v
}
