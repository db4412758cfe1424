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
