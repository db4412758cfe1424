package transcode_test

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/transcode"
)

func Example() {
	set := transcode.NewSet(dynamicpb.NewTypes(protoregistry.GlobalFiles))
	m := set.Message((&descriptorpb.EnumValueDescriptorProto{}).ProtoReflect().Descriptor())

	wire, err := m.AppendWire(nil, []byte(`{"name": "RED", "number": "3.0"}`), transcode.ReadOptions{})
	fmt.Printf("%x %v\n", wire, err)

	text, err := m.AppendJSON(nil, wire, transcode.WriteOptions{})
	fmt.Printf("%s %v\n", text, err)

	_, err = m.AppendWire(nil, []byte(`{"nam": "RED"}`), transcode.ReadOptions{})
	fmt.Println(err)
	// Output:
	// 0a035245441003 <nil>
	// {"name":"RED","number":3} <nil>
	// unknown field "nam"; did you mean "name"?
}

func ExampleMessage_AppendParam() {
	set := transcode.NewSet(dynamicpb.NewTypes(protoregistry.GlobalFiles))
	m := set.Message((&descriptorpb.EnumValueDescriptorProto{}).ProtoReflect().Descriptor())

	// Fragments of one message are appended one after the other.
	wire, err := m.AppendParam(nil, "name", []string{"RED"})
	if err == nil {
		wire, err = m.AppendParam(wire, "options.deprecated", []string{"true"})
	}
	text, _ := m.AppendJSON(nil, wire, transcode.WriteOptions{})
	fmt.Printf("%s %v\n", text, err)
	// Output: {"name":"RED","options":{"deprecated":true}} <nil>
}

func ExampleCut() {
	set := transcode.NewSet(dynamicpb.NewTypes(protoregistry.GlobalFiles))
	m := set.Message((&descriptorpb.DescriptorProto{}).ProtoReflect().Descriptor())
	wire, _ := m.AppendWire(nil, []byte(`{"name":"M","reservedName":["a","b","c"]}`), transcode.ReadOptions{})

	var cut transcode.Cut
	text, _ := m.AppendJSON(nil, wire, transcode.WriteOptions{MaxItems: 2, Cut: &cut})
	fmt.Printf("%s\n%+v\n", text, cut.Places)
	// Output:
	// {"name":"M","reservedName":["a","b"]}
	// [{Path:reservedName Left:1 Bytes:0 Limit:items}]
}
