package transcode_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/transcode"
)

// TestMemory gives inputs of 256 KB that make as much work per byte as they can, and bounds what is allocated in all; what is held at once
// is less than half of that, since most of it is buffers that grew.
func TestMemory(t *testing.T) {
	_, m := orders(t)
	const size = 256 << 10
	fill := func(s string) []byte { return bytes.Repeat([]byte(s), size/len(s)) }
	groups := bytes.Repeat([]byte{0xcb, 0x3e}, 400)
	groups = append(groups, bytes.Repeat([]byte{0xcc, 0x3e}, 400)...)
	wires := map[string][]byte{
		"scalars out of order":   fill("\x10\x01\x08\x01"),
		"messages in two pieces": fill("\xaa\x01\x02\x10\x05\xaa\x01\x02\x10\x06"),
		"a oneof back and forth": fill("\x5a\x00\x62\x00"),
		"list and scalar":        fill("\x42\x00\x10\x01"),
		"one map key":            fill("\x4a\x00"),
		"nested groups":          bytes.Repeat(groups, size/len(groups)),
		"unknown fields":         fill("\xc8\x3e\x00\xc0\x3e\x00"),
	}
	for name, wire := range wires {
		for form, f := range map[string]func() error{
			"AppendJSON":      func() error { _, err := m.AppendJSON(nil, wire, transcode.WriteOptions{}); return err },
			"AppendCanonical": func() error { _, err := m.AppendCanonical(nil, wire); return err },
			"Check":           func() error { return m.Check(wire) },
		} {
			if got := allocated(t, f); got > 250*uint64(len(wire)) {
				t.Errorf("%s of %s: %d bytes allocated for %d", form, name, got, len(wire))
			}
		}
	}
	for name, s := range map[string]string{
		"many keys":    `{"counts":{` + strings.TrimSuffix(strings.Repeat(`"":1,`, size/5), ",") + `}}`,
		"empty items":  `{"items":[` + strings.TrimSuffix(strings.Repeat(`{},`, size/3), ",") + `]}`,
		"open braces":  strings.Repeat(`{"parent":`, size/10),
		"open strings": `{"orderId":"` + strings.Repeat(`\`, size),
		"nested Any":   strings.Repeat(`{"detail":{"x":1,"@type":"t/acme.orders.v1.Order",`, size/50),
		"dynamic":      `{"extra":[` + strings.TrimSuffix(strings.Repeat(`[],`, size/3), ",") + `]}`,
	} {
		if got := allocated(t, func() error {
			_, err := m.AppendWire(nil, []byte(s), transcode.ReadOptions{})
			_ = err // some are refused; the cost counts
			return nil
		}); got > 250*uint64(len(s)) {
			t.Errorf("AppendWire of %s: %d bytes allocated for %d", name, got, len(s))
		}
	}
}

func allocated(t *testing.T, f func() error) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := f(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
