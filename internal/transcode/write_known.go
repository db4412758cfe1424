package transcode

import (
	"encoding/base64"
	"math"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// known appends a well-known type whose pieces are recs[from:from+n] in its own JSON form.
func (w *writer) known(out []byte, p *plan, from, n, depth int) ([]byte, bool) {
	switch p.known {
	case knownTimestamp, knownDuration:
		seconds, nanos, ok := w.secondsNanos(from, n)
		switch {
		case !ok:
			return out, false
		case p.known == knownTimestamp:
			return w.timestamp(out, seconds, nanos)
		}
		return w.duration(out, seconds, nanos)
	case knownWrapper:
		return w.wrapper(out, p, from, n, depth)
	case knownMask:
		return w.mask(out, p, from, n, depth)
	case knownAny:
		return w.any(out, p, from, n, depth)
	case knownValue:
		return w.dynamic(out, p, from, n, depth)
	}
	// Struct and ListValue are the JSON form of their only field.
	base, ok := w.scan(p, from, n, false, depth)
	if !ok {
		return out, false
	}
	f := p.at(p.index(1))
	count := 0
	for base+count < len(w.recs) && w.recs[base+count].num == f.num {
		count++
	}
	if count == 0 {
		return w.unset(out, f), true
	}
	mark, places := len(out), len(w.places)
	out, kept, ok := w.field(out, f, base, count, depth, true)
	if ok && !kept {
		out = w.unset(out[:mark], f)
		w.nest(places, "")
	}
	w.recs = w.recs[:base]
	return out, ok
}

// secondsNanos reads the two fields that Timestamp and Duration share.
func (w *writer) secondsNanos(from, n int) (seconds int64, nanos int32, ok bool) {
	for _, r := range w.recs[from : from+n] {
		if seconds, nanos, ok = w.instant(r.start, r.end, seconds, nanos); !ok {
			return 0, 0, false
		}
	}
	return seconds, nanos, true
}

// instant reads what one piece of a Timestamp or Duration says of its fields.
func (w *writer) instant(pos, end int, seconds int64, nanos int32) (int64, int32, bool) {
	for pos < end {
		num, typ, next := tagAt(w.in, pos, end)
		if next < 0 {
			return 0, 0, w.fail(faultMalformed)
		}
		v, after := valueAt(w.in, next, end, num, typ)
		if after < 0 {
			return 0, 0, w.fail(faultMalformed)
		}
		pos = after
		if typ == protowire.VarintType && num == 1 {
			seconds = int64(v.bits)
		} else if typ == protowire.VarintType && num == 2 {
			nanos = int32(v.bits)
		}
	}
	return seconds, nanos, true
}

func (w *writer) timestamp(out []byte, seconds int64, nanos int32) ([]byte, bool) {
	switch {
	case seconds < minTimestamp || seconds > maxTimestamp:
		return out, w.failf("the timestamp of %d seconds lies outside the years 1 to 9999", seconds)
	case nanos < 0 || nanos > maxNanos:
		return out, w.failf("the timestamp has %d nanos; 0 to 999999999 are allowed", nanos)
	}
	return appendTimestamp(out, seconds, nanos), true
}

func (w *writer) duration(out []byte, seconds int64, nanos int32) ([]byte, bool) {
	switch {
	case seconds < -maxDuration || seconds > maxDuration:
		return out, w.failf("the duration of %d seconds is longer than 10000 years", seconds)
	case nanos < -maxNanos || nanos > maxNanos:
		return out, w.failf("the duration has %d nanos; -999999999 to 999999999 are allowed", nanos)
	case seconds > 0 && nanos < 0 || seconds < 0 && nanos > 0:
		return out, w.failf("the duration has seconds and nanos of different sign")
	}
	return appendDuration(out, seconds, nanos), true
}

func (w *writer) wrapper(out []byte, p *plan, from, n, depth int) ([]byte, bool) {
	f := p.at(p.index(1))
	base, ok := w.scan(p, from, n, false, depth)
	if !ok {
		return out, false
	}
	count := len(w.recs) - base
	if count == 0 {
		return w.unset(out, f), true
	}
	out, _, ok = w.field(out, f, base, count, depth, true)
	w.recs = w.recs[:base]
	return out, ok
}

func (w *writer) mask(out []byte, p *plan, from, n, depth int) ([]byte, bool) {
	base, ok := w.scan(p, from, n, false, depth)
	if !ok {
		return out, false
	}
	out = append(out, '"')
	for i, r := range w.recs[base:] {
		if i > 0 {
			out = append(out, ',')
		}
		if out, ok = appendCamel(out, w.in[r.start:r.end]); !ok {
			return out, w.failf("the field mask has the path %q, which has no JSON form", w.in[r.start:r.end])
		}
	}
	w.recs = w.recs[:base]
	return append(out, '"'), true
}

// appendCamel appends a field mask path in lowerCamelCase; false when it is no path or would not come back as it was.
func appendCamel(out, path []byte) ([]byte, bool) {
	if !isPath(path) {
		return out, false
	}
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch {
		case c >= 'A' && c <= 'Z':
			return out, false
		case c == '_':
			if i++; i == len(path) || path[i] < 'a' || path[i] > 'z' {
				return out, false
			}
			c = path[i] - 'a' + 'A'
		}
		out = append(out, c)
	}
	return out, true
}

