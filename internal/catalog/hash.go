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

// fingerprints hashes definitions: of a type with all that it reaches, and of a method with its messages. Nothing of it depends on the order of
// a file or on what else is in there. The work is linear in the contract, whatever its shape. It is safe for concurrent use.
type fingerprints struct {
	mu    sync.Mutex
	types map[protoreflect.FullName]*node
	count int
	stack []*node
}

// node is a type in Tarjan's search for strongly connected components: types that reach each other share one hash.
type node struct {
	desc       protoreflect.Descriptor
	index, low int
	onStack    bool
	hash       [sha256.Size]byte // of the whole component and what it reaches; valid once off the stack
}

// method hashes the method's own definition, what agents see of it, and every message and enum that its request and response reach.
func (f *fingerprints) method(m *Method) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := sha256.New()
	f.shown(h, m)
	options(h, m.Desc)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// hashTools hashes what the list of the tools shows.
func (s *Snapshot) hashTools() string {
	h := sha256.New()
	for _, m := range s.tools {
		f := &m.analysis.prints
		f.mu.Lock()
		fmt.Fprintf(h, "%q ", m.Tool.Name)
		f.shown(h, m)
		f.mu.Unlock()
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// shown hashes what agents see of a method: its words and hints, and what its schemas are made from. f.mu is held.
func (f *fingerprints) shown(w io.Writer, m *Method) {
	if f.types == nil {
		f.types = map[protoreflect.FullName]*node{}
	}
	fmt.Fprintf(w, "%q %q %q %v %v %q %q %+v\n", m.FullMethod, m.Desc.Input().FullName(), m.Desc.Output().FullName(),
		m.Desc.IsStreamingClient(), m.Desc.IsStreamingServer(), m.Tool.Title, m.Tool.Description, m.Tool.Hints)
	fmt.Fprintf(w, "%x %x\n", f.typ(m.Desc.Input()).hash, f.typ(m.Desc.Output()).hash)
}

func (f *fingerprints) typ(d protoreflect.Descriptor) *node {
	if n := f.types[d.FullName()]; n != nil {
		return n
	}
	f.count++
	n := &node{desc: d, index: f.count, low: f.count, onStack: true}
	f.types[d.FullName()] = n
	f.stack = append(f.stack, n)
	for _, to := range refs(d) {
		if m := f.typ(to); m.onStack {
			n.low = min(n.low, m.low)
		}
	}
	if n.low == n.index {
		f.close(n)
	}
	return n
}

// close hashes the component whose first node is root and takes it off the stack.
func (f *fingerprints) close(root *node) {
	at := slices.Index(f.stack, root)
	members := slices.Clone(f.stack[at:])
	f.stack = f.stack[:at]
	slices.SortFunc(members, func(a, b *node) int { return cmp.Compare(a.desc.FullName(), b.desc.FullName()) })
	h := sha256.New()
	for _, n := range members {
		switch d := n.desc.(type) {
		case protoreflect.MessageDescriptor:
			hashMessage(h, d)
		case protoreflect.EnumDescriptor:
			hashEnum(h, d)
		}
		for _, to := range refs(n.desc) {
			if m := f.types[to.FullName()]; !m.onStack {
				fmt.Fprintf(h, "%x\n", m.hash)
			}
		}
	}
	sum := [sha256.Size]byte(h.Sum(nil))
	for _, n := range members {
		n.hash, n.onStack = sum, false
	}
}

// refs returns the messages and enums that a message's fields name, in order of the field numbers.
func refs(d protoreflect.Descriptor) []protoreflect.Descriptor {
	md, ok := d.(protoreflect.MessageDescriptor)
	if !ok {
		return nil
	}
	var out []protoreflect.Descriptor
	for _, fd := range byNumber(md) {
		if m := fd.Message(); m != nil {
			out = append(out, m)
		} else if e := fd.Enum(); e != nil {
			out = append(out, e)
		}
	}
	return out
}

func byNumber(md protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	fields := make([]protoreflect.FieldDescriptor, md.Fields().Len())
	for i := range fields {
		fields[i] = md.Fields().Get(i)
	}
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return cmp.Compare(a.Number(), b.Number()) })
	return fields
}

func hashMessage(h hash.Hash, md protoreflect.MessageDescriptor) {
	fmt.Fprintf(h, "message %q\n", md.FullName())
	options(h, md)
	for _, fd := range byNumber(md) {
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
