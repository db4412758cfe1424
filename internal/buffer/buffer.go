// Package buffer keeps byte slices for the next message. Large ones are kept apart from small ones: were they not, each small message might hold a
// large slice, and none would ever be collected.
package buffer

import (
	"slices"
	"sync"
)

const (
	// Small is the capacity up to which slices serve small messages.
	Small = 64 << 10
	// Most is the capacity above which a slice is not kept.
	Most = 8 << 20
)

var small, large = sync.Pool{New: empty}, sync.Pool{New: empty}

func empty() any { return new([]byte) }

// Take returns an empty slice with room for n bytes. It may grow.
func Take(n int) *[]byte {
	from := &small
	if n > Small {
		from = &large
	}
	b := from.Get().(*[]byte)
	*b = slices.Grow((*b)[:0], n)
	return b
}

// Give keeps a slice for the next one who takes. Nothing may use its bytes any more, nor the variable that b points to.
func Give(b *[]byte) {
	switch c := cap(*b); {
	case c <= Small:
		small.Put(b)
	case c <= Most:
		large.Put(b)
	}
}

// Room makes room for n more bytes: if there is none, *b becomes a larger slice with the same bytes, and the one that it was is given.
func Room(b *[]byte, n int) {
	if cap(*b)-len(*b) >= n {
		return
	}
	larger := Take(len(*b) + n)
	*larger = append(*larger, *b...)
	*b, *larger = *larger, *b
	Give(larger)
}

// ForJSON is how much room the JSON of a message is likely to need, by the length of its wire form: rather more than less, but not twice as much where
// that is more than is kept.
func ForJSON(wire int) int { return wire + min(wire, Most/2) + 256 }
