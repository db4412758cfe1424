//go:build !race

package call_test

import (
	"testing"

	"github.com/toolway/toolway/internal/call"
)

// TestFilterAllocations has the headers of a request filtered with no allocation but for the map of what crosses.
func TestFilterAllocations(t *testing.T) {
	r, h := call.NewRules(nil), smallHeader()
	if got := testing.AllocsPerRun(100, func() { r.FilterText(h) }); got > 2 {
		t.Errorf("%v allocations, were 2", got)
	}
}
