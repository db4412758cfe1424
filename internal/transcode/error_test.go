package transcode_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/transcode"
)

const ordersProto = `
syntax = "proto3";
package acme.orders.v1;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

enum Color { COLOR_UNSPECIFIED = 0; RED = 1; GREEN = 2; PURPLE = 3; reserved "MAUVE"; }
message Item {
  string sku = 1;
  int32 quantity = 2;
  double price = 3;
  Color color = 4;
}
message Order {
  reserved 90; reserved "legacy_id";
  string order_id = 1;
  int32 delay_minutes = 2;
  int64 total_cents = 3;
  uint32 version = 4;
  bool express = 5;
  bytes signature = 6;
  float weight = 7;
  repeated Item items = 8;
  map<string, int32> counts = 9;
  map<int32, Item> by_line = 10;
  oneof payer { string card = 11; Item barter = 12; }
  google.protobuf.Timestamp placed_at = 13;
  google.protobuf.Duration lead_time = 14;
  google.protobuf.FieldMask mask = 15;
  google.protobuf.Struct meta = 16;
  google.protobuf.Value extra = 17;
  google.protobuf.Any detail = 18;
  google.protobuf.Int64Value limit = 19;
  google.protobuf.Empty nothing = 20;
  Order parent = 21;
  repeated Color colors = 22;
  optional int32 maybe = 23;
  uint64 big = 24;
  repeated string tags = 25;
  google.protobuf.ListValue rows = 26;
  map<bool, string> flags = 27;
  google.protobuf.BoolValue on = 28;
  google.protobuf.NullValue none = 29;
  string test_test = 30;
  string a_b = 31 [json_name = "_aB"];
  string a_b_ordered = 32 [json_name = "aB"];
}
`

func orders(t testing.TB) (*descriptorSet, *transcode.Message) {
	set := compileProto(t, ordersProto)
	return set, set.codec.Message(set.message(t, "acme.orders.v1.Order"))
}

