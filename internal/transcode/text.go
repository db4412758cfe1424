package transcode

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, in the top bit of each byte, the bytes of x that a JSON string cannot hold as they are: controls, '"' and '\'.
// Bytes above the first marked one may be marked wrongly.
func special(x uint64) uint64 { return specialASCII(x) &^ x & highs }

// notPlain is special that marks what is not ASCII, too.
func notPlain(x uint64) uint64 { return (specialASCII(x) | x) & highs }

// specialASCII is special for bytes that are ASCII; the other bits mean nothing. Flipping 2 puts '"' right behind the controls.
func specialASCII(x uint64) uint64 { return ((x ^ lows*2) - lows*('"'^2+1)) | ((x ^ lows*'\\') - lows) }

// copyPlain copies s up to the first byte that is not ASCII which a JSON string holds as it is, and returns where that is. It may copy
// some of what follows; to is at least as long as s.
func copyPlain(to, s []byte) int {
	to = to[:len(s)]
	if len(s) >= 8 {
		i := 0
		for ; i < len(s)-8; i += 8 {
			x := binary.LittleEndian.Uint64(s[i:])
			binary.LittleEndian.PutUint64(to[i:], x)
			if m := notPlain(x); m != 0 {
				return i + bits.TrailingZeros64(m)/8
			}
		}
		i = len(s) - 8 // the last eight, some of which have been seen to
		x := binary.LittleEndian.Uint64(s[i:])
		binary.LittleEndian.PutUint64(to[i:], x)
		if m := notPlain(x); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
		return len(s)
	}
	if len(s) >= 4 {
		i := len(s) - 4
		low, high := binary.LittleEndian.Uint32(s), binary.LittleEndian.Uint32(s[i:])
		if notPlain(uint64(low)|uint64(high)<<32) == 0 {
			binary.LittleEndian.PutUint32(to, low)
			binary.LittleEndian.PutUint32(to[i:], high)
			return len(s)
		}
	}
	for i, c := range s {
		if c < 0x20 || c == '"' || c == '\\' || c >= 0x80 {
			return i
		}
		to[i] = c
	}
	return len(s)
}

// rawPrefix returns how many bytes of s, which are UTF-8, a JSON string holds as they are.
func rawPrefix(s []byte) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		if m := special(binary.LittleEndian.Uint64(s[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' {
			return i
		}
	}
	return i
}

// appendString appends s as a JSON string; false means that s is not UTF-8.
func appendString(out, s []byte) ([]byte, bool) {
	out = append(out, '"')
	for {
		from := len(out)
		out = slices.Grow(out, len(s)+1)[:from+len(s)+1]
		n := copyPlain(out[from:], s)
		if n == len(s) {
			out[from+n] = '"'
			return out, true
		}
		out = out[:from+n]
		if s[n] >= utf8.RuneSelf {
			return appendUnicode(out, s[n:])
		}
		out = appendEscape(out, s[n])
		s = s[n+1:]
	}
}

// appendUnicode appends the rest of a JSON string from the first byte on that is not ASCII.
func appendUnicode(out, s []byte) ([]byte, bool) {
	if !utf8.Valid(s) {
		return out, false
	}
	for {
		n := rawPrefix(s)
		out = append(out, s[:n]...)
		if n == len(s) {
			return append(out, '"'), true
		}
		out = appendEscape(out, s[n])
		s = s[n+1:]
	}
}

const hexDigits = "0123456789abcdef"

// appendEscape appends a control, '"' or '\' as a JSON string holds it.
func appendEscape(out []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(out, '\\', c)
	case '\b':
		c = 'b'
	case '\f':
		c = 'f'
	case '\n':
		c = 'n'
	case '\r':
		c = 'r'
	case '\t':
		c = 't'
	default:
		return append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
	return append(out, '\\', c)
}

// appendFloat appends f as a JSON number, or as a string when it is none.
func appendFloat(out []byte, f float64, size int) []byte {
	switch {
	case math.IsNaN(f):
		return append(out, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(out, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(out, `"-Infinity"`...)
	}
	exact := float64(1 << 53)
	if size == 32 {
		exact = 1 << 24
	}
	abs := math.Abs(f)
	if abs < exact && f == math.Trunc(f) && (f != 0 || !math.Signbit(f)) {
		return strconv.AppendInt(out, int64(f), 10)
	}
	if abs != 0 && (abs < 1e-6 || abs >= 1e21 || size == 32 && (float32(abs) < 1e-6 || float32(abs) >= 1e21)) {
		out = strconv.AppendFloat(out, f, 'e', -1, size)
		if n := len(out); n >= 4 && out[n-4] == 'e' && out[n-3] == '-' && out[n-2] == '0' {
			out[n-2] = out[n-1] // e-09 to e-9
			out = out[:n-1]
		}
		return out
	}
	return strconv.AppendFloat(out, f, 'f', -1, size)
}

const (
	minTimestamp = -62135596800
	maxTimestamp = 253402300799
	maxDuration  = 315576000000
	maxNanos     = 999999999
)

// appendTimestamp appends the RFC 3339 form, in UTC with 0, 3, 6 or 9 digits of fraction. Both numbers are in their range.
func appendTimestamp(out []byte, seconds int64, nanos int32) []byte {
	seconds -= minTimestamp
	year, month, day := civil(uint32(seconds / 86400))
	rest := uint32(seconds % 86400)
	const form = `"0000-00-00T00:00:00`
	out = append(out, form...)
	b := out[len(out)-len(form):]
	put2(b[1:], year/100)
	put2(b[3:], year%100)
	put2(b[6:], month)
	put2(b[9:], day)
	put2(b[12:], rest/3600)
	put2(b[15:], rest/60%60)
	put2(b[18:], rest%60)
	out = appendNanos(out, nanos)
	return append(out, 'Z', '"')
}

// civil turns days since 0001-01-01 into a date of the Gregorian calendar.
func civil(days uint32) (year, month, day uint32) {
	// Years are counted from March, so that the leap day is the last of the year; 306 days lie between March 1st and the new year.
	z := days + 306
	era := z / 146097
	doe := z % 146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = doy - (153*mp+2)/5 + 1
	month = mp + 3
	year = yoe + era*400
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, day
}

// put2 makes the first two bytes of b the digits of n.
func put2(b []byte, n uint32) {
	b[0], b[1] = byte('0'+n/10), byte('0'+n%10)
}

// appendDuration appends the form "-1.5s". Both numbers are in their range and of one sign.
func appendDuration(out []byte, seconds int64, nanos int32) []byte {
	out = append(out, '"')
	if seconds < 0 || nanos < 0 {
		out = append(out, '-')
		seconds, nanos = -seconds, -nanos
	}
	out = strconv.AppendInt(out, seconds, 10)
	out = appendNanos(out, nanos)
	return append(out, 's', '"')
}

func appendNanos(out []byte, nanos int32) []byte {
	if nanos == 0 {
		return out
	}
	digits := 9
	for digits > 3 && nanos%1000 == 0 {
		nanos /= 1000
		digits -= 3
	}
	out = append(out, ".000000000"[:digits+1]...)
	for i := len(out) - 1; nanos > 0; i-- {
		out[i] = byte('0' + nanos%10)
		nanos /= 10
	}
	return out
}

// view returns b as a string without a copy; it must not outlive or see changes of b.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
