package transcode

import (
	"bytes"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// known appends the fields of the well-known type whose own JSON form stands at r.pos.
func (r *reader) known(out []byte, p *plan, depth int) ([]byte, bool) {
	switch p.known {
	case knownAny:
		return r.any(out, p, depth)
	case knownTimestamp, knownDuration:
		return r.instant(out, p)
	case knownWrapper:
		return r.field(out, p.at(p.index(1)), depth)
	case knownStruct:
		if r.at() != '{' {
			return out, r.want(p.msg.wantOne())
		}
		return r.object(out, p.at(p.index(1)), depth)
	case knownList:
		if r.at() != '[' {
			return out, r.want(p.msg.wantOne())
		}
		return r.list(out, p.at(p.index(1)), depth)
	case knownValue:
		return r.dynamic(out, p, depth)
	case knownMask:
		return r.mask(out, p)
	}
	return r.empty(out, p, depth)
}

func (r *reader) instant(out []byte, p *plan) ([]byte, bool) {
	want := wantTimestamp
	if p.known == knownDuration {
		want = wantDuration
	}
	if r.at() != '"' {
		return out, r.want(want)
	}
	start := r.pos
	s, ok := r.string()
	if !ok {
		return out, false
	}
	var seconds int64
	var nanos int32
	if p.known == knownDuration {
		seconds, nanos, ok = parseDuration(s)
	} else {
		seconds, nanos, ok = parseTimestamp(s)
	}
	if !ok {
		r.pos = start
		return out, r.want(want)
	}
	return appendInstant(out, seconds, nanos), true
}

// appendInstant appends the fields of a Timestamp or Duration.
func appendInstant(out []byte, seconds int64, nanos int32) []byte {
	if seconds != 0 {
		out = appendBits(append(out, 1<<3), protowire.VarintType, uint64(seconds))
	}
	if nanos != 0 {
		out = appendBits(append(out, 2<<3), protowire.VarintType, uint64(int64(nanos)))
	}
	return out
}

// parseTimestamp reads an RFC 3339 time.
func parseTimestamp(s []byte) (seconds int64, nanos int32, ok bool) {
	if seconds, nanos, ok = parseUTC(s); ok {
		return seconds, nanos, true
	}
	text := string(s)
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Unix() < minTimestamp || t.Unix() > maxTimestamp {
		return 0, 0, false
	}
	point, zone := strings.LastIndexByte(text, '.'), strings.LastIndexAny(text, "Z-+")
	if point >= 0 && zone >= point && zone-point > len(".999999999") {
		return 0, 0, false // more digits than a nanosecond has
	}
	return t.Unix(), int32(t.Nanosecond()), true
}

// parseUTC reads the usual form 2006-01-02T15:04:05.999999999Z.
func parseUTC(s []byte) (seconds int64, nanos int32, ok bool) {
	n := len(s)
	if n < 20 || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' || s[n-1] != 'Z' {
		return 0, 0, false
	}
	ok = true
	two := func(i int) int {
		a, b := s[i]-'0', s[i+1]-'0'
		ok = ok && a <= 9 && b <= 9
		return int(a)*10 + int(b)
	}
	year, month, day := two(0)*100+two(2), two(5), two(8)
	hour, minute, second := two(11), two(14), two(17)
	if !ok || year < 1 || month < 1 || month > 12 || day < 1 || day > 28 && day > monthDays(year, month) ||
		hour > 23 || minute > 59 || second > 59 {
		return 0, 0, false
	}
	if n > 20 {
		if s[19] != '.' || n == 21 || n > 30 {
			return 0, 0, false
		}
		scale := int32(100000000)
		for _, c := range s[20 : n-1] {
			if c -= '0'; c > 9 {
				return 0, 0, false
			}
			nanos += int32(c) * scale
			scale /= 10
		}
	}
	return daysBefore(year, month, day)*86400 + int64(hour*3600+minute*60+second) + minTimestamp, nanos, true
}

