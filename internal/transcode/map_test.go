package transcode_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/toolway/toolway/internal/transcode"
)

// TestMapOrder writes maps of all sizes, with keys that are alike for long, in any order and some of them twice: the keys come in order,
// each with its last value.
func TestMapOrder(t *testing.T) {
	set := compileProto(t, `
syntax = "proto3";
package test;
message Maps {
  map<string, uint32> text = 1;
  map<sint32, uint32> signed = 2;
  map<uint64, uint32> unsigned = 3;
  map<bool, uint32> flag = 4;
}
`)
	m := set.codec.Message(set.message(t, "test.Maps"))
	random := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "\x00", "\x00\x00", "a", "a\x00", "ab", "b", "é", "abcdefg", "abcdefg\x00", "abcdefgh", "abcdefgh\x00", "abcdefghi", "abcdefghj", "abcdefgi"}
	for i := range 30 {
		texts = append(texts, fmt.Sprintf("key-%d", i), fmt.Sprintf("a-long-key-%d", i))
	}
	for size := range 60 {
		for range 20 {
			checkMapOrder(t, m, 1, size, func() string { return texts[random.IntN(len(texts))] },
				func(b []byte, k string) []byte {
					return protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), k)
				}, func(k string) string { return stringText([]byte(k)) }, strings.Compare)
			varint := func(b []byte, k uint64) []byte {
				return protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), k)
			}
			checkMapOrder(t, m, 2, size, func() int32 { return pick(random, math.MinInt32, -1, 0, 1, math.MaxInt32, random.Int32N(40)-20) },
				func(b []byte, k int32) []byte { return varint(b, protowire.EncodeZigZag(int64(k))) },
				func(k int32) string { return fmt.Sprintf(`"%d"`, k) }, cmp.Compare[int32])
			checkMapOrder(t, m, 3, size, func() uint64 { return pick(random, 0, 1, 1<<63, math.MaxUint64, random.Uint64N(40)) },
				varint, func(k uint64) string { return fmt.Sprintf(`"%d"`, k) }, cmp.Compare[uint64])
			checkMapOrder(t, m, 4, size, func() uint64 { return random.Uint64N(2) },
				varint, func(k uint64) string { return fmt.Sprintf(`"%t"`, k == 1) }, cmp.Compare[uint64])
		}
	}
}

func pick[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

// checkMapOrder writes a map of size entries. A zero key may be left out on the wire, and sometimes is.
func checkMapOrder[K comparable](t *testing.T, m *transcode.Message, field protowire.Number, size int, key func() K,
	encode func([]byte, K) []byte, text func(K) string, compare func(a, b K) int) {
	t.Helper()
	var wire []byte
	values := map[K]int{}
	for i := range size {
		k := key()
		values[k] = i
		var entry []byte
		if k != *new(K) || i%2 == 0 {
			entry = encode(nil, k)
		}
		entry = protowire.AppendVarint(protowire.AppendTag(entry, 2, protowire.VarintType), uint64(i))
		wire = protowire.AppendBytes(protowire.AppendTag(wire, field, protowire.BytesType), entry)
	}
	var keys []K
	for k := range values {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	var want strings.Builder
	for i, k := range keys {
		if i > 0 {
			want.WriteByte(',')
		}
		fmt.Fprintf(&want, "%s:%d", text(k), values[k])
	}
	got, err := m.AppendJSON(nil, wire, transcode.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, inner, _ := strings.Cut(string(got), ":{")
	if inner = strings.TrimSuffix(inner, "}}"); size > 0 && inner != want.String() {
		t.Fatalf("AppendJSON(%x) = %s, want in order\n%s", wire, got, &want)
	}
}
