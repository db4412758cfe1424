// Package nearmiss finds the name that a caller most likely meant.
package nearmiss

import (
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// Find returns the candidate nearest to name, or "" when none is near enough to be worth suggesting: at most one edit for names of up
// to four letters, one more for each further five, three at most, and fewer edits than the name has letters. Two neighbouring letters that
// are swapped count as one edit. Words that both begin or end with do not count as letters: of library_now and library_ask only the last are
// compared. Ties go to the first candidate. Without one, it is the only candidate that name is in another case, is the last words of, or
// begins, from three letters on.
func Find(name string, candidates iter.Seq[string]) string {
	const longest = 128 // longer names are not typing mistakes, and the distance is quadratic
	if len(name) > longest {
		return ""
	}
	letters := utf8.RuneCountInString(name)
	limit := allowed(letters)
	best, found := limit+1, ""
	for c := range candidates {
		if d := utf8.RuneCountInString(c) - letters; d >= best || -d >= best {
			continue
		}
		if d := distance(name, c); d < best && d <= allowed(utf8.RuneCountInString(differing(name, c))) {
			best, found = d, c
		}
	}
	if found == "" && letters >= 3 {
		return part(name, candidates)
	}
	return found
}

// allowed is how many edits a name of so many letters may have.
func allowed(letters int) int { return min(1+letters/5, 3, letters-1) }

const separators = "_./-"

// differing returns name without the whole words that other begins or ends with too.
func differing(name, other string) string {
	n, begin := 0, 0
	for ; n < min(len(name), len(other)) && name[n] == other[n]; n++ {
		if strings.IndexByte(separators, name[n]) >= 0 {
			begin = n + 1
		}
	}
	name, other = name[begin:], other[begin:]
	end := len(name)
	for i := 1; i <= min(len(name), len(other)) && name[len(name)-i] == other[len(other)-i]; i++ {
		if strings.IndexByte(separators, name[len(name)-i]) >= 0 {
			end = len(name) - i
		}
	}
	return name[:end]
}

// part returns the only candidate that name is a part of, whatever the case: the whole, the last words or, if it is none of these, the beginning.
func part(name string, candidates iter.Seq[string]) string {
	tail, head := "", ""
	tails, heads := 0, 0
	for c := range candidates {
		before := len(c) - len(name)
		switch {
		case before < 0:
		case strings.EqualFold(c[before:], name) && (before == 0 || strings.IndexByte(separators, c[before-1]) >= 0):
			if c != tail {
				tail, tails = c, tails+1
			}
		case strings.EqualFold(c[:len(name)], name):
			if c != head {
				head, heads = c, heads+1
			}
		}
	}
	switch {
	case tails == 1:
		return tail
	case tails == 0 && heads == 1:
		return head
	}
	return ""
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