func monthDays(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// daysBefore returns the days from 0001-01-01 to a date; it is the inverse of civil.
func daysBefore(year, month, day int) int64 {
	y, m := int64(year), int64(month)-3
	if month < 3 {
		y, m = y-1, m+12
	}
	return y*365 + y/4 - y/100 + y/400 + (153*m+2)/5 + int64(day) - 1 - 306
}

// parseDuration reads a decimal number of seconds with the suffix "s".
func parseDuration(s []byte) (seconds int64, nanos int32, ok bool) {
	if len(s) < 2 || s[len(s)-1] != 's' {
		return 0, 0, false
	}
	s = s[:len(s)-1]
	neg := s[0] == '-'
	if neg || s[0] == '+' {
		s = s[1:]
	}
	whole, fraction, point := bytes.Cut(s, []byte{'.'})
	if len(s) == 0 || len(whole) == 0 && !point || len(whole) > 1 && whole[0] == '0' || len(whole) > 12 || len(fraction) > 9 {
		return 0, 0, false
	}
	for _, c := range whole {
		if c -= '0'; c > 9 {
			return 0, 0, false
		}
		seconds = seconds*10 + int64(c)
	}
	scale := int32(100000000)
	for _, c := range fraction {
		if c -= '0'; c > 9 {
			return 0, 0, false
		}
		nanos += int32(c) * scale
		scale /= 10
	}
	if neg {
		seconds, nanos = -seconds, -nanos
	}
	return seconds, nanos, seconds >= -maxDuration && seconds <= maxDuration
}

// mask appends the paths of the field mask at r.pos: JSON paths joined by commas.
func (r *reader) mask(out []byte, p *plan) ([]byte, bool) {
	if r.at() != '"' {
		return out, r.want(wantMask)
	}
	start := r.pos
	s, ok := r.string()
	if !ok {
		return out, false
	}
	out, ok = appendMask(out, p.at(p.index(1)).tag, s)
	if !ok {
		r.pos = start
		return out, r.want(wantMask)
	}
	return out, true
}

// appendMask appends the paths of a field mask in JSON form.
func appendMask(out []byte, tag string, s []byte) ([]byte, bool) {
	if s = bytes.TrimSpace(s); len(s) == 0 {
		return out, true
	}
	for more := true; more; {
		var path []byte
		path, s, more = bytes.Cut(s, []byte{','})
		out = append(append(out, tag...), 0)
		at := len(out) - 1
		for _, c := range path {
			switch {
			case c == '_':
				return out, false
			case c >= 'A' && c <= 'Z':
				out = append(out, '_', c-'A'+'a')
			default:
				out = append(out, c)
			}
		}
		if !isPath(out[at+1:]) {
			return out, false
		}
		out = fixLength(out, at)
	}
	return out, true
}

// dynamic appends the fields of the google.protobuf.Value that is any JSON value.
func (r *reader) dynamic(out []byte, p *plan, depth int) (_ []byte, ok bool) {
	var num uint64
	switch r.at() {
	case 'n':
		num = 1
	case '"':
		num = 3
	case 't', 'f':
		num = 4
	case '{':
		num = 5
	case '[':
		num = 6
	default:
		num = 2
	}
	f := p.at(p.index(num))
	out = append(out, f.tag...)
	at := len(out)
	switch num {
	case 1:
		return append(out, 0), r.literal("null")
	case 2:
		start := r.pos
		s, ok := r.number()
		if !ok {
			return out, false
		}
		v, ok := parseNumber(protoreflect.DoubleKind, s)
		if !ok {
			r.pos = start
			return out, r.wantScalar(f)
		}
		return appendBits(out, protowire.Fixed64Type, v), true
	case 5, 6:
		// The Struct or ListValue inside is the same JSON value, so that it is no nesting level of its own.
		inner := f.msg.plan()
		if out = append(out, 0); num == 5 {
			out, ok = r.object(out, inner.at(inner.index(1)), depth)
		} else {
			out, ok = r.list(out, inner.at(inner.index(1)), depth)
		}
		if !ok {
			return out, false
		}
		return fixLength(out, at), true
	}
	out, _, ok = r.value(out, f, depth)
	return out, ok
}

// empty reads the object of a google.protobuf.Empty, which has no fields.
func (r *reader) empty(out []byte, p *plan, depth int) ([]byte, bool) {
	if r.at() != '{' {
		return out, r.want(p.msg.wantObject())
	}
	if r.discard {
		return out, r.skip(depth + 1)
	}
	r.pos++
	r.space()
	if r.at() == '}' {
		r.pos++
		return out, true
	}
	if r.at() != '"' {
		return out, r.syntax("where a name in quotes should be")
	}
	s, ok := r.string()
	if !ok {
		return out, false
	}
	return out, r.fail(p.unknownField(string(s)))
}
