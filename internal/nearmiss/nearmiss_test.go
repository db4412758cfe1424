package nearmiss_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/nearmiss"
)

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name       string
		candidates []string
		want       string
	}{
		{"minuts", []string{"hours", "minutes"}, "minutes"},
		{"nmae", []string{"name"}, "name"},
		{"pagesize", []string{"page_size", "pageSize"}, "page_size"},
		{"bakend", []string{"backend"}, "backend"},
		{"colour", []string{"color", "colours"}, "color"},
		{"zzzzzz", []string{"name"}, ""},
		{"ab", []string{"cd"}, ""},
		{"é", []string{"b"}, ""},
		{"", []string{"b"}, ""},
		{"x", []string{"y"}, ""},
		{"abc", nil, ""},
		{"library_noww", []string{"library_show", "library_now"}, "library_now"},
		{"library_noww", []string{"library_show"}, ""},
		{"library_ask", []string{"library_big"}, ""},
		{"libary_get_book", []string{"library_get_book"}, "library_get_book"},
		{"get_book", []string{"library_list", "library_get_book"}, "library_get_book"},
		{"get_book", []string{"library_get_book", "museum_get_book"}, ""},
		{"kind", []string{"TONE_UNSPECIFIED", "TONE_KIND"}, "TONE_KIND"},
		{"Tone_Kind", []string{"TONE_KIND"}, "TONE_KIND"},
		{"min", []string{"hours", "minutes", "minutes"}, "minutes"},
		{"min", []string{"minutes", "minimum"}, ""},
		{strings.Repeat("a", 1000), []string{strings.Repeat("a", 999)}, ""},
	} {
		if got := nearmiss.Find(c.name, slices.Values(c.candidates)); got != c.want {
			t.Errorf("Find(%.20q, %.60q) = %q, want %q", c.name, c.candidates, got, c.want)
		}
	}
}
