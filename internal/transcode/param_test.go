package transcode_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/transcode"
)

// TestParams sets one field from the text of a parameter and shows the message, or the error.
func TestParams(t *testing.T) {
	_, m := orders(t)
	for _, c := range []struct{ path, values, want string }{
		{"order_id", "a b", `{"orderId":"a b"}`},
		{"orderId", "", `{}`},
		{"delay_minutes", "5", `{"delayMinutes":5}`},
		{"delay_minutes", "+5", `{"delayMinutes":5}`},
		{"delay_minutes", "-007", `{"delayMinutes":-7}`},
		{"delayMinutes", "0", `{}`},
		{"maybe", "0", `{"maybe":0}`},
		{"total_cents", "9007199254740993", `{"totalCents":"9007199254740993"}`},
		{"express", "T", `{"express":true}`},
		{"signature", "_-8", `{"signature":"/+8="}`},
		{"weight", "Infinity", `{"weight":"Infinity"}`},
		{"weight", "1e-3", `{"weight":0.001}`},
		{"colors", "RED|3", `{"colors":["RED","PURPLE"]}`},
		{"tags", "a|b|", `{"tags":["a","b",""]}`},
		{"barter.sku", "x", `{"barter":{"sku":"x"}}`},
		{"parent.parent.barter.color", "GREEN", `{"parent":{"parent":{"barter":{"color":"GREEN"}}}}`},
		{"counts[a.b]", "5", `{"counts":{"a.b":5}}`},
		{"parent.counts[k[1]]", "5", `{"parent":{"counts":{"k[1]":5}}}`},
		{"flags[true]", "x", `{"flags":{"true":"x"}}`},
		{"placed_at", "2026-01-31T12:00:00+01:00", `{"placedAt":"2026-01-31T11:00:00Z"}`},
		{"lead_time", "1h30m", `{"leadTime":"5400s"}`},
		{"lead_time", "1.5s", `{"leadTime":"1.500s"}`},
		{"mask", "order_id,parent.order_id", `{"mask":"orderId,parent.orderId"}`},
		{"mask", "orderId", `{"mask":"orderId"}`},
		{"limit", "7", `{"limit":"7"}`},
		{"on", "false", `{"on":false}`},
		{"limit.value", "7", `{"limit":"7"}`},
		{"placed_at.seconds", "7", `{"placedAt":"1970-01-01T00:00:07Z"}`},
		{"meta", `{"a":[1]}`, `{"meta":{"a":[1]}}`},
		{"extra", `[1]`, `{"extra":[1]}`},
		{"nothing", "{}", `{"nothing":{}}`},
		{"_aB", "x", `{"_aB":"x"}`},
		{"aB", "x", `{"aB":"x"}`},
		{"a_b", "x", `{"_aB":"x"}`},

		{"delay_minuts", "5", `unknown field "delay_minuts"; did you mean "delay_minutes"?`},
		{"delayMinuts", "5", `unknown field "delayMinuts"; did you mean "delayMinutes"?`},
		{"barter.prize", "5", `barter: unknown field "prize"; did you mean "price"?`},
		{"legacy_id", "5", `field "legacy_id" was removed from acme.orders.v1.Order; its name is reserved`},
		{"delay_minutes", "abc", `delayMinutes: invalid value "abc": want a whole number from -2147483648 to 2147483647 (int32)`},
		{"delay_minutes", "1.5", `delayMinutes: invalid value 1.5: want a whole number from -2147483648 to 2147483647 (int32)`},
		{"delay_minutes", "", `delayMinutes: invalid value "": want a whole number from -2147483648 to 2147483647 (int32)`},
		{"delay_minutes", "99999999999999999999", `delayMinutes: invalid value 99999999999999999999: want a whole number from -2147483648 to 2147483647 (int32)`},
		{"delay_minutes", "0x10", `delayMinutes: invalid value "0x10": want a whole number from -2147483648 to 2147483647 (int32)`},
		{"dely_minutes", "5", `unknown field "dely_minutes"; did you mean "delay_minutes"?`},
		{"barter.quantety", "5", `barter: unknown field "quantety"; did you mean "quantity"?`},
		{"parent.", "5", `parent: unknown field "": want one of orderId, delayMinutes, totalCents, version, express, signature, weight, items, counts, byLine, card, barter and 20 more`},
		{"weight", "inf", `weight: invalid value "inf": want a number up to ±3.4e38 (float), or "NaN", "Infinity", "-Infinity"`},
		{"express", "yes", `express: invalid value "yes": want true or false`},
		{"signature", "*", `signature: invalid value "*": want a string of base64`},
		{"delay_minutes", "1|2", `delayMinutes: given 2 times: want one value`},
		{"barter.color", "PURPL", `barter.color: invalid value "PURPL": want one of COLOR_UNSPECIFIED, RED, GREEN, PURPLE; did you mean "PURPLE"?`},
		{"colors", "RED|MAUVE", `colors[1]: value "MAUVE" was removed from acme.orders.v1.Color; its name is reserved: want one of COLOR_UNSPECIFIED, RED, GREEN, PURPLE`},
		{"counts", "5", `counts: a map needs its key in brackets: want counts[key]=value`},
		{"counts[a]", "x", `counts["a"]: invalid value "x": want a whole number from -2147483648 to 2147483647 (int32)`},
		{"by_line[x]", "5", `byLine: invalid map key "x": want a whole number from -2147483648 to 2147483647 (int32) in quotes`},
		{"by_line[1]", "5", `byLine["1"]: a parameter cannot hold an object (acme.orders.v1.Item): want its fields one by one, as value.name=value`},
		{"tags[1]", "5", `tags: only a map takes a key in brackets`},
		{"barter", "5", `barter: a parameter cannot hold an object (acme.orders.v1.Item): want its fields one by one, as barter.name=value`},
		{"items.sku", "5", `items: the parameter goes on with "sku", but this field has no fields to set one by one`},
		{"order_id.x", "5", `orderId: the parameter goes on with "x", but this field has no fields to set one by one`},
		{"placed_at", "yesterday", `placedAt: invalid value "yesterday": want a time such as "2026-01-31T12:00:00Z"`},
		{"lead_time", "soon", `leadTime: invalid value "soon": want a duration in seconds such as "90s" or "1.5s"`},
		{"meta", "[1]", `meta: invalid value […]: want an object`},
		{"limit", "x", `limit: invalid value "x": want a whole number of 64 bits (int64), plain or as a string`},
		{"detail", "x", `detail: a parameter cannot hold an object (google.protobuf.Any): want its fields one by one, as detail.name=value`},
		{"", "x", `unknown field "": want one of orderId, delayMinutes, totalCents, version, express, signature, weight, items, counts, byLine, card, barter and 20 more`},
	} {
		got := param(m, c.path, strings.Split(c.values, "|"))
		if got != c.want {
			t.Errorf("AppendParam(%q, %q) = %s, want %s", c.path, c.values, got, c.want)
		}
	}
	if got := param(m, "order_id", nil); got != `orderId: no value given: want a string` {
		t.Errorf("AppendParam without values = %s", got)
	}
}

