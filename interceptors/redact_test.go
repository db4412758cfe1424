package interceptors_test

import (
	"bytes"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

const secretive = `edition = "2023"; package acme.v1; import "toolway/v1/options.proto";
	message Card {
		string number = 1 [(toolway.v1.field).redact_result = true];
		bytes track = 2 [(toolway.v1.field).redact_result = true];
		int64 limit = 3 [(toolway.v1.field).redact_result = true];
		string holder = 4; string note = 5 [debug_redact = true];
		repeated int32 digits = 6 [(toolway.v1.field).redact_result = true];
		repeated string codes = 7 [(toolway.v1.field).redact_result = true];
		map<string, string> tags = 8 [(toolway.v1.field).redact_result = true];
		Card next = 9 [(toolway.v1.field).redact_result = true];
		fixed64 must = 10 [features.field_presence = LEGACY_REQUIRED, (toolway.v1.field).redact_result = true];
	}
	message Account {
		string name = 1; Card card = 2; repeated Card cards = 3; map<string, Card> by_name = 4; Account parent = 5;
		Card old = 6 [features.message_encoding = DELIMITED]; Plain plain = 7; oneof way { string phone = 8 [(toolway.v1.field).redact_result = true]; string mail = 9; }
	}
	message Plain { string name = 1; Plain sub = 2; }
	service S { rpc Get(Plain) returns (Account); rpc Watch(Plain) returns (stream Account); rpc Ask(Account) returns (Plain); }`

const account = `{"name":"ann","card":{"number":"S3CRET","track":"UzNDUkVU","limit":"12345","holder":"Ann","note":"kept","digits":[1,2],"codes":["S3CRET","S3CRET"],"tags":{"S3CRET":"x"},"next":{"number":"S3CRET","must":"1"},"must":"77"},
	"cards":[{"number":"S3CRET","holder":"Bob","must":"1"},{"holder":"Cid","must":"1"}],"byName":{"x":{"number":"S3CRET","holder":"Dee","must":"1"}},
	"parent":{"name":"top","card":{"number":"S3CRET","must":"1"}},"old":{"number":"S3CRET","holder":"Old","must":"1"},"plain":{"name":"p"},"phone":"S3CRET"}`

const redactedAccount = `{"name":"ann","card":{"number":"[redacted]","holder":"Ann","note":"kept","codes":["[redacted]","[redacted]"],"must":"0"},` +
	`"cards":[{"number":"[redacted]","holder":"Bob","must":"0"},{"holder":"Cid","must":"0"}],"byName":{"x":{"number":"[redacted]","holder":"Dee","must":"0"}},` +
	`"parent":{"name":"top","card":{"number":"[redacted]","must":"0"}},"old":{"number":"[redacted]","holder":"Old","must":"0"},"plain":{"name":"p"},"phone":"[redacted]"}`

func TestRedactReplies(t *testing.T) {
	s := contract(t, secretive)
	policy := interceptors.Redact(interceptors.Options{})
	for _, name := range []string{"Get", "Watch"} {
		m := s.Method("/acme.v1.S/" + name)
		wire := fromJSON(t, m.Response(), account)
		replies, err := run(t.Context(), call.New(m, call.GRPC), nil, func(_ any, s grpc.ServerStream) error { return s.SendMsg(call.NewFrame(nil, wire)) }, policy)
		if err != nil || len(replies) != 1 {
			t.Fatalf("%d replies, %v", len(replies), err)
		}
		got, err := m.Response().AppendJSON(nil, replies[0], transcode.WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != redactedAccount {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, redactedAccount)
		}
		if bytes.Contains(replies[0], []byte("S3CRET")) {
			t.Errorf("%s: the bytes hold a secret: %q", name, replies[0])
		}
	}
	if policy.For(s.Method("/acme.v1.S/Ask")) != nil {
		t.Error("a method whose replies have nothing to redact is redacted")
	}
}

func TestRedactRefusesWhatItCannotRead(t *testing.T) {
	m := contract(t, secretive).Method("/acme.v1.S/Get")
	for _, wire := range [][]byte{{0x12, 0x7f, 0x0a}, {0x12, 0x02, 0x0a, 0x7f}, protowire.AppendTag(nil, 6, protowire.StartGroupType)} {
		replies, err := run(t.Context(), call.New(m, call.GRPC), nil, func(_ any, s grpc.ServerStream) error { return s.SendMsg(call.NewFrame(nil, wire)) }, interceptors.Redact(interceptors.Options{}))
		if status.Code(err) != codes.Internal || len(replies) != 0 {
			t.Errorf("%x: %x, %v, want INTERNAL and no reply", wire, replies, err)
		}
	}
}

// FuzzRedact compares redaction of wire bytes with redaction of the decoded message.
func FuzzRedact(f *testing.F) {
	m := contract(f, secretive).Method("/acme.v1.S/Get")
	set, policy := m.Sensitive(toolschema.Output), interceptors.Redact(interceptors.Options{})
	f.Add(fromJSON(f, m.Response(), account))
	f.Add([]byte{0x12, 0x00, 0x12, 0x82, 0x00, 0x0a, 0x00, 0x38, 0x01})
	f.Add([]byte{0x0a, 0x01, 'a', 0xf8, 0x01, 0x07})
	f.Fuzz(func(t *testing.T, wire []byte) {
		want := dynamicpb.NewMessage(m.Desc.Output())
		if (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(wire, want) != nil {
			return
		}
		redactMessage(want, set)
		replies, err := run(t.Context(), call.New(m, call.GRPC), nil, func(_ any, s grpc.ServerStream) error { return s.SendMsg(call.NewFrame(nil, wire)) }, policy)
		if err != nil {
			t.Fatal(err)
		}
		got := dynamicpb.NewMessage(m.Desc.Output())
		if err := (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(replies[0], got); err != nil {
			t.Fatalf("the redacted reply %x is malformed: %v", replies[0], err)
		}
		got.SetUnknown(nil)
		want.SetUnknown(nil)
		redactMessage(got, set) // drops unknown fields below the root; it changes nothing else
		if !proto.Equal(got, want) {
			t.Errorf("%x\ngot  %v\nwant %v", wire, got, want)
		}
	})
}

// redactMessage is redaction as a reader of decoded messages would do it.
func redactMessage(m protoreflect.Message, set *catalog.FieldSet) {
	m.SetUnknown(nil)
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		mark := set.Mark(fd.Number())
		var within *catalog.FieldSet
		if mark != nil {
			within = mark.Within
		}
		text := protoreflect.ValueOfString(interceptors.Redacted)
		switch {
		case mark != nil && mark.Redact && fd.Cardinality() == protoreflect.Required:
			m.Set(fd, fd.Default())
		case mark != nil && mark.Redact && fd.Kind() == protoreflect.StringKind && fd.IsList():
			for i := range v.List().Len() {
				v.List().Set(i, text)
			}
		case mark != nil && mark.Redact && fd.Kind() == protoreflect.StringKind:
			m.Set(fd, text)
		case mark != nil && mark.Redact:
			m.Clear(fd)
		case fd.IsMap() && fd.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				redactMessage(v.Message(), within)
				return true
			})
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				redactMessage(v.List().Get(i).Message(), within)
			}
		case fd.Message() != nil && !fd.IsMap():
			redactMessage(v.Message(), within)
		}
		return true
	})
}

func BenchmarkRedact(b *testing.B) {
	m := contract(b, secretive).Method("/acme.v1.S/Get")
	reply := call.NewFrame(nil, fromJSON(b, m.Response(), account))
	h := interceptors.Chain(func(_ any, s grpc.ServerStream) error { return s.SendMsg(reply) }, interceptors.Redact(interceptors.Options{}))
	b.SetBytes(int64(reply.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if err := h(call.NewStream(b.Context(), call.New(m, call.GRPC), call.One(nil), func(*call.Frame) error { return nil }, nil)); err != nil {
			b.Fatal(err)
		}
	}
}
