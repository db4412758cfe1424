package apart_test

import (
	"bytes"
	"runtime"
	"testing"
	"unsafe"

	"github.com/toolway/toolway/internal/apart"
)

func goroutine() string {
	var b [64]byte
	head, _, _ := bytes.Cut(b[:runtime.Stack(b[:], false)], []byte(" ["))
	return string(head)
}

func TestRunIsApart(t *testing.T) {
	var other string
	apart.Run(func() { other = goroutine() })
	if own := goroutine(); other == "" || other == own {
		t.Errorf("f ran on %q, its caller is %q", other, own)
	}
}

func TestPanicIsTheCallers(t *testing.T) {
	defer func() {
		if p := recover(); p != "deep" {
			t.Errorf("recovered %v, want deep", p)
		}
	}()
	apart.Run(func() { panic("deep") })
	t.Error("no panic")
}

// TestRoom has a goroutine go 9 KiB deep: with the room for it, its stack stays where it is.
func TestRoom(t *testing.T) {
	for _, room := range []bool{true, false} {
		moved := make(chan bool)
		go func() {
			if room {
				apart.Room()
			}
			var here byte
			before := uintptr(unsafe.Pointer(&here))
			deep(36)
			moved <- before != uintptr(unsafe.Pointer(&here))
		}()
		if got := <-moved; got == room {
			t.Errorf("with room %v, the stack has moved: %v", room, got)
		}
	}
}

//go:noinline
func deep(n int) byte {
	var frame [256]byte
	frame[n] = 1
	if n > 0 {
		frame[0] += deep(n - 1)
	}
	return frame[0]
}
