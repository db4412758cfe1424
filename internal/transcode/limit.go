package transcode

import (
	"bytes"
	"math"
	"strconv"
)

// Cut says what WriteOptions limits left out of a JSON text.
type Cut struct {
	// Places are where something is missing, in the order of the text. At most 16 are listed.
	Places []CutPlace
	// More is how many further places there are.
	More int
}

// CutPlace is one place where something is missing.
type CutPlace struct {
	// Path is the list, map or field in JSON names, e.g. "orders[2].items"; "" is the root.
	Path string
	// Left is how many items of a list or map are missing; 1 for any other field.
	Left int
	// Bytes is how long the JSON of a field is that is missing because of the limit on bytes; 0 for a list or map that ends early.
	Bytes int
	// Limit is the limit that was reached: "bytes", "items" or "depth".
	Limit string
}

const maxPlaces = 16

// limits bounds the text of one writer. Lists and maps stop at soft, which leaves room for the plain fields after them (page tokens,
// totals); any other field is left out if it would end beyond hard. Both count the brackets still to be closed.
type limits struct {
	limited    bool
	soft, hard int
	maxItems   int
	maxDepth   int
	open       int  // brackets to be closed
	full       bool // some list has reached soft: no list grows any more
	places     []CutPlace
	more       int
}

type limitState struct {
	open, places, more int
	full               bool
}

func (l *limits) reset(o WriteOptions, start int) {
	l.limited = o.MaxBytes > 0 || o.MaxItems > 0 || o.MaxDepth > 0
	l.soft, l.hard, l.maxItems, l.maxDepth = math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt
	l.open, l.full, l.more, l.places = 0, false, 0, l.places[:0]
	if o.MaxBytes > 0 {
		l.hard = start + o.MaxBytes
		l.soft = start + softBytes(o.MaxBytes)
	}
	if o.MaxItems > 0 {
		l.maxItems = o.MaxItems
	}
	if o.MaxDepth > 0 {
		l.maxDepth = o.MaxDepth
	}
}

// softBytes is at which length of a text bounded to most bytes lists and maps stop.
func softBytes(most int) int { return most - min(most/8, 1024) }

func (l *limits) state() limitState { return limitState{l.open, len(l.places), l.more, l.full} }

func (l *limits) restore(s limitState) {
	l.open, l.places, l.more, l.full = s.open, l.places[:s.places], s.more, s.full
}

func (l *limits) report(c *Cut) {
	if c != nil {
		c.Places, c.More = append(c.Places[:0], l.places...), l.more
	}
}

func (l *limits) note(path string, left int, limit string) {
	if len(l.places) == maxPlaces {
		l.more++
		return
	}
	l.places = append(l.places, CutPlace{Path: path, Left: left, Limit: limit})
}

// nest puts the places noted since there were n under a field or an index.
func (l *limits) nest(n int, name string) {
	for i := n; i < len(l.places); i++ {
		l.places[i].Path = join(name, l.places[i].Path)
	}
}

func (l *limits) tooDeep() bool { return l.open >= l.maxDepth }

// elide writes an empty object or array in the place of one that lies too deep.
func (w *writer) elide(out []byte, empty string, missing bool) []byte {
	if missing {
		w.note("", 1, "depth")
	}
	return append(out, empty...)
}

// settle looks at a field that was just written from mark on, and takes it back when it does not fit.
func (w *writer) settle(out []byte, f *field, mark, places int) (_ []byte, kept bool) {
	if len(out)+w.open <= w.hard {
		w.nest(places, f.json)
		return out, true
	}
	w.places = w.places[:min(places, len(w.places))]
	left := len(bytes.TrimPrefix(out[mark:], []byte(",")))
	w.note(f.json, 1, "bytes")
	if n := len(w.limits.places); w.limits.more == 0 {
		w.limits.places[n-1].Bytes = left
	}
	return out[:mark], false
}

// tally counts the elements of a list or map.
type tally struct {
	n     int // written
	left  int // left out
	limit string
}

// admit reports whether a further element may be written.
func (w *writer) admit(t *tally) bool {
	switch {
	case t.left > 0:
	case t.n >= w.maxItems:
		t.limit = "items"
	case w.full:
		t.limit = "bytes"
	default:
		return true
	}
	t.left++
	return false
}

// weigh looks at an element that was just written from mark on, and takes it back when it does not fit, or when something in it did
// not: only whole elements are of use, unless it is the first.
func (w *writer) weigh(out []byte, t *tally, mark, places int) []byte {
	if len(out)+w.open > w.soft || w.full && t.n > 0 {
		w.places = w.places[:min(places, len(w.places))]
		w.full = true
		t.left, t.limit = 1, "bytes"
		return out[:mark]
	}
	t.n++
	return out
}

// item appends one element of a list.
func (w *writer) item(out []byte, f *field, v value, t *tally, depth int) ([]byte, bool) {
	if !w.limited {
		if t.n > 0 {
			out = append(out, ',')
		}
		t.n++
		out, ok := w.value(out, f, v, depth)
		if ok && len(out) >= w.at {
			return w.pass(out)
		}
		return out, ok
	}
	if !w.admit(t) {
		return out, true
	}
	mark, places := len(out), len(w.places)
	if t.n > 0 {
		out = append(out, ',')
	}
	out, ok := w.value(out, f, v, depth)
	if !ok {
		t.n++ // as without limits, so that the path of the failure is right
		return out, false
	}
	if len(w.places) > places {
		w.nest(places, index(t.n))
	}
	if out = w.weigh(out, t, mark, places); len(out) >= w.at {
		return w.pass(out)
	}
	return out, true
}

// finish notes what a list or map lacks.
func (w *writer) finish(t *tally) {
	if t.left > 0 {
		w.note("", t.left, t.limit)
	}
}

func index(i int) string { return "[" + strconv.Itoa(i) + "]" }

func join(outer, inner string) string {
	if outer == "" || inner == "" || inner[0] == '[' {
		return outer + inner
	}
	return outer + "." + inner
}
