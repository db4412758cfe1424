package interceptors

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/catalog"
)

// place is a field in a message, from the inside out.
type place struct {
	up    *place
	field protoreflect.FieldDescriptor
	index int // in a list; -1 otherwise
}

// String writes the path in proto names: "to.items[2].note".
func (p *place) String() string {
	var parts []string
	for ; p != nil; p = p.up {
		if p.field.ContainingMessage().IsMapEntry() {
			continue
		}
		name := string(p.field.Name())
		if p.index >= 0 {
			name += "[" + strconv.Itoa(p.index) + "]"
		}
		parts = append([]string{name}, parts...)
	}
	return strings.Join(parts, ".")
}

// eachText calls yield with every string and bytes value of a message, until it returns false. It looks into a google.protobuf.Any whose
// type is in files. It returns false if yield has.
func eachText(files *catalog.Files, md protoreflect.MessageDescriptor, wire []byte, up *place, depth int, yield func(*place, []byte) bool) bool {
	if depth == 0 {
		return true
	}
	if md.FullName() == "google.protobuf.Any" && files != nil {
		if in, value := packed(files, wire); in != nil {
			return eachText(files, in, value, up, depth-1, yield)
		}
	}
	seen := map[protowire.Number]int{}
	for len(wire) > 0 {
		num, typ, tag := protowire.ConsumeTag(wire)
		if tag < 0 {
			return true
		}
		size := protowire.ConsumeFieldValue(num, typ, wire[tag:])
		if size < 0 {
			return true
		}
		value := wire[tag : tag+size]
		wire = wire[tag+size:]
		fd := md.Fields().ByNumber(num)
		if fd == nil {
			continue
		}
		at := place{up: up, field: fd, index: -1}
		if fd.IsList() {
			at.index = seen[num]
			seen[num]++
		}
		switch {
		case fd.Message() != nil:
			if !eachText(files, fd.Message(), inner(num, typ, value), &at, depth-1, yield) {
				return false
			}
		case texts(fd, typ):
			if !yield(&at, inner(num, typ, value)) {
				return false
			}
		}
	}
	return true
}

// packed returns the message in a google.protobuf.Any, if its type is known.
func packed(files *catalog.Files, wire []byte) (md protoreflect.MessageDescriptor, value []byte) {
	for len(wire) > 0 {
		num, typ, tag := protowire.ConsumeTag(wire)
		if tag < 0 {
			return nil, nil
		}
		size := protowire.ConsumeFieldValue(num, typ, wire[tag:])
		if size < 0 {
			return nil, nil
		}
		switch body := inner(num, typ, wire[tag:tag+size]); num {
		case 1:
			name := protoreflect.FullName(body[strings.LastIndexByte(string(body), '/')+1:])
			d, err := files.FindDescriptorByName(name)
			if err != nil {
				return nil, nil
			}
			md, _ = d.(protoreflect.MessageDescriptor)
		case 2:
			value = body
		}
		wire = wire[tag+size:]
	}
	return md, value
}