func param(m *transcode.Message, path string, values []string) string {
	wire, err := m.AppendParam(nil, path, values)
	if err != nil {
		return err.Error()
	}
	got, err := m.AppendJSON(nil, wire, transcode.WriteOptions{})
	if err != nil {
		return err.Error()
	}
	return string(got)
}

// TestSameText checks that a wrong value is refused with one text, whether it came in a body or as a parameter.
func TestSameText(t *testing.T) {
	_, m := orders(t)
	for _, c := range []struct{ path, value, body string }{
		{"delay_minutes", "abc", `{"delayMinutes":"abc"}`}, {"delay_minutes", "1.5", `{"delayMinutes":1.5}`},
		{"express", "maybe", `{"express":"maybe"}`}, {"placed_at", "yesterday", `{"placedAt":"yesterday"}`},
		{"barter.color", "PURPL", `{"barter":{"color":"PURPL"}}`}, {"barter.colr", "RED", `{"barter":{"colr":"RED"}}`},
		{"counts[a]", "x", `{"counts":{"a":"x"}}`}, {"flags[x]", "x", `{"flags":{"x":"x"}}`}, {"limit", "99999999999999999999", `{"limit":99999999999999999999}`},
		{"legacy_id", "1", `{"legacy_id":1}`}, {"signature", "*", `{"signature":"*"}`},
	} {
		_, errBody := m.AppendWire(nil, []byte(c.body), transcode.ReadOptions{})
		_, errParam := m.AppendParam(nil, c.path, []string{c.value})
		if errBody == nil || errParam == nil || errBody.Error() != errParam.Error() {
			t.Errorf("%s: body %v, parameter %v", c.path, errBody, errParam)
		}
	}
}

