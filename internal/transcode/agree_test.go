package transcode_test

import (
	"bytes"
	"errors"
	"flag"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/transcode"
)

var rounds = flag.Int("rounds", 1, "random messages of each kind for each message type of the corpus")

// TestAgree compares every direction with the oracle on random messages of every message type of the corpus.
func TestAgree(t *testing.T) {
	for _, name := range setNames(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := loadSet(t, name)
			all := set.messages()
			h := fnv.New64()
			h.Write([]byte(name))
			g := &generator{Rand: rand.New(rand.NewPCG(h.Sum64(), 1)), anyTypes: all}
			for _, md := range all {
				for i := range 3 * *rounds {
					g.calm, g.budget = i%3 == 0, 60
					agree(t, set, md, g.message(md, 4), writeOptions[g.IntN(len(writeOptions))])
					if t.Failed() {
						return
					}
				}
			}
		})
	}
}

var writeOptions = []transcode.WriteOptions{{}, {}, {EmitDefaults: true}, {EnumNumbers: true}, {ProtoNames: true}}

// agree compares what we and the oracle make of one message.
func agree(t *testing.T, set *descriptorSet, md protoreflect.MessageDescriptor, wire []byte, o transcode.WriteOptions) {
	t.Helper()
	m := set.codec.Message(md)
	got, gotErr := m.AppendJSON(nil, wire, o)
	want, wantErr := set.oracleJSON(md, wire, o)
	if errors.Is(wantErr, errOraclePanic) {
		return
	}
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("%s: AppendJSON(%x) error = %v, oracle %v\n%s\n%s", md.FullName(), wire, gotErr, wantErr, got, want)
	}
	if msg, err := set.decode(md, wire); (err == nil) != (m.Check(wire) == nil) {
		t.Fatalf("%s: Check(%x) = %v, oracle %v", md.FullName(), wire, m.Check(wire), err)
	} else if err == nil {
		agreeCanonical(t, set, md, wire, msg)
	}
	if gotErr != nil {
		return
	}
	if same, err := sameJSON(got, want); !same {
		t.Fatalf("%s: AppendJSON(%x) =\n%s, oracle\n%s (%v)", md.FullName(), wire, got, want, err)
	}
	agreeWire(t, set, md, got, transcode.ReadOptions{})
	roundTrip(t, set, md, wire, got)
}

// roundTrip checks that wire bytes come back from their JSON form, as far as they are known to the descriptor, whatever order the fields
// had: the canonical form of what was read equals that of the original, also with its fields backwards.
func roundTrip(t *testing.T, set *descriptorSet, md protoreflect.MessageDescriptor, wire, text []byte) {
	t.Helper()
	m := set.codec.Message(md)
	if bytes.Contains(text, []byte("null")) || md.FullName() == "goproto.protoc.fieldnames.Message" {
		return // a NullValue of another number than 0 is null too; and three fields of that message share one JSON name
	}
	back, err := m.AppendWire(nil, text, transcode.ReadOptions{})
	if err != nil {
		return
	}
	msg, err := set.decode(md, wire)
	if err != nil {
		t.Fatal(err)
	}
	discardUnknown(msg, set)
	known, err := set.marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	want, err := m.AppendCanonical(nil, known)
	if err != nil {
		t.Fatal(err)
	}
	for name, wire := range map[string][]byte{"from JSON": back, "backwards": backwards(md, known)} {
		if got, err := m.AppendCanonical(nil, wire); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: canonical %s %x =\n%x, %v, want\n%x\n%s", md.FullName(), name, wire, got, err, want, text)
		}
	}
}

// discardUnknown drops unknown fields, in Any values too.
func discardUnknown(msg protoreflect.Message, set *descriptorSet) {
	msg.SetUnknown(nil)
	if msg.Descriptor().FullName() == "google.protobuf.Any" {
		fds := msg.Descriptor().Fields()
		mt, err := set.types.FindMessageByURL(msg.Get(fds.ByNumber(1)).String())
		if err != nil {
			return
		}
		inner, err := set.decode(mt.Descriptor(), msg.Get(fds.ByNumber(2)).Bytes())
		if err != nil {
			return
		}
		discardUnknown(inner, set)
		if b, err := set.marshal(inner); err == nil {
			msg.Set(fds.ByNumber(2), protoreflect.ValueOfBytes(b))
		}
		return
	}
	msg.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap() && fd.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				discardUnknown(v.Message(), set)
				return true
			})
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				discardUnknown(v.List().Get(i).Message(), set)
			}
		case !fd.IsMap() && !fd.IsList() && fd.Message() != nil:
			discardUnknown(v.Message(), set)
		}
		return true
	})
}

// agreeWire compares what we and the oracle read from JSON.
func agreeWire(t *testing.T, set *descriptorSet, md protoreflect.MessageDescriptor, src []byte, o transcode.ReadOptions) {
	t.Helper()
	m := set.codec.Message(md)
	wire, gotErr := m.AppendWire(nil, src, o)
	want, wantErr := set.oracleWire(md, src, o)
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("%s: AppendWire(%q) error = %v, oracle %v", md.FullName(), src, gotErr, wantErr)
	}
	if gotErr != nil {
		return
	}
	got, err := set.decode(md, wire)
	if err != nil {
		t.Fatalf("%s: AppendWire(%s) = %x: %v", md.FullName(), src, wire, err)
	}
	if proto.Equal(got, want) {
		return
	}
	// Inside Any, the order of fields may differ.
	wantWire, err := set.marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	a, errA := m.AppendCanonical(nil, wire)
	b, errB := m.AppendCanonical(nil, wantWire)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Fatalf("%s: AppendWire(%s) =\n%x, oracle\n%x (%v, %v)", md.FullName(), src, a, b, errA, errB)
	}
}

// agreeCanonical checks that the canonical form means the same message, is its own canonical form, and is that of the oracle's encoding
// too.
func agreeCanonical(t *testing.T, set *descriptorSet, md protoreflect.MessageDescriptor, wire []byte, msg proto.Message) {
	t.Helper()
	m := set.codec.Message(md)
	canonical, err := m.AppendCanonical(nil, wire)
	if err != nil {
		t.Fatalf("%s: AppendCanonical(%x): %v", md.FullName(), wire, err)
	}
	again, err := m.AppendCanonical(nil, canonical)
	if err != nil || !bytes.Equal(again, canonical) {
		t.Fatalf("%s: AppendCanonical(%x) = %x, again %x, %v", md.FullName(), wire, canonical, again, err)
	}
	other, err := proto.MarshalOptions{AllowPartial: true}.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	fromOther, err := m.AppendCanonical(nil, other)
	if err != nil || !bytes.Equal(fromOther, canonical) {
		t.Fatalf("%s: AppendCanonical(%x) = %x, of another encoding %x = %x, %v", md.FullName(), wire, canonical, other, fromOther, err)
	}
}
