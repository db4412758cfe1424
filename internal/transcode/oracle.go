package transcode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// AppendJSON appends the JSON form of the message whose wire bytes are wire. Unknown fields are left out.
func (m *Message) AppendJSON(dst, wire []byte, o WriteOptions) ([]byte, error) {
	msg, err := m.decode(wire)
	if err != nil {
		return dst, err
	}
	return m.appendMessage(dst, msg, o)
}

// AppendFieldJSON appends the JSON form of one field of the message (google.api.http response_body).
// A field that is not set is written as its empty form: {}, [], or the default value.
func (m *Message) AppendFieldJSON(dst []byte, field string, wire []byte, o WriteOptions) ([]byte, error) {
	o.EmitDefaults = true
	all, err := m.AppendJSON(nil, wire, o)
	if err != nil {
		return dst, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(all, &fields); err != nil {
		return dst, err
	}
	fd := m.desc.Fields().ByName(protoreflect.Name(field))
	if fd == nil {
		return dst, fmt.Errorf("%s has no field %q", m.desc.FullName(), field)
	}
	if v, ok := fields[fd.JSONName()]; ok {
		return append(dst, v...), nil
	}
	if fd.Message() != nil {
		return append(dst, "{}"...), nil
	}
	return append(dst, "null"...), nil
}

// AppendWire appends the wire form of the message whose JSON form is src. An error is an *Error.
func (m *Message) AppendWire(dst, src []byte, o ReadOptions) ([]byte, error) {
	msg := dynamicpb.NewMessage(m.desc)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: o.DiscardUnknown, Resolver: m.set.types, RecursionLimit: o.MaxDepth}).Unmarshal(src, msg); err != nil {
		return dst, &Error{Problem: strings.ReplaceAll(err.Error(), "\u00a0", " ")}
	}
	return proto.MarshalOptions{AllowPartial: true}.MarshalAppend(dst, msg)
}

// AppendFieldWire appends the wire form of the message in which only the named field is set, to the JSON value src
// (google.api.http body: "field"). An error is an *Error.
func (m *Message) AppendFieldWire(dst []byte, field string, src []byte, o ReadOptions) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{%q:", field)
	b.Write(src)
	b.WriteByte('}')
	return m.AppendWire(dst, b.Bytes(), o)
}

// AppendParam appends the wire form of the message in which only the field at the dotted path is set from text: a path or query
// parameter of a google.api.http rule. Both proto and JSON names are accepted. Several values need a repeated field.
// Because wire fragments merge, fragments can simply be appended one after the other. An error is an *Error.
func (m *Message) AppendParam(dst []byte, path string, values []string) ([]byte, error) {
	msg := dynamicpb.NewMessage(m.desc)
	if err := runtime.PopulateQueryParameters(msg, url.Values{path: values}, utilities.NewDoubleArray(nil)); err != nil {
		return dst, &Error{Path: path, Problem: err.Error()}
	}
	out, err := proto.MarshalOptions{AllowPartial: true}.MarshalAppend(dst, msg)
	if err == nil && len(out) == len(dst) && m.desc.Fields().ByName(protoreflect.Name(strings.Split(path, ".")[0])) == nil {
		return dst, &Error{Path: path, Problem: "unknown parameter"}
	}
	return out, err
}

// AppendCanonical appends the one wire form that all equal messages share, whatever encoder made them.
func (m *Message) AppendCanonical(dst, wire []byte) ([]byte, error) {
	msg, err := m.decode(wire)
	if err != nil {
		return dst, err
	}
	return proto.MarshalOptions{AllowPartial: true, Deterministic: true}.MarshalAppend(dst, msg)
}

func (m *Message) appendMessage(dst []byte, msg proto.Message, o WriteOptions) ([]byte, error) {
	out, err := (protojson.MarshalOptions{AllowPartial: true, UseEnumNumbers: o.EnumNumbers, UseProtoNames: o.ProtoNames, EmitDefaultValues: o.EmitDefaults, Resolver: m.set.types}).Marshal(msg)
	if err != nil {
		return dst, err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, out); err != nil {
		return dst, err
	}
	return append(dst, b.Bytes()...), nil
}

// decode parses wire bytes from outside. dynamicpb of protobuf v1.36.12 panics on some map entries, hence the recover.
func (m *Message) decode(wire []byte) (msg *dynamicpb.Message, err error) {
	defer func() {
		if r := recover(); r != nil {
			msg, err = nil, fmt.Errorf("malformed %s: %v", m.desc.FullName(), r)
		}
	}()
	msg = dynamicpb.NewMessage(m.desc)
	if err := (proto.UnmarshalOptions{AllowPartial: true, Resolver: m.set.types}).Unmarshal(wire, msg); err != nil {
		return nil, fmt.Errorf("malformed %s: %w", m.desc.FullName(), err)
	}
	return msg, nil
}