// TestParamsLikeGateway sets every field of some messages from many texts: what grpc-gateway takes, we take and make the same of.
func TestParamsLikeGateway(t *testing.T) {
	texts := []string{"", "0", "1", "-1", "5", "true", "FALSE", "t", "abc", "1.5", "1e3", "NaN", "Infinity", "4294967295", "9223372036854775807", "18446744073709551615",
		"2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123+05:00", "1h", "-1.5s", "aGk=", "_-8=", "foo_bar,baz", `{"a":[1,null]}`, `"x"`, "null", "{}", "ünï", "+7", "007", "0x1p4", "1_000", "inf"}
	set, m := orders(t)
	conformance := loadSet(t, "protobuf-conformance-loadable")
	for _, x := range []struct {
		set *descriptorSet
		m   *transcode.Message
	}{
		{set, m},
		{conformance, conformance.codec.Message(conformance.message(t, "protobuf_test_messages.proto3.TestAllTypesProto3"))},
		{conformance, conformance.codec.Message(conformance.message(t, "protobuf_test_messages.editions.TestAllTypesEdition2023"))},
	} {
		md := x.m.Descriptor()
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			path := string(fd.Name())
			kind := fd
			if fd.IsMap() {
				path += "[1]"
				kind = fd.MapValue()
			}
			if kind.Enum() != nil || kind.Message() != nil && kind.Message().FullName() == "google.protobuf.FieldMask" {
				continue // the gateway knows linked-in enums only, and takes any text as a mask
			}
			for _, text := range texts {
				want := dynamicpb.NewMessage(md)
				if err := runtime.PopulateQueryParameters(want, url.Values{path: {text}}, utilities.NewDoubleArray(nil)); err != nil {
					continue
				}
				wire, err := x.m.AppendParam(nil, path, []string{text})
				if err != nil {
					t.Errorf("%s: AppendParam(%q, %q): %v, but the gateway takes it", md.FullName(), path, text, err)
					continue
				}
				got, err := x.set.decode(md, wire)
				if err != nil || !sameWire(t, x.set, got, want) {
					t.Errorf("%s: AppendParam(%q, %q) = %v, %v, gateway %v", md.FullName(), path, text, got, err, want)
				}
			}
		}
	}
}

func sameWire(t *testing.T, set *descriptorSet, a, b proto.Message) bool {
	t.Helper()
	m := set.codec.Message(a.ProtoReflect().Descriptor())
	var forms [2]string
	for i, msg := range []protoreflect.ProtoMessage{a, b} {
		wire, err := set.marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		canonical, err := m.AppendCanonical(nil, wire)
		if err != nil {
			t.Fatal(err)
		}
		forms[i] = string(canonical)
	}
	return forms[0] == forms[1]
}
