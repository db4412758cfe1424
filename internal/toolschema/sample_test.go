package toolschema_test

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"
)

// long takes everything: go test ./internal/toolschema -long. Without it, tests over the corpus take the same sample each time: of every set the
// first message and every n-th after it. Variants are sets again in another file form, of which a few messages are enough.
var long = flag.Bool("long", false, "derive the schemas of every message of the corpus, not of a sample")

// every returns n for a test that takes each n-th of a set's schemas, scaled to the set and the build; 1 if all are asked for.
func every(t testing.TB, n int) int {
	t.Helper()
	if *long {
		return 1
	}
	if strings.Contains(t.Name(), "variants"+string(filepath.Separator)) {
		n *= 4
	}
	return n * slower
}