// isPath reports whether s is identifiers joined by dots.
func isPath(s []byte) bool {
	start := true
	for _, c := range s {
		switch {
		case c == '.' && !start:
			start = true
			continue
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_':
		case c >= '0' && c <= '9' && !start:
		default:
			return false
		}
		start = false
	}
	return !start
}

// dynamic appends a google.protobuf.Value.
func (w *writer) dynamic(out []byte, p *plan, from, n, depth int) ([]byte, bool) {
	base, ok := w.scan(p, from, n, false, depth)
	if !ok {
		return out, false
	}
	count := len(w.recs) - base
	if count == 0 {
		return out, w.failf("a google.protobuf.Value has no kind set")
	}
	r := w.recs[base+count-1]
	f := p.at(r.field)
	if f.kind == protoreflect.DoubleKind {
		if v := math.Float64frombits(r.bits); math.IsNaN(v) || math.IsInf(v, 0) {
			return out, w.failf("a google.protobuf.Value holds %v, which has no JSON form", v)
		}
	}
	out, _, ok = w.field(out, f, base, count, depth, true)
	w.recs = w.recs[:base]
	return out, ok
}

// any appends a google.protobuf.Any with the fields of the message in it, or with its own form under "value".
func (w *writer) any(out []byte, p *plan, from, n, depth int) ([]byte, bool) {
	base, ok := w.scan(p, from, n, false, depth)
	if !ok {
		return out, false
	}
	var url, content value
	for _, r := range w.recs[base:] {
		switch r.num {
		case 1:
			if url = r.value; !utf8.Valid(w.in[url.start:url.end]) {
				return out, w.fail(faultUTF8)
			}
		case 2:
			content = r.value
		}
	}
	w.recs = w.recs[:base]
	if w.limited && w.tooDeep() {
		return w.elide(out, "{}", url.end > url.start), true
	}
	if url.start == url.end {
		if content.start != content.end {
			return out, w.failf("a google.protobuf.Any has a value but no type")
		}
		return append(out, "{}"...), true
	}
	m := w.set.byURL(w.in[url.start:url.end])
	if m == nil && !w.o.OpaqueAny {
		return out, w.failf("unknown type %q in a google.protobuf.Any", w.in[url.start:url.end])
	}
	out, _ = appendString(append(out, `{"@type":`...), w.in[url.start:url.end])
	if m == nil {
		out = base64.StdEncoding.AppendEncode(append(out, `,"value":"`...), w.in[content.start:content.end])
		return append(out, `"}`...), true
	}
	inner, at := m.plan(), w.at
	w.at = math.MaxInt // the text so far may still change
	defer func() { w.at = at }()
	if inner.known != plain && inner.known != knownEmpty {
		w.open++
		out, ok = w.message(append(out, `,"value":`...), inner, content.start, content.end, depth-1)
		w.open--
		return append(out, '}'), ok
	}
	// The fields stand in this object: the bracket that opens the inner one becomes a comma.
	mark := len(out)
	if out, ok = w.message(out, inner, content.start, content.end, depth-1); !ok {
		return out, false
	}
	if len(out) == mark+2 {
		return append(out[:mark], '}'), true
	}
	out[mark] = ','
	return out, true
}

// urlCache holds the messages that Any values have named.
type urlCache struct {
	mu sync.RWMutex
	m  map[string]*Message
}

// byURL returns the message that the type URL of an Any names, or nil.
func (s *Set) byURL(url []byte) *Message {
	const most = 1024 // the part of a URL before the last slash is free, so the cache needs a bound
	s.urls.mu.RLock()
	m := s.urls.m[string(url)]
	s.urls.mu.RUnlock()
	if m != nil || s.types == nil {
		return m
	}
	mt, err := s.types.FindMessageByURL(string(url))
	if err != nil || mt == nil {
		return nil
	}
	m = s.Message(mt.Descriptor())
	s.urls.mu.Lock()
	defer s.urls.mu.Unlock()
	if s.urls.m == nil {
		s.urls.m = map[string]*Message{}
	}
	if len(s.urls.m) < most {
		s.urls.m[string(url)] = m
	}
	return m
}
