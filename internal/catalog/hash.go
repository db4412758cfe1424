package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// fingerprints hashes definitions: of one type without what it refers to, and of a method with all that its messages reach. Nothing of it
// depends on the order of a file or on what else is in there. It is safe for concurrent use.
type fingerprints struct {
	mu    sync.Mutex
	types map[protoreflect.FullName][sha256.Size]byte
}

// method hashes the method's own definition, what agents see of it, and every message and enum that its request and response reach.
func (f *fingerprints) method(m *Method) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	reached := map[protoreflect.FullName]protoreflect.Descriptor{}
	reach(m.Desc.Input(), reached)
	reach(m.Desc.Output(), reached)
	all := make([]protoreflect.Descriptor, 0, len(reached))
	for _, d := range reached {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b protoreflect.Descriptor) int { return cmp.Compare(a.FullName(), b.FullName()) })

	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %v %v %q %q %+v\n", m.FullMethod, m.Desc.Input().FullName(), m.Desc.Output().FullName(),
		m.Desc.IsStreamingClient(), m.Desc.IsStreamingServer(), m.Tool.Title, m.Tool.Description, m.Tool.Hints)
	options(h, m.Desc)
	for _, d := range all {
		sum := f.typ(d)
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (f *fingerprints) typ(d protoreflect.Descriptor) [sha256.Size]byte {
	if sum, ok := f.types[d.FullName()]; ok {
		return sum
	}
	h := sha256.New()
	switch d := d.(type) {
	case protoreflect.MessageDescriptor:
		hashMessage(h, d)
	case protoreflect.EnumDescriptor:
		hashEnum(h, d)
	}
	sum := [sha256.Size]byte(h.Sum(nil))
	if f.types == nil {
		f.types = map[protoreflect.FullName][sha256.Size]byte{}
	}
	f.types[d.FullName()] = sum
	return sum
}

func hashMessage(h hash.Hash, md protoreflect.MessageDescriptor) {
	fmt.Fprintf(h, "message %q\n", md.FullName())
	options(h, md)
	fields := make([]protoreflect.FieldDescriptor, md.Fields().Len())
	for i := range fields {
		fields[i] = md.Fields().Get(i)
	}
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return cmp.Compare(a.Number(), b.Number()) })
	for _, fd := range fields {
		var typ, oneof protoreflect.FullName
		switch {
		case fd.Message() != nil:
			typ = fd.Message().FullName()
		case fd.Enum() != nil:
			typ = fd.Enum().FullName()
		}
		if o := fd.ContainingOneof(); o != nil {
			oneof = o.FullName()
		}
		fmt.Fprintf(h, "field %d %q %q %v %v %q %q %v %v %v\n", fd.Number(), fd.Name(), fd.JSONName(), fd.Kind(), fd.Cardinality(), typ, oneof,
			fd.HasPresence(), fd.IsPacked(), fd.Default())
		options(h, fd)
	}
}

func hashEnum(h hash.Hash, ed protoreflect.EnumDescriptor) {
	fmt.Fprintf(h, "enum %q %v\n", ed.FullName(), ed.IsClosed())
	options(h, ed)
	for i := range ed.Values().Len() {
		v := ed.Values().Get(i)
		fmt.Fprintf(h, "value %d %q\n", v.Number(), v.Name())
		options(h, v)
	}
}

// options writes d's options and the comment that callers are shown of it.
func options(w io.Writer, d protoreflect.Descriptor) {
	b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(d.Options())
	if err != nil {
		b = nil
	}
	loc := d.ParentFile().SourceLocations().ByDescriptor(d)
	fmt.Fprintf(w, "%q %q %q\n", b, loc.LeadingComments, loc.TrailingComments)
}

// reach collects every message and enum that md's fields reach, md included.
func reach(md protoreflect.MessageDescriptor, into map[protoreflect.FullName]protoreflect.Descriptor) {
	todo := []protoreflect.MessageDescriptor{md}
	for len(todo) > 0 {
		md, todo = todo[len(todo)-1], todo[:len(todo)-1]
		if into[md.FullName()] != nil {
			continue
		}
		into[md.FullName()] = md
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			if m := fd.Message(); m != nil {
				todo = append(todo, m)
			} else if e := fd.Enum(); e != nil {
				into[e.FullName()] = e
			}
		}
	}
}
