package call_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/toolway/toolway/internal/call"
)

// TestSteps takes more steps than a call has room for, and decides in most of them, in one twice.
func TestSteps(t *testing.T) {
	c := call.New(method(t, "UnaryCall"), call.GRPC)
	stages := make([]call.Stage, 30)
	for i := range stages {
		stages[i] = call.Stage{Name: fmt.Sprint(i), In: i%2 == 0, Out: i%3 == 0}
		if step := c.Enter(&stages[i]); step != i {
			t.Fatalf("step %d is %d", i, step)
		}
	}
	for i := len(stages) - 1; i >= 0; i-- {
		if i%5 != 0 {
			c.Decide(stages[i].Name, "allowed", fmt.Sprint(i*i))
		}
		c.Leave(i)
	}
	c.Decide("7", "refused", "after all")
	c.Decide("never entered", "refused", "")
	for i, s := range c.Steps {
		want := call.Decision{Verdict: "allowed", Detail: fmt.Sprint(i * i)}
		switch {
		case i == 7:
			want = call.Decision{Verdict: "refused", Detail: "after all"}
		case i%5 == 0:
			want = call.Decision{}
		}
		if s.Name != fmt.Sprint(i) || s.Decided() != want || s.At < 0 || s.Back < s.At {
			t.Errorf("step %d = %q %v %v %+v, want %+v", i, s.Name, s.At, s.Back, s.Decided(), want)
		}
		if i > 0 && (s.At < c.Steps[i-1].At || s.Back > c.Steps[i-1].Back || !stages[i].In && s.At != c.Steps[i-1].At) {
			t.Errorf("step %d is from %v to %v, the one outside from %v to %v", i, s.At, s.Back, c.Steps[i-1].At, c.Steps[i-1].Back)
		}
	}
}

// TestCallIsSmall holds a call to the kilobyte that the allocator gives it, header included: a field more would cost each call the next size.
func TestCallIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(call.Call{}); size > 1016 {
		t.Errorf("a call has %d bytes, and gets 1,152 for more than 1,016: see what it can do without", size)
	}
}
