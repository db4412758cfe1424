package transcode_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/toolway/toolway/internal/transcode"
)

const scalarProto = `
edition = "2023";
package test;
enum E { option features.enum_type = OPEN; E_NONE = 0; E_ONE = 1; }
message In {
  string s = 1; bytes b = 2; bool t = 3; E e = 4; float f = 5; double d = 6;
  int32 i32 = 7; int64 i64 = 8; uint32 u32 = 9; uint64 u64 = 10; sint32 s32 = 11; sint64 s64 = 12;
  fixed32 f32 = 13; fixed64 f64 = 14; sfixed32 sf32 = 15; sfixed64 sf64 = 16;
}
message M {
  In in = 1;
  In group = 2 [features.message_encoding = DELIMITED];
  repeated string list = 3;
}
`

// TestScalar reads back what a parameter has set, whatever stands around it.
func TestScalar(t *testing.T) {
	set := compileProto(t, scalarProto)
	m := set.codec.Message(set.message(t, "test.M"))
	for _, c := range []struct{ field, text string }{
		{"s", "a\nb"}, {"s", ""}, {"b", "/+8="}, {"t", "true"}, {"t", "false"}, {"e", "E_ONE"}, {"e", "7"}, {"e", "-1"}, {"f", "1.5"}, {"f", "-Infinity"}, {"d", "NaN"}, {"d", "0.1"},
		{"i32", "-2147483648"}, {"i64", "-9223372036854775808"}, {"u32", "4294967295"}, {"u64", "18446744073709551615"}, {"s32", "-2147483648"}, {"s64", "-9223372036854775808"},
		{"f32", "4294967295"}, {"f64", "18446744073709551615"}, {"sf32", "-2147483648"}, {"sf64", "-9223372036854775808"}, {"u64", "0"},
	} {
		for _, path := range []string{"in." + c.field, "group." + c.field} {
			s, err := transcode.NewScalar(m.Descriptor(), path)
			if err != nil {
				t.Fatal(err)
			}
			wire, err := m.AppendParam(nil, path, []string{c.text})
			if err != nil {
				t.Fatal(err)
			}
			around := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), "x")
			wire = slices.Concat(around, wire, around)
			if got, ok := s.AppendText([]byte("id: "), wire); !ok || string(got) != "id: "+c.text {
				t.Errorf("%s = %q, %v, want %q", path, got, ok, c.text)
			}
			if got, ok := s.AppendText(nil, around); ok || len(got) > 0 {
				t.Errorf("%s of a message without it = %q", path, got)
			}
			if got, ok := s.AppendText(nil, wire[:len(wire)-1]); ok || len(got) > 0 {
				t.Errorf("%s of a message that is cut off = %q", path, got)
			}
		}
	}
	s, err := transcode.NewScalar(m.Descriptor(), "in.u64")
	if err != nil {
		t.Fatal(err)
	}
	var wire []byte
	for _, v := range []string{"1", "2"} { // fragments merge: the last counts
		if wire, err = m.AppendParam(wire, "in.u64", []string{v}); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := s.AppendText(nil, wire); string(got) != "2" {
		t.Errorf("merged = %q, want 2", got)
	}
	for _, path := range []string{"", "none", "in", "in.none", "in.s.x", "list", "list.x"} {
		if _, err := transcode.NewScalar(m.Descriptor(), path); err == nil {
			t.Errorf("path %q was taken", path)
		}
	}
}
