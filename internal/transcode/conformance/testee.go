package main

import (
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/transcode"
)

// Numbers of conformance.WireFormat and conformance.TestCategory.
const (
	formatProtobuf = 1
	formatJSON     = 2

	categoryJSONIgnoreUnknown = 3
)

// testee knows the test messages of the suite.
type testee struct {
	files    *protoregistry.Files
	codec    *transcode.Set
	request  protoreflect.MessageDescriptor
	response protoreflect.MessageDescriptor
}

// open loads the suite's descriptors.
func open(path string) (*testee, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fds := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(b, fds); err != nil {
		return nil, fmt.Errorf("load descriptors from %q: %w", path, err)
	}
	for _, fd := range fds.File {
		for _, md := range fd.MessageType {
			dropMessageSet(md)
		}
	}
	files, err := protodesc.NewFiles(fds)
	if err != nil {
		return nil, fmt.Errorf("load descriptors from %q: %w", path, err)
	}
	t := &testee{files: files, codec: transcode.NewSet(dynamicpb.NewTypes(files))}
	if t.request, err = t.message("conformance.ConformanceRequest"); err != nil {
		return nil, err
	}
	t.response, err = t.message("conformance.ConformanceResponse")
	return t, err
}

// dropMessageSet makes plain messages of message sets, which Go does not load: their files hold the proto2 test messages too.
func dropMessageSet(md *descriptorpb.DescriptorProto) {
	if md.GetOptions().GetMessageSetWireFormat() {
		md.Options.MessageSetWireFormat = nil
		for _, r := range md.ExtensionRange {
			r.End = proto.Int32(min(r.GetEnd(), 1<<29))
		}
	}
	for _, nested := range md.NestedType {
		dropMessageSet(nested)
	}
}

func (t *testee) message(name string) (protoreflect.MessageDescriptor, error) {
	d, err := t.files.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil, fmt.Errorf("find message %q: %w", name, err)
	}
	md, ok := d.(protoreflect.MessageDescriptor)
	if !ok {
		return nil, fmt.Errorf("%q is no message", name)
	}
	return md, nil
}

// answer handles one conformance.ConformanceRequest and returns a conformance.ConformanceResponse, both as wire bytes.
func (t *testee) answer(request []byte) ([]byte, error) {
	req := dynamicpb.NewMessage(t.request)
	if err := proto.Unmarshal(request, req); err != nil {
		return nil, fmt.Errorf("read a request: %w", err)
	}
	res := dynamicpb.NewMessage(t.response)
	field, value := t.convert(req)
	res.Set(t.response.Fields().ByName(field), value)
	return proto.Marshal(res)
}

// convert returns the field of the response and its value.
func (t *testee) convert(req protoreflect.Message) (protoreflect.Name, protoreflect.Value) {
	get := func(name protoreflect.Name) protoreflect.Value { return req.Get(t.request.Fields().ByName(name)) }
	text := func(name protoreflect.Name, s string) (protoreflect.Name, protoreflect.Value) {
		return name, protoreflect.ValueOfString(s)
	}
	md, err := t.message(get("message_type").String())
	if err != nil {
		return text("runtime_error", err.Error())
	}
	m := t.codec.Message(md)
	var wire []byte
	switch set := req.WhichOneof(t.request.Oneofs().ByName("payload")); set.Name() {
	case "protobuf_payload":
		wire = get("protobuf_payload").Bytes()
		err = m.Check(wire)
	case "json_payload":
		ignore := get("test_category").Enum() == categoryJSONIgnoreUnknown
		wire, err = m.AppendWire(nil, []byte(get("json_payload").String()), transcode.ReadOptions{DiscardUnknown: ignore})
	default:
		return text("skipped", "package transcode knows wire bytes and JSON only")
	}
	if err != nil {
		return text("parse_error", err.Error())
	}
	switch get("requested_output_format").Enum() {
	case formatProtobuf:
		out, err := m.AppendCanonical(nil, wire)
		if err != nil {
			return text("serialize_error", err.Error())
		}
		return "protobuf_payload", protoreflect.ValueOfBytes(out)
	case formatJSON:
		out, err := m.AppendJSON(nil, wire, transcode.WriteOptions{})
		if err != nil {
			return text("serialize_error", err.Error())
		}
		return text("json_payload", string(out))
	}
	return text("skipped", "package transcode knows wire bytes and JSON only")
}
