// Package nearmiss finds the name that a caller most likely meant.
package nearmiss

import (
	"iter"

	"github.com/agnivade/levenshtein"
)

// Find returns the candidate nearest to name, or "" when none is near enough to be worth suggesting: at most one edit for names of up
// to four letters, one more for each further five, three at most. Ties go to the first candidate.
func Find(name string, candidates iter.Seq[string]) string {
	const longest = 128 // longer names are not typing mistakes, and the distance is quadratic
	if len(name) > longest {
		return ""
	}
	limit := min(1+len(name)/5, 3)
	best, found := limit+1, ""
	for c := range candidates {
		if d := len(c) - len(name); d >= best || -d >= best {
			continue
		}
		if d := levenshtein.ComputeDistance(name, c); d < best {
			best, found = d, c
		}
	}
	return found
}
