package transcode_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/transcode"
)

// fuzzTarget is a message type that has about every feature of its syntax.
type fuzzTarget struct {
	set *descriptorSet
	md  protoreflect.MessageDescriptor
}

func fuzzTargets(t testing.TB) []fuzzTarget {
	conformance, golang := loadSet(t, "protobuf-conformance-loadable"), loadSet(t, "go-protobuf-testprotos")
	var all []fuzzTarget
	for _, name := range []protoreflect.FullName{
		"protobuf_test_messages.proto3.TestAllTypesProto3", "protobuf_test_messages.editions.TestAllTypesEdition2023",
		"protobuf_test_messages.editions.proto3.TestAllTypesProto3",
	} {
		all = append(all, fuzzTarget{conformance, conformance.message(t, name)})
	}
	for _, name := range []protoreflect.FullName{
		"goproto.proto.test.TestAllTypes", "goproto.proto.test.TestAllExtensions", "goproto.proto.test3.TestAllTypes", "goproto.proto.testeditions.TestAllTypes",
	} {
		all = append(all, fuzzTarget{golang, golang.message(t, name)})
	}
	return append(all, fuzzTarget{conformance, conformance.message(t, "google.protobuf.Value")}, fuzzTarget{conformance, conformance.message(t, "google.protobuf.Any")})
}

// seeds adds random messages of every target, as wire bytes or JSON.
func seeds(f *testing.F, targets []fuzzTarget, asJSON bool) {
	g := &generator{Rand: rand.New(rand.NewPCG(7, 7))}
	for i, t := range targets {
		g.anyTypes = []protoreflect.MessageDescriptor{t.md}
		for n := range 6 {
			g.calm, g.budget = n%2 == 0, 12
			wire := g.message(t.md, 2)
			if !asJSON {
				f.Add(byte(i), wire, byte(n))
				continue
			}
			if text, err := t.set.codec.Message(t.md).AppendJSON(nil, wire, transcode.WriteOptions{}); err == nil {
				f.Add(byte(i), text, n%3 == 0)
			}
		}
	}
}

// tooDeep reports whether an error is our own bound on nesting, which the oracle does not share.
func tooDeep(err error) bool {
	return err != nil && strings.Contains(err.Error(), "nested deeper than")
}

func FuzzWireToJSON(f *testing.F) {
	targets := fuzzTargets(f)
	seeds(f, targets, false)
	f.Add(byte(0), []byte{0x32, 0x05, 0x0a, 0x01, 0x61, 0x08, 0x00}, byte(0)) // case C100
	f.Fuzz(func(t *testing.T, which byte, wire []byte, options byte) {
		x := targets[int(which)%len(targets)]
		o := writeOptions[int(options)%len(writeOptions)]
		m := x.set.codec.Message(x.md)
		got, err := m.AppendJSON(nil, wire, o)
		if tooDeep(err) || tooDeep(m.Check(wire)) {
			return
		}
		if err == nil && (!json.Valid(got) || !utf8.Valid(got)) {
			t.Fatalf("AppendJSON(%x) = %q, which is no JSON", wire, got)
		}
		agree(t, x.set, x.md, wire, o)
		agreeStream(t, m, wire, o, 1+int(options))
		if err != nil || got[0] != '{' || x.md.FullName() == "google.protobuf.Any" {
			return
		}
		bounded := transcode.WriteOptions{MaxBytes: 1 + int(options)*4, MaxItems: int(options) % 3, MaxDepth: int(options) % 5, Cut: new(transcode.Cut)}
		short, err := m.AppendJSON(nil, wire, bounded)
		if err != nil || !json.Valid(short) || len(short) > max(2, bounded.MaxBytes) {
			t.Fatalf("AppendJSON(%x, %+v) = %s, %v", wire, bounded, short, err)
		}
		agreeStream(t, m, wire, bounded, 1+int(options))
	})
}

