package mcpadapter

import (
	"testing"

	"google.golang.org/protobuf/types/descriptorpb"
)

func TestJSONPath(t *testing.T) {
	md := (&descriptorpb.FileDescriptorProto{}).ProtoReflect().Descriptor()
	for path, want := range map[string]string{
		"":                                 "",
		"name":                             "name",
		"message_type[2].oneof_decl[0]":    "messageType[2].oneofDecl[0]",
		"message_type[\"a].b\"].enum_type": "messageType[\"a].b\"].enumType",
		"source_code_info.location":        "sourceCodeInfo.location",
		"sourceCodeInfo.location":          "sourceCodeInfo.location",
		"name.more":                        "name.more",
		"message_type[2":                   "message_type[2",
		"message_type.":                    "message_type.",
		"message_type[2]x":                 "message_type[2]x",
		"no_such.field":                    "no_such.field",
	} {
		if got := jsonPath(md, path); got != want {
			t.Errorf("jsonPath(%q) = %q, want %q", path, got, want)
		}
	}
}
