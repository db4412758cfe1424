package buffer_test

import (
	"bytes"
	"testing"

	"github.com/toolway/toolway/internal/buffer"
)

func TestTakeHasRoom(t *testing.T) {
	for _, n := range []int{0, 1, buffer.Small, buffer.Small + 1, buffer.Most + 1} {
		for range 3 {
			b := buffer.Take(n)
			if len(*b) != 0 || cap(*b) < n {
				t.Fatalf("Take(%d): len %d, cap %d", n, len(*b), cap(*b))
			}
			*b = append(*b, make([]byte, n)...)
			buffer.Give(b)
		}
	}
}

func TestRoomKeepsBytes(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 1000)
	b := buffer.Take(len(want))
	*b = append(*b, want...)
	for _, n := range []int{0, 10, buffer.Small, 1 << 20} {
		buffer.Room(b, n)
		if !bytes.Equal(*b, want) || cap(*b)-len(*b) < n {
			t.Fatalf("Room(%d): %d bytes, cap %d", n, len(*b), cap(*b))
		}
	}
}

// Small messages never hold what a large one has needed.
func TestSmallOnesAreSmall(t *testing.T) {
	b := buffer.Take(1 << 20)
	buffer.Give(b)
	for range 10 {
		if b := buffer.Take(100); cap(*b) > buffer.Small {
			t.Fatalf("a small message got %d bytes", cap(*b))
		}
	}
}

// A very large reply, such as a file, does not hold twice its size.
func TestForJSON(t *testing.T) {
	for wire, most := range map[int]int{0: 1 << 10, 100: 1 << 10, 1 << 20: 3 << 20, 64 << 20: 69 << 20} {
		if n := buffer.ForJSON(wire); n < wire || n > most {
			t.Errorf("ForJSON(%d) = %d, want at most %d", wire, n, most)
		}
	}
}
