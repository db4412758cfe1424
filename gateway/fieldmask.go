package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// updateMask returns the field that a PATCH without a mask fills from the names in its body: as in grpc-gateway, a field "update_mask"
// beside a body that is a message field.
func updateMask(verb string, in protoreflect.MessageDescriptor, body protoreflect.FieldDescriptor) protoreflect.FieldDescriptor {
	if verb != http.MethodPatch || body.Message() == nil || body.IsList() || body.IsMap() {
		return nil
	}
	fd := in.Fields().ByName("update_mask")
	if fd == nil || fd.IsList() || fd.Message() == nil || fd.Message().FullName() != "google.protobuf.FieldMask" {
		return nil
	}
	return fd
}

// appendMask appends a field mask with the paths of all fields in the JSON body, which has been read as md before.
func appendMask(dst []byte, mask protoreflect.FieldDescriptor, md protoreflect.MessageDescriptor, body []byte) []byte {
	var wire []byte
	for _, p := range maskPaths(md, body, "", nil) {
		wire = protowire.AppendTag(wire, 1, protowire.BytesType)
		wire = protowire.AppendString(wire, p)
	}
	if len(wire) == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, mask.Number(), protowire.BytesType)
	return protowire.AppendBytes(dst, wire)
}

// maskPaths returns the paths in the order of the body. A path ends at repeated fields, maps, an empty object, null, and at every message
// whose JSON is not made of its fields (Struct, Any, Timestamp, wrappers).
func maskPaths(md protoreflect.MessageDescriptor, body []byte, prefix string, out []string) []string {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return out
	}
	for dec.More() {
		t, err := dec.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return out
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return out
		}
		fd := fieldNamed(md, key)
		if fd == nil {
			continue
		}
		path := prefix + string(fd.Name())
		if inner := maskPathsOf(fd, value, path+"."); len(inner) > 0 {
			out = append(out, inner...)
			continue
		}
		out = append(out, path)
	}
	return out
}

func maskPathsOf(fd protoreflect.FieldDescriptor, value []byte, prefix string) []string {
	if fd.Message() == nil || fd.IsList() || fd.IsMap() || strings.HasPrefix(string(fd.Message().FullName()), "google.protobuf.") {
		return nil
	}
	return maskPaths(fd.Message(), value, prefix, nil)
}
