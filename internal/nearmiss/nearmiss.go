// Package nearmiss finds the name that a caller most likely meant.
package nearmiss

import (
	"iter"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// Find returns the candidate nearest to name, or "" when none is near enough to be worth suggesting: at most one edit for names of up
// to four letters, one more for each further five, three at most, and fewer edits than the name has letters. Two neighbouring letters that
// are swapped count as one edit. Ties go to the first candidate.
func Find(name string, candidates iter.Seq[string]) string {
	const longest = 128 // longer names are not typing mistakes, and the distance is quadratic
	if len(name) > longest {
		return ""
	}
	letters := utf8.RuneCountInString(name)
	limit := min(1+letters/5, 3, letters-1)
	best, found := limit+1, ""
	for c := range candidates {
		if d := utf8.RuneCountInString(c) - letters; d >= best || -d >= best {
			continue
		}
		if d := distance(name, c); d < best {
			best, found = d, c
		}
	}
	return found
}

func distance(a, b string) int {
	if swapped(a, b) {
		return 1
	}
	return levenshtein.ComputeDistance(a, b)
}

// swapped says whether a is b with two neighbouring bytes swapped.
func swapped(a, b string) bool {
	if len(a) != len(b) || a == b {
		return false
	}
	i := 0
	for a[i] == b[i] {
		i++
	}
	return i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}
