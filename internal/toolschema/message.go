package toolschema

import (
	"regexp"
	"slices"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// safeKey is what model APIs accept as a property name.
var safeKey = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// inherited are the members that every JavaScript object has. Validators such as AJV find them where a value has no such key, and then
// refuse the value because the member is a function.
var inherited = set("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf",
	"__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", prototype)

// prototype is the key that JavaScript does not even keep in an object.
const prototype = "__proto__"

// field is one field of a message as a schema shows it.
type field struct {
	fd      protoreflect.FieldDescriptor
	key     string // "" when it is not listed
	options proto.Message
	rules   *validate.FieldRules
	behaves behaviour
}

// behaviour is google.api.field_behavior.
type behaviour struct {
	required, outputOnly, inputOnly, immutable bool
	oneOf                                      bool // required, but so are others of which only one can be set
}

func behaviourOf(o proto.Message) behaviour {
	var b behaviour
	for _, v := range option[[]annotations.FieldBehavior](o, annotations.E_FieldBehavior) {
		switch v {
		case annotations.FieldBehavior_REQUIRED:
			b.required = true
		case annotations.FieldBehavior_OUTPUT_ONLY:
			b.outputOnly = true
		case annotations.FieldBehavior_INPUT_ONLY:
			b.inputOnly = true
		case annotations.FieldBehavior_IMMUTABLE:
			b.immutable = true
		}
	}
	return b
}

// trim takes the words off a comment that the schema says itself.
func (b behaviour) trim(comment string) string {
	for {
		rest := comment
		rest = strings.TrimPrefix(rest, "Optional. ")
		if b.required {
			rest = strings.TrimPrefix(rest, "Required. ")
		}
		if b.outputOnly {
			rest = strings.TrimPrefix(rest, "Output only. ")
		}
		if b.immutable {
			rest = strings.TrimPrefix(rest, "Immutable. ")
		}
		if rest == comment {
			return rest
		}
		comment = rest
	}
}

// name returns the key, or the JSON name of a field that is not listed.
func (f *field) name() string {
	if f.key != "" {
		return f.key
	}
	return f.fd.JSONName()
}

// fields returns the fields of md that this direction has, in the order of the contract, with their keys, and whether it hides any.
func (b *builder) fields(md protoreflect.MessageDescriptor) (fs []field, hidden bool) {
	fds := md.Fields()
	taken := make(map[string]bool, fds.Len())
	names := make(map[string]bool, fds.Len())
	for i := range fds.Len() {
		names[fds.Get(i).JSONName()] = true
	}
	for i := range fds.Len() {
		f := field{fd: fds.Get(i), options: options(fds.Get(i))}
		f.rules = option[*validate.FieldRules](f.options, validate.E_Field)
		f.behaves = behaviourOf(f.options)
		if od := f.fd.ContainingOneof(); od != nil && od.Fields().Len() > 1 && f.behaves.required {
			f.behaves.required, f.behaves.oneOf = false, true
		}
		name := f.fd.JSONName()
		if b.o.Direction == Input && f.behaves.outputOnly || b.o.Direction == Output && f.behaves.inputOnly {
			hidden = true
			taken[name] = true
			continue
		}
		f.key = name
		switch {
		case b.o.Direction == Output:
			if taken[name] {
				continue // the same key twice: the first stands for both
			}
			if inherited[name] {
				f.key = ""
			}
		case taken[name] || name == "" || b.o.Profile != Full && !safeKey.MatchString(name):
			f.key = f.fd.TextName()
			if names[f.key] || taken[f.key] || !safeKey.MatchString(f.key) || f.key == prototype {
				f.key = ""
			}
		case inherited[name]:
			switch other := f.fd.TextName(); {
			case !inherited[other] && !names[other] && !taken[other] && safeKey.MatchString(other):
				f.key = other
			case name == prototype:
				f.key = ""
			}
		}
		taken[f.name()] = true
		fs = append(fs, f)
	}
	return fs, hidden
}

// unlisted says what a field is that is not listed.
func (b *builder) unlisted(f *field) string {
	name := f.fd.JSONName()
	if name == "" {
		name = `""`
	}
	switch {
	case b.o.Direction == Input:
		return name
	case f.fd.IsMap():
		return name + " (a map)"
	case f.fd.IsList():
		return name + " (an array)"
	}
	return name + " (" + b.valueWords(f.fd, 0) + ")"
}

// message returns the node of md with its properties; messages in it are left to grow.
func (b *builder) message(md protoreflect.MessageDescriptor, g *growth) *node {
	n := &node{kind: "object"}
	if !g.top && b.o.Profile != Portable {
		n.desc = b.text(md, b.plan.fieldRunes/2)
	}
	if s := b.special(md, g.top); s != nil {
		return s
	}
	if md.IsPlaceholder() {
		n.words = []string{"The contract does not hold the type " + string(md.FullName()) + "."}
		n.closed = b.o.Profile == Strict
		return n
	}
	o := options(md)
	rules := option[*validate.MessageRules](o, validate.E_Message)
	ignoreZero := map[string]bool{}
	for _, r := range rules.GetOneof() {
		for _, name := range r.GetFields() {
			ignoreZero[name] = true
		}
	}
	resource := option[*annotations.ResourceDescriptor](o, annotations.E_Resource)
	resourceField := resource.GetNameField()
	if resourceField == "" {
		resourceField = "name"
	}
	fs, hidden := b.fields(md)
	keys := make(map[protoreflect.Name]string, len(fs))
	oneOf := map[protoreflect.Name]bool{}
	for i := range fs {
		f := &fs[i]
		keys[f.fd.Name()] = f.key
		if b.o.Direction == Output {
			keys[f.fd.Name()] = f.name()
		}
		if f.behaves.oneOf {
			oneOf[f.fd.ContainingOneof().Name()] = true
		}
		if f.key == "" {
			n.left = append(n.left, b.unlisted(f))
			continue
		}
		v := b.value(f, g)
		if b.o.Direction == Input && string(f.fd.Name()) == resourceField && len(resource.GetPattern()) > 0 {
			v.say("Format: " + shorten(visible(resource.GetPattern()[0]), 200) + ".")
		}
		must := b.constrain(f, v, ignoreZero[string(f.fd.Name())])
		if b.o.Direction == Output {
			must = f.fd.Cardinality() == protoreflect.Required
		}
		if b.o.Profile == Strict && b.o.Direction == Input {
			switch {
			case v.kind == "null" && f.fd.ContainingOneof() != nil:
				v.omit, v.brief = true, "null" // its null is a choice, not an absence
			case !must && v.kind != "null" && (v.items == nil || v.items.kind != "null"):
				v.nullable = true
			}
			n.required = append(n.required, f.key)
		} else if must {
			n.required = append(n.required, f.key)
		}
		b.rank(v, must, f)
		n.props = append(n.props, prop{f.key, v})
	}
	extended := md.ExtensionRanges().Len() > 0
	switch b.o.Profile {
	case Strict:
		n.closed = true
	case Full:
		n.closed = len(n.left) == 0 && (b.o.Direction == Input || !hidden)
		if extended {
			n.extras = &node{desc: "An extension, by its full name in brackets."}
		}
	}
	if extended && b.o.Direction == Input {
		n.words = append(n.words, `Extensions are accepted as "[full.name]".`)
	}
	b.groups(n, md, keys, oneOf, g.top)
	if b.o.Direction == Input {
		for _, r := range rules.GetOneof() {
			b.messageOneof(n, r, keys)
		}
		n.words = append(n.words, celWords(rules.GetCel(), rules.GetCelExpression())...)
	}
	return n
}

// rank names what can be grown and orders it: required, then optional, then deprecated.
func (b *builder) rank(v *node, must bool, f *field) {
	for _, n := range []*node{v, v.items, v.values} {
		if n == nil || n.grow == nil {
			continue
		}
		n.grow.name = f.key
		if n != v {
			n.grow.name += "[]"
		}
		switch {
		case must:
			n.grow.rank = 0
		case deprecated(f.fd):
			n.grow.rank = 2
		default:
			n.grow.rank = 1
		}
	}
}

func deprecated(d protoreflect.Descriptor) bool {
	o, ok := d.Options().(interface{ GetDeprecated() bool })
	return ok && o.GetDeprecated()
}

// groups states the oneofs of md.
func (b *builder) groups(n *node, md protoreflect.MessageDescriptor, keys map[protoreflect.Name]string, oneOf map[protoreflect.Name]bool, top bool) {
	for i := range md.Oneofs().Len() {
		od := md.Oneofs().Get(i)
		if od.IsSynthetic() {
			continue
		}
		var members []string
		for j := range od.Fields().Len() {
			if k := keys[od.Fields().Get(j).Name()]; k != "" {
				members = append(members, k)
			}
		}
		required := b.o.Direction == Input && (oneOf[od.Name()] || option[*validate.OneofRules](options(od), validate.E_Oneof).GetRequired())
		b.exclusive(n, members, required)
		const most = 16 // members; the keyword grows with twice their names
		sure := slices.DeleteFunc(slices.Clone(members), func(k string) bool { return inherited[k] })
		if required && len(sure) < len(members) {
			continue // the one that is set may be a member that every object seems to have
		}
		if b.o.Profile == Full && !top && len(sure) > 1 && len(sure) <= most {
			n.choices = append(n.choices, choice{sure, required})
		}
	}
}

func (b *builder) messageOneof(n *node, r *validate.MessageOneofRule, keys map[protoreflect.Name]string) {
	var members []string
	for _, name := range r.GetFields() {
		if k := keys[protoreflect.Name(name)]; k != "" {
			members = append(members, k)
		}
	}
	b.exclusive(n, members, r.GetRequired())
}

// exclusive states that at most one, or exactly one, of the members is set.
func (b *builder) exclusive(n *node, members []string, required bool) {
	switch {
	case len(members) == 0 || len(members) == 1 && !required:
		return
	case len(members) == 1:
		n.words = append(n.words, members[0]+" must be set.")
	case required:
		n.words = append(n.words, "Set exactly one of "+strings.Join(members, ", ")+".")
	case b.o.Direction == Output:
		n.words = append(n.words, "At most one is set of "+strings.Join(members, ", ")+".")
	default:
		n.words = append(n.words, "Set at most one of "+strings.Join(members, ", ")+".")
	}
}
