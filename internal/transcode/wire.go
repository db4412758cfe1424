package transcode

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxWireDepth bounds how deeply messages may nest in wire bytes. The official runtimes stop at 100 (C++, Java) to 10,000 (Go).
const maxWireDepth = 500

// fault says why wire bytes cannot be read.
type fault uint8

const (
	_ fault = iota
	faultMalformed
	faultDeep
	faultUTF8
	// faultRare: fields out of order, split or overridden, which only the careful path gets right.
	faultRare
	// faultRestart: too many rare messages, so that the whole input is better read by the careful path.
	faultRestart
	// faultOther: the problem is written down elsewhere.
	faultOther
)

// value is one field value of wire bytes: the number of a varint or fixed type, or where its bytes are.
type value struct {
	bits       uint64
	start, end int
}

// uvarint reads a varint of in[pos:end]; next is -1 when it is malformed.
func uvarint(in []byte, pos, end int) (v uint64, next int) {
	for shift := uint(0); pos < end; shift += 7 {
		c := in[pos]
		pos++
		if c < 0x80 {
			if shift == 63 && c > 1 {
				return 0, -1
			}
			return v | uint64(c)<<shift, pos
		}
		if shift == 63 {
			return 0, -1
		}
		v |= uint64(c&0x7f) << shift
	}
	return 0, -1
}

// tagAt reads a tag of in[pos:end]; next is -1 when it is malformed.
func tagAt(in []byte, pos, end int) (num uint64, typ protowire.Type, next int) {
	v, next := uvarint(in, pos, end)
	num = v >> 3
	if next < 0 || num == 0 || num > uint64(protowire.MaxValidNumber) {
		return 0, 0, -1
	}
	return num, protowire.Type(v & 7), next
}

// valueAt reads the value that follows a tag; next is -1 when it is malformed. For a group, v is what stands between its tags.
func valueAt(in []byte, pos, end int, num uint64, typ protowire.Type) (v value, next int) {
	switch typ {
	case protowire.VarintType:
		if pos < end && in[pos] < 0x80 {
			return value{bits: uint64(in[pos])}, pos + 1
		}
		v.bits, next = uvarint(in, pos, end)
		return v, next
	case protowire.Fixed32Type:
		if end-pos < 4 {
			return v, -1
		}
		return value{bits: uint64(binary.LittleEndian.Uint32(in[pos:]))}, pos + 4
	case protowire.Fixed64Type:
		if end-pos < 8 {
			return v, -1
		}
		return value{bits: binary.LittleEndian.Uint64(in[pos:])}, pos + 8
	case protowire.BytesType:
		var n uint64
		if pos < end && in[pos] < 0x80 {
			n, pos = uint64(in[pos]), pos+1
		} else if n, pos = uvarint(in, pos, end); pos < 0 {
			return v, -1
		}
		if n > uint64(end-pos) {
			return v, -1
		}
		return value{start: pos, end: pos + int(n)}, pos + int(n)
	case protowire.StartGroupType:
		stop, next := skipGroup(in, pos, end, num, maxWireDepth)
		return value{start: pos, end: stop}, next
	}
	return v, -1
}

// skip passes over the value that follows a tag and returns where it ends, or -1.
func skip(in []byte, pos, end int, num uint64, typ protowire.Type, depth int) int {
	if typ == protowire.StartGroupType {
		_, next := skipGroup(in, pos, end, num, depth)
		return next
	}
	_, next := valueAt(in, pos, end, num, typ)
	return next
}

// skipGroup passes over the fields of a group; stop is where its end tag begins, next what follows that.
func skipGroup(in []byte, pos, end int, num uint64, depth int) (stop, next int) {
	if depth < 0 {
		return -1, -1
	}
	for {
		n, typ, next := tagAt(in, pos, end)
		if next < 0 {
			return -1, -1
		}
		if typ == protowire.EndGroupType {
			if n != num {
				return -1, -1
			}
			return pos, next
		}
		if pos = skip(in, next, end, n, typ, depth-1); pos < 0 {
			return -1, -1
		}
	}
}

// check reports what is wrong with in[pos:end] as a message, nested messages too, or 0.
func check(in []byte, p *plan, pos, end, depth int) fault {
	if depth < 0 {
		return faultDeep
	}
	for pos < end {
		num, typ, next := tagAt(in, pos, end)
		if next < 0 {
			return faultMalformed
		}
		v, after := valueAt(in, next, end, num, typ)
		if after < 0 {
			return faultMalformed
		}
		if i := p.lookup(num); i >= 0 {
			if ft := checkValue(in, p.at(i), typ, v, depth); ft != 0 {
				return ft
			}
		}
		pos = after
	}
	return 0
}

func checkValue(in []byte, f *field, typ protowire.Type, v value, depth int) fault {
	switch {
	case typ != f.wire:
		if f.packable && typ == protowire.BytesType {
			return checkPacked(in, f, v)
		}
	case f.msg != nil:
		return check(in, f.msg.plan(), v.start, v.end, depth-1)
	case f.utf8 && !utf8.Valid(in[v.start:v.end]):
		return faultUTF8
	}
	return 0
}

func checkPacked(in []byte, f *field, v value) fault {
	for pos := v.start; pos < v.end; {
		if _, pos = valueAt(in, pos, v.end, 0, f.wire); pos < 0 {
			return faultMalformed
		}
	}
	return 0
}

// fixLength makes out[at], one byte kept free, the length of what follows it, moving that when the length needs more bytes.
func fixLength(out []byte, at int) []byte {
	n := len(out) - at - 1
	if n < 0x80 {
		out[at] = byte(n)
		return out
	}
	extra := (bits.Len(uint(n))+6)/7 - 1
	out = append(out, "\x00\x00\x00\x00\x00\x00\x00\x00\x00"[:extra]...)
	copy(out[at+1+extra:], out[at+1:at+1+n])
	binary.PutUvarint(out[at:], uint64(n))
	return out
}

// normal returns the bits that a value of the field's kind has after reading: cut to its width, and as the encoder writes it.
func normal(kind protoreflect.Kind, v uint64) uint64 {
	switch kind {
	case protoreflect.BoolKind:
		if v != 0 {
			return 1
		}
		return 0
	case protoreflect.Int32Kind, protoreflect.EnumKind:
		return uint64(int64(int32(v)))
	case protoreflect.Uint32Kind, protoreflect.Sint32Kind:
		return v & 0xffffffff
	case protoreflect.FloatKind:
		if v&0x7fffffff > 0x7f800000 {
			return 0x7fc00000 // there are many NaNs, which compare equal as messages
		}
	case protoreflect.DoubleKind:
		if v&(1<<63-1) > 0x7ff<<52 {
			return 0x7ff8 << 48
		}
	}
	return v
}

// appendBits appends the wire form of a varint or fixed value.
func appendBits(out []byte, typ protowire.Type, v uint64) []byte {
	switch typ {
	case protowire.Fixed32Type:
		return binary.LittleEndian.AppendUint32(out, uint32(v))
	case protowire.Fixed64Type:
		return binary.LittleEndian.AppendUint64(out, v)
	}
	return binary.AppendUvarint(out, v)
}
