package transcode_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/transcode"
)

// TestReadEdges reads JSON and writes it back; "" means that it is refused. Each verdict is the oracle's too.
func TestReadEdges(t *testing.T) {
	set, m := orders(t)
	for _, c := range []struct{ in, want string }{
		{`{}`, `{}`},
		{" {\t\"orderId\" :\r\n\"a\" } \n", `{"orderId":"a"}`},
		{`{"order_id":"a","delay_minutes":0}`, `{"orderId":"a"}`},
		{`{"order\u0049d":"a"}`, `{"orderId":"a"}`},
		{`{"totalCents":9007199254740993}`, `{"totalCents":"9007199254740993"}`},
		{`{"totalCents":"9007199254740993"}`, `{"totalCents":"9007199254740993"}`},
		{`{"totalCents":9007199254740993.0}`, `{"totalCents":"9007199254740993"}`},
		{`{"totalCents":9007199254740993.5}`, ``},
		{`{"totalCents":-9223372036854775808}`, `{"totalCents":"-9223372036854775808"}`},
		{`{"totalCents":9223372036854775808}`, ``},
		{`{"totalCents":1e3}`, `{"totalCents":"1000"}`},
		{`{"totalCents":"1E+3"}`, `{"totalCents":"1000"}`},
		{`{"totalCents":1.5e1}`, `{"totalCents":"15"}`},
		{`{"totalCents":100e-2}`, `{"totalCents":"1"}`},
		{`{"totalCents":1e-1}`, ``},
		{`{"totalCents":0e99999999999}`, `{}`},
		{`{"totalCents":1e99999999999}`, ``},
		{`{"totalCents":" 1"}`, ``},
		{`{"totalCents":"0x1"}`, ``},
		{`{"totalCents":01}`, ``},
		{`{"totalCents":+1}`, ``},
		{`{"totalCents":.5}`, ``},
		{`{"totalCents":-}`, ``},
		{`{"big":18446744073709551615}`, `{"big":"18446744073709551615"}`},
		{`{"big":1.8446744073709551615e19}`, `{"big":"18446744073709551615"}`},
		{`{"big":18446744073709551616}`, ``},
		{`{"big":-0}`, `{}`},
		{`{"big":-1}`, ``},
		{`{"weight":3.4028235e38}`, `{"weight":3.4028235e+38}`},
		{`{"weight":3.5e38}`, ``},
		{`{"weight":"NaN"}`, `{"weight":"NaN"}`},
		{`{"weight":"-Infinity"}`, `{"weight":"-Infinity"}`},
		{`{"weight":"1.5"}`, `{"weight":1.5}`},
		{`{"weight":NaN}`, ``},
		{`{"weight":"inf"}`, ``},
		{`{"weight":-0}`, `{"weight":-0}`},
		{`{"express":true}`, `{"express":true}`},
		{`{"express":1}`, ``},
		{`{"express":trueish}`, ``},
		{`{"signature":"_-8"}`, `{"signature":"/+8="}`},
		{`{"signature":"/+8="}`, `{"signature":"/+8="}`},
		{`{"signature":"/+8"}`, `{"signature":"/+8="}`},
		{`{"signature":"a"}`, ``},
		{`{"orderId":"\ud83d\ude00\u00e9\"\\\/\b\f\n\r\t"}`, `{"orderId":"😀é\"\\/\b\f\n\r\t"}`},
		{`{"orderId":"\ud83d"}`, ``},
		{`{"orderId":"\ude00\ud83d"}`, ``},
		{`{"orderId":"\u12"}`, ``},
		{"{\"orderId\":\"a\nb\"}", ``},
		{`{"orderId":null,"items":null,"counts":null,"parent":null,"limit":null,"card":null,"barter":{}}`, `{"barter":{}}`},
		{`{"extra":null}`, `{"extra":null}`},
		{`{"none":null}`, `{}`},
		{`{"items":[null]}`, ``},
		{`{"tags":["",null]}`, ``},
		{`{"items":[{},{"color":1},{"color":"GREEN"},{"color":99},{"color":2.0}]}`, `{"items":[{},{"color":"RED"},{"color":"GREEN"},{"color":99},{"color":"GREEN"}]}`},
		{`{"items":[{"color":"1"}]}`, ``},
		{`{"colors":["RED",0,"PURPLE"]}`, `{"colors":["RED","COLOR_UNSPECIFIED","PURPLE"]}`},
		{`{"maybe":0}`, `{"maybe":0}`},
		{`{"counts":{"":0,"b":2,"a":1}}`, `{"counts":{"":0,"a":1,"b":2}}`},
		{`{"counts":{"a":1,"\u0061":2}}`, ``},
		{`{"byLine":{"10":{},"-2":{"sku":"x"},"9":{}}}`, `{"byLine":{"-2":{"sku":"x"},"9":{},"10":{}}}`},
		{`{"byLine":{"1":null}}`, ``},
		{`{"byLine":{"1.0":{}}}`, ``},
		{`{"flags":{"true":"t","false":"f"}}`, `{"flags":{"false":"f","true":"t"}}`},
		{`{"placedAt":"2026-01-31T12:00:00.5+01:30"}`, `{"placedAt":"2026-01-31T10:30:00.500Z"}`},
		{`{"placedAt":"2024-02-29T23:59:59.000001Z"}`, `{"placedAt":"2024-02-29T23:59:59.000001Z"}`},
		{`{"placedAt":"2023-02-29T00:00:00Z"}`, ``},
		{`{"placedAt":"0001-01-01T00:00:00Z"}`, `{"placedAt":"0001-01-01T00:00:00Z"}`},
		{`{"placedAt":"9999-12-31T23:59:59.999999999Z"}`, `{"placedAt":"9999-12-31T23:59:59.999999999Z"}`},
		{`{"placedAt":"9999-12-31T23:59:59.9999999999Z"}`, ``},
		{`{"placedAt":"9999-12-31T23:59:59-00:01"}`, ``},
		{`{"placedAt":"2026-01-31T12:00:00"}`, ``},
		{`{"placedAt":"2026-01-31T12:00:60Z"}`, ``},
		{`{"leadTime":"-0.5s"}`, `{"leadTime":"-0.500s"}`},
		{`{"leadTime":"1.s"}`, `{"leadTime":"1s"}`},
		{`{"leadTime":".000000001s"}`, `{"leadTime":"0.000000001s"}`},
		{`{"leadTime":"315576000000s"}`, `{"leadTime":"315576000000s"}`},
		{`{"leadTime":"315576000001s"}`, ``},
		{`{"leadTime":"1.0000000001s"}`, ``},
		{`{"leadTime":"s"}`, ``},
		{`{"leadTime":"-s"}`, ``},
		{`{"mask":"orderId,parent.items"}`, `{"mask":"orderId,parent.items"}`},
		{`{"mask":""}`, `{"mask":""}`},
		{`{"mask":"a,,b"}`, ``},
		{`{"meta":{"b":[1,"x",null,true,{}],"a":{"c":1e300}}}`, `{"meta":{"a":{"c":1e+300},"b":[1,"x",null,true,{}]}}`},
		{`{"extra":1e400}`, ``},
		{`{"rows":[[],[1]]}`, `{"rows":[[],[1]]}`},
		{`{"limit":"5"}`, `{"limit":"5"}`},
		{`{"limit":0}`, `{"limit":"0"}`},
		{`{"on":false}`, `{"on":false}`},
		{`{"detail":{}}`, `{"detail":{}}`},
		{`{"detail":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1.5s"}}`, `{"detail":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1.500s"}}`},
		{`{"detail":{"sku":"x","@type":"type.googleapis.com/acme.orders.v1.Item"}}`, `{"detail":{"@type":"type.googleapis.com/acme.orders.v1.Item","sku":"x"}}`},
		{`{"detail":{"@type":"type.googleapis.com/acme.orders.v1.Item"}}`, `{"detail":{"@type":"type.googleapis.com/acme.orders.v1.Item"}}`},
		{`{"detail":{"@type":"type.googleapis.com/google.protobuf.Any","value":{"@type":"x.y/google.protobuf.Int64Value","value":"7"}}}`,
			`{"detail":{"@type":"type.googleapis.com/google.protobuf.Any","value":{"@type":"x.y/google.protobuf.Int64Value","value":"7"}}}`},
		{`{"detail":{"@type":"type.googleapis.com/google.protobuf.Empty"}}`, `{"detail":{"@type":"type.googleapis.com/google.protobuf.Empty"}}`},
		{`{"detail":{"@type":"type.googleapis.com/google.protobuf.Struct","value":{"a":1}}}`, `{"detail":{"@type":"type.googleapis.com/google.protobuf.Struct","value":{"a":1}}}`},
		{`{"detail":{"@type":"type.googleapis.com/acme.orders.v1.Item","@type":"type.googleapis.com/acme.orders.v1.Item"}}`, ``},
		{`{"detail":{"@type":""}}`, ``},
		{`{"detail":{"@type":1}}`, ``},
		{`{"testTest":"x","_aB":"y","aB":"z"}`, `{"testTest":"x","_aB":"y","aB":"z"}`},
		{`{"a_b":"y"}`, `{"_aB":"y"}`},
		{`{"a":1} {}`, ``},
		{`nul`, ``},
		{`null`, ``},
	} {
		wire, err := m.AppendWire(nil, []byte(c.in), transcode.ReadOptions{})
		if (err == nil) != (c.want != "") {
			t.Errorf("AppendWire(%s) error = %v, want %q", c.in, err, c.want)
			continue
		}
		agreeWire(t, set, m.Descriptor(), []byte(c.in), transcode.ReadOptions{})
		if err != nil {
			continue
		}
		got, err := m.AppendJSON(nil, wire, transcode.WriteOptions{})
		if err != nil || string(got) != c.want {
			t.Errorf("AppendWire(%s) reads back as %s, %v, want %s", c.in, got, err, c.want)
		}
	}
}

