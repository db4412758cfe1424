package transcode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Marshaler is a runtime.Marshaler of grpc-gateway, so that a mux with generated handlers speaks the same JSON:
//
//	runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.HTTPBodyMarshaler{Marshaler: m}))
//
// Messages, generated or dynamic, go through their wire bytes; so do lists and maps of them when they are written, and lists when they
// are read. What else a handler may pass (a body or response_body that is a scalar, an enum or a map) is runtime.JSONPb's. It is safe for
// concurrent use.
type Marshaler struct {
	set   *Set
	write WriteOptions
	read  ReadOptions
	other runtime.JSONPb
}

var _ runtime.Marshaler = (*Marshaler)(nil)

// NewMarshaler returns the marshaler of a set, which may be one of protoregistry.GlobalTypes. The limits of write apply to each message;
// its Cut is not used.
func NewMarshaler(set *Set, write WriteOptions, read ReadOptions) *Marshaler {
	write.Cut = nil
	m := &Marshaler{set: set, write: write, read: read, other: runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{UseEnumNumbers: write.EnumNumbers, EmitUnpopulated: write.EmitDefaults},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: read.DiscardUnknown, RecursionLimit: read.MaxDepth},
	}}
	if set.types != nil {
		m.other.UnmarshalOptions.Resolver = set.types
	}
	return m
}

// ContentType returns "application/json".
func (*Marshaler) ContentType(any) string { return "application/json" }

// Delimiter returns what stands behind each message of a stream, a line feed.
func (*Marshaler) Delimiter() []byte { return []byte{'\n'} }

// Marshal returns the JSON form of v.
func (m *Marshaler) Marshal(v any) ([]byte, error) { return m.append(nil, v) }

// NewEncoder returns an encoder that writes each value and a Delimiter, a large message in pieces.
func (m *Marshaler) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		if err := m.encode(w, v); err != nil {
			return err
		}
		_, err := w.Write(m.Delimiter())
		return err
	})
}

func (m *Marshaler) encode(w io.Writer, v any) error {
	if msg, ok := v.(proto.Message); ok {
		return m.wire(msg, func(t *Message, wire []byte) error { return t.WriteJSON(w, wire, m.write) })
	}
	out, err := m.append(nil, v)
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

// wire calls f with the wire bytes of msg, which are gone afterwards.
func (m *Marshaler) wire(msg proto.Message, f func(t *Message, wire []byte) error) error {
	buf := buffers.Get().(*[]byte)
	wire, err := proto.MarshalOptions{}.MarshalAppend((*buf)[:0], msg)
	if err == nil {
		err = f(m.set.Message(msg.ProtoReflect().Descriptor()), wire)
	}
	giveBack(buf, wire)
	return err
}

func (m *Marshaler) append(out []byte, v any) ([]byte, error) {
	if msg, ok := v.(proto.Message); ok {
		err := m.wire(msg, func(t *Message, wire []byte) (err error) {
			out, err = t.AppendJSON(out, wire, m.write)
			return err
		})
		return out, err
	}
	switch rv := reflect.ValueOf(v); {
	case rv.Kind() == reflect.Pointer && !rv.IsNil():
		return m.append(out, rv.Elem().Interface())
	case rv.Kind() == reflect.Slice && !rv.IsNil() && isMessage(rv.Type().Elem()):
		return m.appendList(out, rv)
	case rv.Kind() == reflect.Map:
		return m.appendMap(out, rv)
	}
	text, err := m.other.Marshal(v)
	return append(out, text...), err
}

var messageType = reflect.TypeFor[proto.Message]()

func isMessage(t reflect.Type) bool { return t.Implements(messageType) }

func (m *Marshaler) appendList(out []byte, rv reflect.Value) (_ []byte, err error) {
	out = append(out, '[')
	for i := range rv.Len() {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = m.append(out, rv.Index(i).Interface()); err != nil {
			return out, err
		}
	}
	return append(out, ']'), nil
}

// appendMap appends an object with sorted names. grpc-gateway wraps each message of a stream in a map.
func (m *Marshaler) appendMap(out []byte, rv reflect.Value) (_ []byte, err error) {
	type member struct {
		name  string
		value reflect.Value
	}
	members := make([]member, 0, rv.Len())
	for it := rv.MapRange(); it.Next(); {
		members = append(members, member{fmt.Sprint(it.Key().Interface()), it.Value()})
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.name, b.name) })
	out = append(out, '{')
	for i, x := range members {
		if i > 0 {
			out = append(out, ',')
		}
		var ok bool
		if out, ok = appendString(out, []byte(x.name)); !ok {
			return out, &Error{Problem: "a map key is not valid UTF-8"}
		}
		if out, err = m.append(append(out, ':'), x.value.Interface()); err != nil {
			return out, err
		}
	}
	return append(out, '}'), nil
}

// Unmarshal reads the JSON text data, and nothing behind it, into what v points to.
func (m *Marshaler) Unmarshal(data []byte, v any) error {
	if msg, ok := v.(proto.Message); ok {
		return m.message(data, msg)
	}
	rv := reflect.ValueOf(v)
	if rv.Kind() != reflect.Pointer || rv.IsNil() {
		return fmt.Errorf("read JSON into %T: want a pointer that is not nil", v)
	}
	for rv.Kind() == reflect.Pointer {
		if rv.IsNil() {
			rv.Set(reflect.New(rv.Type().Elem()))
		}
		if msg, ok := rv.Interface().(proto.Message); ok {
			return m.message(data, msg)
		}
		rv = rv.Elem()
	}
	if rv.Kind() == reflect.Slice && isMessage(rv.Type().Elem()) {
		return m.list(data, rv)
	}
	return m.other.Unmarshal(data, v)
}

func (m *Marshaler) message(data []byte, msg proto.Message) error {
	buf := buffers.Get().(*[]byte)
	wire, err := m.set.Message(msg.ProtoReflect().Descriptor()).AppendWire((*buf)[:0], data, m.read)
	if err == nil {
		err = proto.Unmarshal(wire, msg)
	}
	giveBack(buf, wire)
	return err
}

func (m *Marshaler) list(data []byte, rv reflect.Value) error {
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil || items == nil {
		return err
	}
	list := reflect.MakeSlice(rv.Type(), len(items), len(items))
	for i, item := range items {
		if err := m.Unmarshal(item, list.Index(i).Addr().Interface()); err != nil {
			if e, ok := err.(*Error); ok { //nolint:errorlint // Unmarshal wraps none
				e.Path = join(index(i), e.Path)
			}
			return err
		}
	}
	rv.Set(list)
	return nil
}

// NewDecoder returns a decoder of the JSON values that follow each other in r.
func (m *Marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	d := json.NewDecoder(r)
	return runtime.DecoderFunc(func(v any) error {
		var text json.RawMessage
		if err := d.Decode(&text); err != nil {
			return err
		}
		return m.Unmarshal(text, v)
	})
}
