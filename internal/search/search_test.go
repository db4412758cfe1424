package search_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/search"
)

func names(ms []*catalog.Method) []string {
	var out []string
	for _, m := range ms {
		out = append(out, m.Tool.Name)
	}
	return out
}

func open(t testing.TB) *search.Index {
	t.Helper()
	x := new(search.Index)
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func find(t testing.TB, x *search.Index, s *catalog.Snapshot, words string, keep func(*catalog.Method) bool) []string {
	t.Helper()
	found, err := x.Find(t.Context(), s, words, 5, keep)
	if err != nil {
		t.Fatalf("Find(%q): %v", words, err)
	}
	return names(found)
}

// corpus is a catalog of real public APIs.
func corpus(t testing.TB) *catalog.Snapshot {
	t.Helper()
	c, err := catalog.Open(t.Context(), catalog.Config{Backends: []catalog.BackendConfig{{Name: "google", Sources: []catalog.Source{catalog.File("../../../shared/descriptors/googleapis-core.binpb")}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c.Snapshot()
}

// TestFindInRealAPIs asks as an agent would. The wanted tool must be among the first five of hundreds.
func TestFindInRealAPIs(t *testing.T) {
	s := corpus(t)
	x := open(t)
	for _, c := range []struct{ words, want string }{
		{"delete a log", "DeleteLog"},
		{"list the entries of a log", "ListLogEntries"},
		{"publish a message to a topic", "Publish"},
		{"create subscription", "CreateSubscription"},
		{"cancel a long running operation", "CancelOperation"},
		{"publihs mesage", "Publish"}, // both misspelt
	} {
		found, err := x.Find(t.Context(), s, c.words, 5, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(found, func(m *catalog.Method) bool { return string(m.Desc.Name()) == c.want }) {
			t.Errorf("Find(%q) = %q, want a tool of method %s among them", c.words, names(found), c.want)
		}
	}
}

// api returns a catalog of methods of one service.
func api(t testing.TB, methods ...string) *catalog.Snapshot {
	t.Helper()
	svc := &descriptorpb.ServiceDescriptorProto{Name: proto.String("ShopService")}
	for _, m := range methods {
		svc.Method = append(svc.Method, &descriptorpb.MethodDescriptorProto{Name: proto.String(m), InputType: proto.String(".shop.M"), OutputType: proto.String(".shop.M")})
	}
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{
		Name: proto.String("shop.proto"), Package: proto.String("shop"), Syntax: proto.String("proto3"), Service: []*descriptorpb.ServiceDescriptorProto{svc},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{{
			Name: proto.String("customer_id"), Number: proto.Int32(1), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}}}},
	}}}
	s, err := catalog.Static("shop", set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFollowsTheCatalog(t *testing.T) {
	x := open(t)
	before, after := api(t, "ListOrders", "CancelOrder"), api(t, "ListOrders", "RefundOrder")
	if got := find(t, x, before, "cancel", nil); !slices.Equal(got, []string{"shop_cancel_order"}) {
		t.Errorf("before the change: %q", got)
	}
	if got := find(t, x, after, "cancel", nil); len(got) != 0 {
		t.Errorf("a tool that has gone is still found: %q", got)
	}
	if got := find(t, x, after, "refund", nil); !slices.Equal(got, []string{"shop_refund_order"}) {
		t.Errorf("a new tool: %q", got)
	}
}

func TestFindDetails(t *testing.T) {
	x := open(t)
	s := api(t, "ListOrders", "CancelOrder", "CancelOrderLine")
	for _, words := range []string{"", "  ", "\xff\xfe", "🦊", strings.Repeat("a", 10_000)} {
		if got := find(t, x, s, words, nil); len(got) != 0 {
			t.Errorf("Find(%.20q) = %q, want nothing", words, got)
		}
	}
	if got := find(t, x, s, `"cancel" AND (order: [* TO`, nil); len(got) == 0 {
		t.Error("what looks like a query language finds nothing: it is words all the same")
	}
	if got := find(t, x, s, "shop_cancel_order_line", nil); len(got) == 0 || got[0] != "shop_cancel_order_line" {
		t.Errorf("a tool's own name finds %q, want that tool first", got)
	}
	if got := find(t, x, s, "customer", nil); len(got) != 3 {
		t.Errorf("the name of an argument finds %q, want the three tools that take it", got)
	}
	hidden := func(m *catalog.Method) bool { return m.Tool.Name != "shop_cancel_order" }
	if got := find(t, x, s, "cancel", hidden); !slices.Equal(got, []string{"shop_cancel_order_line"}) {
		t.Errorf("with a tool hidden: %q", got)
	}
}

// TestManyHidden has the only tool that may be shown behind many that may not.
func TestManyHidden(t *testing.T) {
	methods := []string{"Restock"}
	for i := range 200 {
		methods = append(methods, fmt.Sprintf("RestockA%d", i))
	}
	x := open(t)
	keep := func(m *catalog.Method) bool { return m.Desc.Name() == "RestockA199" }
	if got := find(t, x, api(t, methods...), "restock", keep); !slices.Equal(got, []string{"shop_restock_a199"}) {
		t.Errorf("found %q, want the one that may be shown", got)
	}
}

// TestManyChanges goes on past the point where the index is made anew.
func TestManyChanges(t *testing.T) {
	x := open(t)
	for i := range 40 {
		s := api(t, "ListOrders", fmt.Sprintf("CancelOrder%d", i))
		if got, want := find(t, x, s, "cancel", nil), fmt.Sprintf("shop_cancel_order%d", i); !slices.Equal(got, []string{want}) {
			t.Fatalf("after %d changes: %q, want %q", i, got, want)
		}
		if got := find(t, x, s, "list", nil); !slices.Equal(got, []string{"shop_list_orders"}) {
			t.Fatalf("after %d changes, what has stayed: %q", i, got)
		}
	}
}

func TestClosed(t *testing.T) {
	x, s := open(t), api(t, "ListOrders")
	for range 2 {
		if got := find(t, x, s, "orders", nil); len(got) != 1 {
			t.Errorf("found %q, want the tool, closed before or not", got)
		}
		for range 2 {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestConcurrent(t *testing.T) {
	x := open(t)
	s := []*catalog.Snapshot{api(t, "ListOrders"), api(t, "ListOrders", "CancelOrder")}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				if _, err := x.Find(t.Context(), s[i%2], "list orders", 3, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkFind searches a thousand real methods. "first" is with the making of the index.
func BenchmarkFind(b *testing.B) {
	s := corpus(b)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			x := new(search.Index)
			find(b, x, s, "list log entries", nil)
			if err := x.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(s.Tools())), "tools")
	})
	b.Run("later", func(b *testing.B) {
		x := open(b)
		for b.Loop() {
			find(b, x, s, "list log entries", nil)
		}
	})
}