// TestErrorText pins the text that callers see.
func TestErrorText(t *testing.T) {
	_, m := orders(t)
	for _, c := range []struct{ in, want string }{
		{`{"delayMinuts":1}`, `unknown field "delayMinuts"; did you mean "delayMinutes"?`},
		{`{"dely_minutes":1}`, `unknown field "dely_minutes"; did you mean "delay_minutes"?`},
		{`{"totl_cents":1}`, `unknown field "totl_cents"; did you mean "total_cents"?`},
		{`{"zzz":1}`, `unknown field "zzz": want one of orderId, delayMinutes, totalCents, version, express, signature, weight, items, counts, byLine, card, barter and 20 more`},
		{`{"items":[{},{"prize":1}]}`, `items[1]: unknown field "prize"; did you mean "price"?`},
		{`{"legacy_id":1}`, `field "legacy_id" was removed from acme.orders.v1.Order; its name is reserved`},
		{`{"delayMinutes":"abc"}`, `delayMinutes: invalid value "abc": want a whole number from -2147483648 to 2147483647 (int32)`},
		{`{"delayMinutes":1.5}`, `delayMinutes: invalid value 1.5: want a whole number from -2147483648 to 2147483647 (int32)`},
		{`{"delayMinutes":2147483648}`, `delayMinutes: invalid value 2147483648: want a whole number from -2147483648 to 2147483647 (int32)`},
		{`{"totalCents":9007199254740993.5}`, `totalCents: invalid value 9007199254740993.5: want a whole number of 64 bits (int64), plain or as a string`},
		{`{"version":-1}`, `version: invalid value -1: want a whole number from 0 to 4294967295 (uint32)`},
		{`{"express":"true"}`, `express: invalid value "true": want true or false`},
		{`{"signature":"*"}`, `signature: invalid value "*": want a string of base64`},
		{`{"weight":1e39}`, `weight: invalid value 1e39: want a number up to ±3.4e38 (float), or "NaN", "Infinity", "-Infinity"`},
		{`{"orderId":7}`, `orderId: invalid value 7: want a string`},
		{`{"items":{}}`, `items: invalid value {…}: want a list, each item an object (acme.orders.v1.Item)`},
		{`{"items":[null]}`, `items[0]: invalid value null: want an object (acme.orders.v1.Item)`},
		{`{"items":[{"color":"PURPL"}]}`, `items[0].color: invalid value "PURPL": want one of COLOR_UNSPECIFIED, RED, GREEN, PURPLE; did you mean "PURPLE"?`},
		{`{"items":[{"color":"purple"}]}`, `items[0].color: invalid value "purple": want one of COLOR_UNSPECIFIED, RED, GREEN, PURPLE; did you mean "PURPLE"?`},
		{`{"items":[{"color":"MAUVE"}]}`, `items[0].color: value "MAUVE" was removed from acme.orders.v1.Color; its name is reserved: want one of COLOR_UNSPECIFIED, RED, GREEN, PURPLE`},
		{`{"items":[{"color":true}]}`, `items[0].color: invalid value true: want one of COLOR_UNSPECIFIED, RED, GREEN, PURPLE`},
		{`{"counts":{"a":1,"b":"x"}}`, `counts["b"]: invalid value "x": want a whole number from -2147483648 to 2147483647 (int32)`},
		{`{"counts":{"a":1,"a":2}}`, `counts["a"]: given twice`},
		{`{"counts":[]}`, `counts: invalid value […]: want an object, each value a whole number from -2147483648 to 2147483647 (int32)`},
		{`{"byLine":{"one":{}}}`, `byLine: invalid map key "one": want a whole number from -2147483648 to 2147483647 (int32) in quotes`},
		{`{"byLine":{"1":{"quantity":[]}}}`, `byLine["1"].quantity: invalid value […]: want a whole number from -2147483648 to 2147483647 (int32)`},
		{`{"flags":{"yes":""}}`, `flags: invalid map key "yes": want true or false in quotes`},
		{`{"card":"x","barter":{}}`, `barter: another field of the choice "payer" is given too: want only one of card, barter`},
		{`{"orderId":"a","order_id":"b"}`, `orderId: given twice`},
		{`{"placedAt":"yesterday"}`, `placedAt: invalid value "yesterday": want a time such as "2026-01-31T12:00:00Z"`},
		{`{"placedAt":"0000-01-01T00:00:00Z"}`, `placedAt: invalid value "0000-01-01T00:00:00Z": want a time such as "2026-01-31T12:00:00Z"`},
		{`{"leadTime":"1h"}`, `leadTime: invalid value "1h": want a duration in seconds such as "90s" or "1.5s"`},
		{`{"mask":"a_b"}`, `mask: invalid value "a_b": want field paths in lowerCamelCase joined by commas, such as "name,owner.displayName"`},
		{`{"mask":{"paths":["name"]}}`, `mask: invalid value {…}: want field paths in lowerCamelCase joined by commas, such as "name,owner.displayName"`},
		{`{"meta":[]}`, `meta: invalid value […]: want an object`},
		{`{"detail":{"name":"x"}}`, `detail: missing "@type": want "@type": "type.googleapis.com/" and the full name of a message, such as acme.orders.v1.Item`},
		{`{"detail":{"@type":"type.googleapis.com/acme.orders.v1.Itm"}}`, `detail.@type: unknown type "type.googleapis.com/acme.orders.v1.Itm"; did you mean "type.googleapis.com/acme.orders.v1.Item"?`},
		{`{"detail":{"@type":"type.googleapis.com/other.Thing"}}`, `detail.@type: unknown type "type.googleapis.com/other.Thing": want "type.googleapis.com/" and one of acme.orders.v1.Item, acme.orders.v1.Order, google.protobuf.Any, google.protobuf.Duration, google.protobuf.Empty, google.protobuf.FieldMask, google.protobuf.Struct, google.protobuf.Value, google.protobuf.ListValue, google.protobuf.Timestamp, google.protobuf.DoubleValue, google.protobuf.FloatValue and 7 more`},
		{`{"detail":{"@type":"type.googleapis.com/google.protobuf.Duration"}}`, `detail: missing "value": want the google.protobuf.Duration under "value"`},
		{`{"detail":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"x"}}`, `detail.value: invalid value "x": want a duration in seconds such as "90s" or "1.5s"`},
		{`{"detail":{"@type":"type.googleapis.com/google.protobuf.Duration","seconds":1}}`, `detail: unknown field "seconds": want the google.protobuf.Duration under "value"`},
		{`{"detail":{"@type":"type.googleapis.com/acme.orders.v1.Item","quantity":"x"}}`, `detail.quantity: invalid value "x": want a whole number from -2147483648 to 2147483647 (int32)`},
		{`{"limit":"x"}`, `limit: invalid value "x": want a whole number of 64 bits (int64), plain or as a string`},
		{`{"nothing":{"a":1}}`, `nothing: unknown field "a": want no fields`},
		{`{"rows":{}}`, `rows: invalid value {…}: want a list`},
		{`{"none":1.5}`, `none: invalid value 1.5: want null`},
		{`[]`, `invalid value […]: want an object (acme.orders.v1.Order)`},
		{``, `invalid JSON: it ends too early`},
		{`{"orderId":"a"`, `invalid JSON: it ends too early`},
		{"{\n  \"orderId\": 'a'}", `orderId: invalid JSON at line 2, column 14: '\'' where a value should be`},
		{`{"orderId":"\ud800"}`, `orderId: invalid JSON: \ud800 in a string is half of a surrogate pair`},
		{"{\"orderId\":\"\xff\"}", `orderId: invalid JSON: a string is not valid UTF-8`},
		{`{"orderId":"\x"}`, `orderId: invalid JSON: unknown escape "\\x" in a string`},
		{`{"orderId":"a"} x`, `invalid JSON at line 1, column 17: 'x' after the value`},
		{`{"orderId":"a",}`, `invalid JSON at line 1, column 16: '}' where a name in quotes should be`},
		{strings.Repeat(`{"parent":`, 101) + "{}" + strings.Repeat("}", 101), `parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.p…t.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent.parent: nested deeper than 100 levels`},
		{`{"extra":` + strings.Repeat("[", 101) + strings.Repeat("]", 101) + "}", `extra[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][…[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]: nested deeper than 100 levels`},
		{`{"orderId":` + strings.Repeat("9", 200) + `}`, `orderId: invalid value "999999999999999999999999999999999999999999999999999999999999…": want a string`},
	} {
		_, err := m.AppendWire(nil, []byte(c.in), transcode.ReadOptions{})
		var e *transcode.Error
		if !errors.As(err, &e) {
			t.Errorf("AppendWire(%s) error = %v, want an *Error", c.in, err)
			continue
		}
		if got := e.Error(); got != c.want {
			t.Errorf("AppendWire(%.90q) error =\n%s, want\n%s", c.in, got, c.want)
		}
	}
}
