//go:build !race

package buffer_test

import (
	"testing"

	"github.com/toolway/toolway/internal/buffer"
)

// Neither small nor large messages allocate once there is a buffer.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, n := range []int{100, 1 << 20} {
		if allocs := testing.AllocsPerRun(100, func() { buffer.Give(buffer.Take(n)) }); allocs > 0.5 { // a collection may empty the pool
			t.Errorf("%v allocations for %d bytes", allocs, n)
		}
	}
}
