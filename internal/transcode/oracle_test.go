package transcode_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/transcode"
)

// The oracle is protojson over dynamicpb. dynamicpb of protobuf v1.36.12 panics on some map entries, hence the recovers.

var errOraclePanic = errors.New("the oracle panicked")

func (s *descriptorSet) decode(md protoreflect.MessageDescriptor, wire []byte) (msg *dynamicpb.Message, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errOraclePanic, r)
		}
	}()
	msg = dynamicpb.NewMessage(md)
	err = proto.UnmarshalOptions{AllowPartial: true, Resolver: s.types}.Unmarshal(wire, msg)
	return msg, err
}

func (s *descriptorSet) oracleJSON(md protoreflect.MessageDescriptor, wire []byte, o transcode.WriteOptions) (out []byte, err error) {
	msg, err := s.decode(md, wire)
	if err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errOraclePanic, r)
		}
	}()
	return protojson.MarshalOptions{
		AllowPartial: true, Resolver: s.types, UseEnumNumbers: o.EnumNumbers, UseProtoNames: o.ProtoNames, EmitDefaultValues: o.EmitDefaults,
	}.Marshal(msg)
}

func (s *descriptorSet) oracleWire(md protoreflect.MessageDescriptor, src []byte, o transcode.ReadOptions) (msg *dynamicpb.Message, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errOraclePanic, r)
		}
	}()
	limit := o.MaxDepth
	if limit == 0 {
		limit = 100
	}
	msg = dynamicpb.NewMessage(md)
	err = protojson.UnmarshalOptions{AllowPartial: true, Resolver: s.types, DiscardUnknown: o.DiscardUnknown, RecursionLimit: limit}.Unmarshal(src, msg)
	return msg, err
}

func (s *descriptorSet) marshal(msg proto.Message) ([]byte, error) {
	return proto.MarshalOptions{AllowPartial: true, Deterministic: true}.Marshal(msg)
}

// sameJSON reports whether two texts are the same JSON value up to key order and space, with numbers compared by their text.
func sameJSON(a, b []byte) (bool, error) {
	x, err := parseJSON(a)
	if err != nil {
		return false, err
	}
	y, err := parseJSON(b)
	if err != nil {
		return false, err
	}
	return reflect.DeepEqual(x, y), nil
}

func parseJSON(b []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("%w in %s", err, b)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one value in %s", b)
	}
	return v, nil
}