func FuzzParam(f *testing.F) {
	targets := fuzzTargets(f)
	for _, path := range []string{"optional_int32", "optionalTimestamp", "recursive_message.optionalString", "map_bool_bool[true]", "repeated_nested_enum", "optional_struct", "optionalDuration", "optional_field_mask"} {
		for _, text := range []string{"1", "2026-01-01T00:00:00Z", "1h", "FOO", `{"a":1}`, "a_b,c", "-007"} {
			f.Add(byte(0), path, text)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, path, text string) {
		x := targets[int(which)%len(targets)]
		m := x.set.codec.Message(x.md)
		wire, err := m.AppendParam(nil, path, []string{text})
		if err != nil {
			return
		}
		if _, err := x.set.decode(x.md, wire); err != nil || m.Check(wire) != nil {
			t.Fatalf("AppendParam(%q, %q) = %x: %v, Check %v", path, text, wire, err, m.Check(wire))
		}
	})
}

func FuzzJSONToWire(f *testing.F) {
	targets := fuzzTargets(f)
	seeds(f, targets, true)
	for _, s := range []string{`{"optionalInt32":1e3}`, `{"optionalInt32":"3.0"}`, `{"optionalString":"\ud83d\ude00"}`, `{"optionalBytes":"_-8"}`,
		`{"mapBoolBool":{"true":false}}`, `{"optionalTimestamp":"2026-01-01T00:00:00+01:00"}`, `{"optionalAny":{"value":"1s","@type":"type.googleapis.com/google.protobuf.Duration"}}`} {
		f.Add(byte(0), []byte(s), false)
	}
	f.Fuzz(func(t *testing.T, which byte, src []byte, discard bool) {
		x := targets[int(which)%len(targets)]
		o := transcode.ReadOptions{DiscardUnknown: discard}
		wire, err := x.set.codec.Message(x.md).AppendWire(nil, src, o)
		if err == nil && !json.Valid(src) {
			t.Fatalf("AppendWire(%q) = %x, of invalid JSON", src, wire)
		}
		if !json.Valid(src) {
			return // protojson lets some of it pass, such as the number 1e
		}
		if err == nil && len(wire) > 16+8*len(src) {
			t.Fatalf("AppendWire(%q) = %d bytes", src, len(wire))
		}
		agreeWire(t, x.set, x.md, src, o)
	})
}

func FuzzCanonical(f *testing.F) {
	targets := fuzzTargets(f)
	seeds(f, targets, false)
	f.Fuzz(func(t *testing.T, which byte, wire []byte, _ byte) {
		x := targets[int(which)%len(targets)]
		m := x.set.codec.Message(x.md)
		canonical, err := m.AppendCanonical(nil, wire)
		if checked := m.Check(wire); (err == nil) != (checked == nil) && !tooDeep(err) && !tooDeep(checked) {
			t.Fatalf("AppendCanonical(%x) error = %v, Check %v", wire, err, checked)
		}
		if err != nil {
			return
		}
		if other, err := m.AppendCanonical(nil, backwards(x.md, wire)); err != nil || !bytes.Equal(other, canonical) {
			t.Fatalf("AppendCanonical(%x) = %x, with the fields backwards %x, %v", wire, canonical, other, err)
		}
		if msg, err := x.set.decode(x.md, wire); err == nil {
			agreeCanonical(t, x.set, x.md, wire, msg)
		} else if !errors.Is(err, errOraclePanic) {
			t.Fatalf("AppendCanonical(%x) = %x, oracle %v", wire, canonical, err)
		}
	})
}

// backwards puts the fields of a message in the order of falling numbers. Members of one oneof stay in their order, since the last wins.
func backwards(md protoreflect.MessageDescriptor, wire []byte) []byte {
	type part struct {
		key protoreflect.FieldNumber
		raw []byte
	}
	var parts []part
	for len(wire) > 0 {
		num, _, n := protowire.ConsumeField(wire)
		if n < 0 {
			return wire
		}
		key := num
		if fd := md.Fields().ByNumber(num); fd != nil && fd.ContainingOneof() != nil {
			key = fd.ContainingOneof().Fields().Get(0).Number()
		}
		parts = append(parts, part{key, wire[:n]})
		wire = wire[n:]
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.key, a.key) })
	var out []byte
	for _, p := range parts {
		out = append(out, p.raw...)
	}
	return out
}
