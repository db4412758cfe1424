package apart_test

import (
	"bytes"
	"runtime"
	"testing"

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