// TestDiscardUnknown reads JSON with strangers in it.
func TestDiscardUnknown(t *testing.T) {
	set, m := orders(t)
	for _, c := range []struct{ in, want string }{
		{`{"zzz":{"a":[1,{"b":null}]},"orderId":"a"}`, `{"orderId":"a"}`},
		{`{"colors":["RED","NEVER","GREEN"]}`, `{"colors":["RED","GREEN"]}`},
		{`{"items":[{"color":"NEVER","sku":"a"}]}`, `{"items":[{"sku":"a"}]}`},
		{`{"detail":{"no":"type"}}`, `{"detail":{}}`},
		{`{"nothing":{"a":[]}}`, `{"nothing":{}}`},
		{`{"zzz":[1,]}`, ``},
		{`{"zzz":"\x"}`, ``},
		{`{"zzz":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, ``},
	} {
		o := transcode.ReadOptions{DiscardUnknown: true}
		wire, err := m.AppendWire(nil, []byte(c.in), o)
		if (err == nil) != (c.want != "") {
			t.Errorf("AppendWire(%s) error = %v, want %q", c.in, err, c.want)
			continue
		}
		agreeWire(t, set, m.Descriptor(), []byte(c.in), o)
		if err != nil {
			continue
		}
		if got, err := m.AppendJSON(nil, wire, transcode.WriteOptions{}); err != nil || string(got) != c.want {
			t.Errorf("AppendWire(%s) reads back as %s, %v, want %s", c.in, got, err, c.want)
		}
	}
}

// TestWireEdges writes the wire bytes that encoders seldom make; "" means that they are refused.
func TestWireEdges(t *testing.T) {
	set, m := orders(t)
	for _, c := range []struct{ name, wire, want string }{
		{"empty", "", `{}`},
		{"out of order", "1005 0a0161", `{"orderId":"a","delayMinutes":5}`},
		{"scalar twice", "1005 1006", `{"delayMinutes":6}`},
		{"scalar overridden with zero", "1005 1000", `{}`},
		{"message split in two", "aa01 03 0a0161 aa01 02 1005", `{"parent":{"orderId":"a","delayMinutes":5}}`},
		{"split deeper", "aa01 06 aa01 03 0a0161 aa01 05 aa01 02 1005", `{"parent":{"parent":{"orderId":"a","delayMinutes":5}}}`},
		{"oneof overridden", "5a0161 6200", `{"barter":{}}`},
		{"oneof overridden and back", "6202 1005 5a0161 6203 0a0162", `{"barter":{"sku":"b"}}`},
		{"list resumed", "4200 0a0161 4202 1005", `{"orderId":"a","items":[{},{"quantity":5}]}`},
		{"enums packed and not", "b001 01 b201 02 0203 b001 02", `{"colors":["RED","GREEN","PURPLE","GREEN"]}`},
		{"empty packed", "b201 00", `{}`},
		{"wrong wire type", "0d 00000000 0a0161", `{"orderId":"a"}`},
		{"unknown fields", "c83e 05 cb3e 0805 cc3e 0a0161", `{"orderId":"a"}`},
		{"map key twice in one entry", "4a08 0a0161 0a0162 1005", `{"counts":{"b":5}}`},
		{"map key given twice", "4a05 0a0161 1001 4a05 0a0161 1002", `{"counts":{"a":2}}`},
		{"map entry without key", "4a02 1005", `{"counts":{"":5}}`},
		{"map entry without value", "4a03 0a0161", `{"counts":{"a":0}}`},
		{"map entry with strangers", "4a09 0a0161 1d00000000 1005", ``},
		{"map key of another wire type (C100)", "4a05 0a0161 0800", `{"counts":{"a":0}}`},
		{"map value in pieces", "520a 0801 1203 0a0161 1202 1005", ``},
		{"map value in two pieces", "520b 0801 1203 0a0161 1202 1005", `{"byLine":{"1":{"sku":"a","quantity":5}}}`},
		{"int32 of ten bytes", "10ffffffffffffffffff01", `{"delayMinutes":-1}`},
		{"int32 cut to its width", "10ffffffff1f", `{"delayMinutes":-1}`},
		{"truncated tag", "0a0161 80", ``},
		{"truncated varint", "10ff", ``},
		{"truncated string", "0a0561", ``},
		{"varint too long", "10ffffffffffffffffffff01", ``},
		{"field number zero", "0000", ``},
		{"group not closed", "cb3e", ``},
		{"group closed twice", "cc3e", ``},
		{"invalid UTF-8", "0a01ff", ``},
		{"truncated message", "aa01 05 0a", ``},
		{"any without type", "9201 02 1200", `{"detail":{}}`},
		{"any with a value but no type", "9201 03 1201 61", ``},
		{"value without kind", "8a01 00", ``},
		{"time out of range", "6a0b 08 ffffffffffffffffff01", `{"placedAt":"1969-12-31T23:59:59Z"}`},
		{"nanos out of range", "6a0b 10 ffffffffffffffffff01", ``},
	} {
		wire, err := hex.DecodeString(strings.ReplaceAll(c.wire, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.AppendJSON(nil, wire, transcode.WriteOptions{})
		if (err == nil) != (c.want != "") || string(got) != c.want {
			t.Errorf("%s: AppendJSON(%s) = %s, %v, want %s", c.name, c.wire, got, err, c.want)
		}
		agree(t, set, m.Descriptor(), wire, transcode.WriteOptions{})
		for n := range wire {
			_, _ = m.AppendJSON(nil, wire[:n], transcode.WriteOptions{})
			agree(t, set, m.Descriptor(), wire[:n], transcode.WriteOptions{})
		}
	}
}

// TestWireDepth nests messages beyond the bound, in every way at once at each level, which must not take exponential time.
func TestWireDepth(t *testing.T) {
	_, m := orders(t)
	wire := []byte{0x10, 0x01}
	for range 400 {
		wire = appendBytes([]byte{0x10, 0x05}, 21, wire)
		wire = append(wire, 0x0a, 0x01, 'a') // the field order is wrong at each level
	}
	if _, err := m.AppendJSON(nil, wire, transcode.WriteOptions{}); err != nil {
		t.Errorf("AppendJSON of 400 levels: %v", err)
	}
	for range 200 {
		wire = appendBytes(nil, 21, wire)
	}
	if _, err := m.AppendJSON(nil, wire, transcode.WriteOptions{}); !tooDeep(err) {
		t.Errorf("AppendJSON of 600 levels error = %v, want one about the depth", err)
	}
	if err := m.Check(wire); !tooDeep(err) {
		t.Errorf("Check of 600 levels = %v, want one about the depth", err)
	}
	if _, err := m.AppendCanonical(nil, wire); !tooDeep(err) {
		t.Errorf("AppendCanonical of 600 levels error = %v, want one about the depth", err)
	}
}

func appendBytes(b []byte, num byte, body []byte) []byte {
	tag := uint64(num)<<3 | 2
	return append(appendVarint(appendVarint(b, tag), uint64(len(body))), body...)
}

func appendVarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// TestFieldForms covers the two forms that google.api.http has for one field.
func TestFieldForms(t *testing.T) {
	_, m := orders(t)
	wire, err := m.AppendWire(nil, []byte(`{"orderId":"a","items":[{"sku":"x"},{}],"counts":{"k":1},"barter":{"quantity":2},"extra":null}`), transcode.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"order_id": `"a"`, "orderId": `"a"`, "items": `[{"sku":"x"},{}]`, "counts": `{"k":1}`, "barter": `{"quantity":2}`, "extra": `null`,
		"delay_minutes": `0`, "total_cents": `"0"`, "tags": `[]`, "by_line": `{}`, "parent": `{}`, "placed_at": `null`, "mask": `""`, "rows": `[]`, "meta": `{}`, "colors": `[]`,
	} {
		if got, err := m.AppendFieldJSON(nil, field, wire, transcode.WriteOptions{}); err != nil || string(got) != want {
			t.Errorf("AppendFieldJSON(%q) = %s, %v, want %s", field, got, err, want)
		}
	}
	if got, err := m.AppendFieldJSON(nil, "nope", wire, transcode.WriteOptions{}); err == nil {
		t.Errorf(`AppendFieldJSON("nope") = %s, want an error`, got)
	}
	for _, c := range []struct{ field, in, want string }{
		{"items", `[{"sku":"x"}]`, `{"items":[{"sku":"x"}]}`},
		{"order_id", ` "a" `, `{"orderId":"a"}`},
		{"barter", `{}`, `{"barter":{}}`},
		{"barter", `null`, `{}`},
		{"placedAt", `"2026-01-01T00:00:00Z"`, `{"placedAt":"2026-01-01T00:00:00Z"}`},
		{"items", `[{"quantity":"x"}]`, `items[0].quantity: invalid value "x": want a whole number from -2147483648 to 2147483647 (int32)`},
		{"itemz", `[]`, `unknown field "itemz"; did you mean "items"?`},
		{"parent.items", `[{"sku":"x"}]`, `{"parent":{"items":[{"sku":"x"}]}}`},
		{"parent.parent.order_id", `"a"`, `{"parent":{"parent":{"orderId":"a"}}}`},
		{"parent.parent", `null`, `{"parent":{}}`},
		{"meta.fields", `{"a":1}`, `{"meta":{"a":1}}`},
		{"parent.barter", `{"quantity":"x"}`, `parent.barter.quantity: invalid value "x": want a whole number from -2147483648 to 2147483647 (int32)`},
		{"parent.itemz", `[]`, `parent: unknown field "itemz"; did you mean "items"?`},
		{"items.sku", `"x"`, `items: the field path goes on with "sku", but this field has no fields to set one by one`},
		{"items", `[] []`, `items: invalid JSON at line 1, column 4: '[' after the value`},
	} {
		wire, err := m.AppendFieldWire(nil, c.field, []byte(c.in), transcode.ReadOptions{})
		var got []byte
		if err != nil {
			got = []byte(err.Error())
		} else if got, err = m.AppendJSON(nil, wire, transcode.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if string(got) != c.want {
			t.Errorf("AppendFieldWire(%q, %s) = %s, want %s", c.field, c.in, got, c.want)
		}
	}
}

// TestFieldPath writes fields inside other messages, which may come in pieces.
func TestFieldPath(t *testing.T) {
	_, m := orders(t)
	piece := func(s string) []byte {
		wire, err := m.AppendWire(nil, []byte(s), transcode.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return wire
	}
	wire := slices.Concat(piece(`{"parent":{"orderId":"a","items":[{"sku":"x"}],"parent":{"tags":["t"]}}}`), piece(`{"orderId":"b"}`),
		piece(`{"parent":{"delayMinutes":3,"items":[{"sku":"y"}],"parent":{"tags":["u"],"barter":{}}}}`))
	for _, c := range []struct{ path, want string }{
		{"parent.items", `[{"sku":"x"},{"sku":"y"}]`},
		{"parent.order_id", `"a"`},
		{"parent.orderId", `"a"`},
		{"parent.delay_minutes", `3`},
		{"parent.parent", `{"barter":{},"tags":["t","u"]}`},
		{"parent.parent.tags", `["t","u"]`},
		{"parent.parent.parent.tags", `[]`},
		{"parent.parent.parent.total_cents", `"0"`},
		{"barter.color", `"COLOR_UNSPECIFIED"`},
		{"parent.nope", `parent: unknown field "nope"; did you mean "none"?`},
		{"parent.", `parent: unknown field "": want one of`},
		{"parent.items.sku", `parent.items: the field path goes on with "sku", but this field has no fields to set one by one`},
		{"order_id.x", `orderId: the field path goes on with "x"`},
	} {
		got, err := m.AppendFieldJSON([]byte("x"), c.path, wire, transcode.WriteOptions{})
		if err != nil {
			if string(got) != "x" || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("AppendFieldJSON(%q) = %s, %v, want %s", c.path, got, err, c.want)
			}
			continue
		}
		if string(got) != "x"+c.want {
			t.Errorf("AppendFieldJSON(%q) = %s, want x%s", c.path, got, c.want)
		}
	}
	if got, err := m.AppendFieldJSON(nil, "parent.items", append(wire, 0xaa, 0x01, 0x02, 0x08), transcode.WriteOptions{}); err == nil {
		t.Errorf("AppendFieldJSON of broken wire bytes = %s, want an error", got)
	}
	if got, err := m.AppendFieldJSON(nil, "parent.items", append(wire, 0xaa, 0x01, 0x01, 0x42), transcode.WriteOptions{}); err == nil || err.Error() != "parent: malformed wire bytes of acme.orders.v1.Order" {
		t.Errorf("AppendFieldJSON of broken wire bytes inside = %s, %v, want an error", got, err)
	}
}

// TestAppends checks that dst is kept, and returned as it was on an error.
func TestAppends(t *testing.T) {
	_, m := orders(t)
	dst := []byte("kept:")
	if got, err := m.AppendJSON(dst, []byte{0x10, 0x05}, transcode.WriteOptions{}); err != nil || string(got) != `kept:{"delayMinutes":5}` {
		t.Errorf("AppendJSON = %q, %v", got, err)
	}
	if got, err := m.AppendJSON(dst, []byte{0x10}, transcode.WriteOptions{}); err == nil || string(got) != "kept:" {
		t.Errorf("AppendJSON of malformed bytes = %q, %v", got, err)
	}
	if got, err := m.AppendWire(dst, []byte(`{"delayMinutes":5}`), transcode.ReadOptions{}); err != nil || string(got) != "kept:\x10\x05" {
		t.Errorf("AppendWire = %q, %v", got, err)
	}
	if got, err := m.AppendWire(dst, []byte(`{"delayMinutes":5`), transcode.ReadOptions{}); err == nil || string(got) != "kept:" {
		t.Errorf("AppendWire of malformed JSON = %q, %v", got, err)
	}
}

// TestConcurrentCompile compiles recursive messages from many goroutines at once.
func TestConcurrentCompile(t *testing.T) {
	set := loadSet(t, "otlp")
	all := set.messages()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, md := range all {
				m := set.codec.Message(md)
				if _, err := m.AppendJSON(nil, nil, transcode.WriteOptions{EmitDefaults: true}); err != nil && md.FullName().Parent() != "google.protobuf" {
					t.Errorf("%s: %v", md.FullName(), err)
				}
			}
		})
	}
	wg.Wait()
}

// TestExtensions reads and writes extension fields by their names in brackets.
func TestExtensions(t *testing.T) {
	set := loadSet(t, "go-protobuf-testprotos")
	md := set.message(t, "goproto.proto.test.TestAllExtensions")
	const text = `{"[goproto.proto.test.optional_int32]":5,"[goproto.proto.test.repeated_string]":["a","b"],"[goproto.proto.test.optional_nested_message]":{"a":1}}`
	agreeWire(t, set, md, []byte(text), transcode.ReadOptions{})
	m := set.codec.Message(md)
	wire, err := m.AppendWire(nil, []byte(text), transcode.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	agree(t, set, md, wire, transcode.WriteOptions{})
	got, err := m.AppendJSON(nil, wire, transcode.WriteOptions{})
	if same, _ := sameJSON(got, []byte(text)); err != nil || !same {
		t.Errorf("AppendJSON = %s, %v, want %s", got, err, text)
	}
}

// TestCanonicalAny checks that the order of fields inside an Any does not matter, nor how the outer message was encoded.
func TestCanonicalAny(t *testing.T) {
	set, m := orders(t)
	item := set.message(t, "acme.orders.v1.Item")
	msg := dynamicpb.NewMessage(item)
	msg.Set(item.Fields().ByName("sku"), protoreflect.ValueOfString("x"))
	msg.Set(item.Fields().ByName("quantity"), protoreflect.ValueOfInt32(2))
	inOrder, err := set.marshal(msg) // proto.Marshal has the fields of a dynamic message in any order
	if err != nil {
		t.Fatal(err)
	}
	reversed := append(append([]byte(nil), inOrder[3:]...), inOrder[:3]...)
	wrap := func(inner []byte) []byte {
		return appendBytes(nil, 18, appendBytes(appendBytes(nil, 1, []byte("t/acme.orders.v1.Item")), 2, inner))
	}
	a, errA := m.AppendCanonical(nil, wrap(inOrder))
	b, errB := m.AppendCanonical(nil, wrap(reversed))
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Errorf("AppendCanonical = %x and %x, %v, %v", a, b, errA, errB)
	}
	if a, err := m.AppendCanonical(nil, wrap([]byte{0xff})); err != nil || string(a) != string(wrap([]byte{0xff})) {
		t.Errorf("AppendCanonical of a malformed Any value = %x, %v, want it kept", a, err)
	}
}

// TestOpaqueAny writes an Any of a type that nobody knows.
func TestOpaqueAny(t *testing.T) {
	_, m := orders(t)
	wire := appendBytes(nil, 18, appendBytes(appendBytes(nil, 1, []byte("t/no.Such")), 2, []byte{1, 2}))
	const problem = `detail: unknown type "t/no.Such" in a google.protobuf.Any`
	if got, err := m.AppendJSON(nil, wire, transcode.WriteOptions{}); err == nil || err.Error() != problem {
		t.Errorf("AppendJSON = %s, %v, want %s", got, err, problem)
	}
	const want = `{"detail":{"@type":"t/no.Such","value":"AQI="}}`
	if got, err := m.AppendJSON(nil, wire, transcode.WriteOptions{OpaqueAny: true}); err != nil || string(got) != want {
		t.Errorf("AppendJSON(OpaqueAny) = %s, %v, want %s", got, err, want)
	}
}

// TestManyKeys reads maps around the size at which duplicates are looked for by sorting.
func TestManyKeys(t *testing.T) {
	_, m := orders(t)
	for n := 1; n < 60; n++ {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"key%d":%d,`, i, i)
		}
		if _, err := m.AppendWire(nil, []byte(`{"counts":{`+b.String()+`"last":1}}`), transcode.ReadOptions{}); err != nil {
			t.Errorf("AppendWire of %d keys: %v", n+1, err)
		}
		const want = `counts["key0"]: given twice`
		if _, err := m.AppendWire(nil, []byte(`{"counts":{`+b.String()+`"key0":1}}`), transcode.ReadOptions{}); err == nil || err.Error() != want {
			t.Errorf("AppendWire of %d keys and one twice: %v, want %s", n, err, want)
		}
	}
}
