package toolschema

import (
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// constrain puts the rules of a field into its node, and says whether the field has to be there. Rules bind callers, so outputs have none.
func (b *builder) constrain(f *field, n *node, ignoreZero bool) bool {
	must := f.behaves.required || f.fd.Cardinality() == protoreflect.Required
	if b.o.Direction == Output {
		return f.fd.Cardinality() == protoreflect.Required
	}
	r := f.rules
	if r == nil || r.GetIgnore() == validate.Ignore_IGNORE_ALWAYS {
		b.lower(n)
		return must
	}
	ignoreZero = ignoreZero || r.GetIgnore() == validate.Ignore_IGNORE_IF_ZERO_VALUE
	implicit := !f.fd.HasPresence()
	zeroFails := b.rules(n, f.fd, r)
	switch {
	case r.GetRequired():
		must = true
		if implicit {
			b.notZero(n, f.fd)
		}
	case ignoreZero && implicit:
		if zeroFails && b.o.Profile == Full && !f.fd.IsList() && !f.fd.IsMap() {
			orZero(n)
		}
	case zeroFails && implicit:
		must = true // leaving it out means its zero value, which the rules refuse
	}
	b.lower(n)
	return must
}

// rules puts the rules r of fd into n and says whether the zero value breaks one of them.
func (b *builder) rules(n *node, fd protoreflect.FieldDescriptor, r *validate.FieldRules) (zeroFails bool) {
	defer func() {
		for _, w := range celWords(r.GetCel(), r.GetCelExpression()) {
			n.say(w)
		}
	}()
	m := r.ProtoReflect()
	kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("type"))
	if kind == nil || string(kind.Name()) != ruleName(fd) {
		return false
	}
	switch kind.Name() {
	case "repeated":
		return b.repeatedRules(n, fd, r.GetRepeated())
	case "map":
		return b.mapRules(n, fd, r.GetMap())
	}
	return b.valueRules(n, fd, r, kind)
}

// valueRules is rules for one value.
func (b *builder) valueRules(n *node, fd protoreflect.FieldDescriptor, r *validate.FieldRules, kind protoreflect.FieldDescriptor) (zeroFails bool) {
	m := r.ProtoReflect().Get(kind).Message()
	n.say(exampleWords(m))
	defer func() {
		if predefined(m) {
			n.say("Further rules of the contract apply.")
		}
	}()
	switch kind.Name() {
	case "string":
		return stringRules(n, r.GetString())
	case "bytes":
		return bytesRules(n, r.GetBytes())
	case "bool":
		if r.GetBool().Const == nil {
			return false
		}
		want := "false"
		if r.GetBool().GetConst() {
			want = "true"
		}
		n.exact = []string{want}
		return r.GetBool().GetConst()
	case "enum":
		return enumRules(n, fd.Enum(), r.GetEnum())
	case "any":
		n.say(listWords("Only these types: ", r.GetAny().GetIn()))
		n.say(listWords("Not these types: ", r.GetAny().GetNotIn()))
	case "field_mask":
		n.say(listWords("Only these paths: ", r.GetFieldMask().GetIn()))
		n.say(listWords("Not these paths: ", r.GetFieldMask().GetNotIn()))
		if c := r.GetFieldMask().GetConst(); c != nil {
			n.say(listWords("Must be exactly these paths: ", c.GetPaths()))
		}
	case "duration", "timestamp":
		timeRules(n, m)
	default:
		return numberRules(n, kind.Name(), m)
	}
	return false
}

// exampleWords tells the examples that a contract gives for a value.
func exampleWords(m protoreflect.Message) string {
	fd := m.Descriptor().Fields().ByName("example")
	if fd == nil || !fd.IsList() || fd.Message() != nil || fd.Kind() == protoreflect.BytesKind {
		return ""
	}
	var texts []string
	for _, v := range values(m.Get(fd).List()) {
		text := numberText(v)
		if fd.Kind() == protoreflect.StringKind {
			text = quoted(shorten(visible(text), 100))
		}
		if texts = append(texts, text); len(texts) == 3 {
			break
		}
	}
	return listWords("Example: ", texts)
}

// predefined says whether rules of the contract's own making stand beside the standard ones.
func predefined(m protoreflect.Message) bool {
	own := len(m.GetUnknown()) > 0
	m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		own = own || fd.IsExtension()
		return !own
	})
	return own
}

// partRules puts the rules of an item, a key or a value into its node; its zero value has no meaning of its own.
func (b *builder) partRules(n *node, fd protoreflect.FieldDescriptor, r *validate.FieldRules) {
	if n == nil || r == nil || r.GetIgnore() == validate.Ignore_IGNORE_ALWAYS {
		return
	}
	m := r.ProtoReflect()
	kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("type"))
	if kind != nil && string(kind.Name()) == valueRuleName(fd) {
		if b.valueRules(n, fd, r, kind) && r.GetIgnore() == validate.Ignore_IGNORE_IF_ZERO_VALUE && b.o.Profile == Full {
			orZero(n)
		}
	}
	for _, w := range celWords(r.GetCel(), r.GetCelExpression()) {
		n.say(w)
	}
}

func (b *builder) repeatedRules(n *node, fd protoreflect.FieldDescriptor, r *validate.RepeatedRules) bool {
	if r == nil || n.items == nil {
		return false
	}
	b.partRules(n.items, fd, r.GetItems())
	b.lower(n.items)
	if r.MinItems != nil {
		n.bound("minItems", r.GetMinItems(), "At least %s items.")
	}
	if r.MaxItems != nil {
		n.bound("maxItems", r.GetMaxItems(), "At most %s items.")
	}
	if r.GetUnique() {
		n.fact("uniqueItems", "true", "No two items are equal.")
	}
	return r.GetMinItems() > 0
}

func (b *builder) mapRules(n *node, fd protoreflect.FieldDescriptor, r *validate.MapRules) bool {
	if r == nil {
		return false
	}
	if r.MinPairs != nil {
		n.bound("minProperties", r.GetMinPairs(), "At least %s entries.")
	}
	if r.MaxPairs != nil {
		n.bound("maxProperties", r.GetMaxPairs(), "At most %s entries.")
	}
	if b.o.Profile == Full {
		if r.GetKeys() != nil {
			if n.keys == nil {
				n.keys = &node{}
			}
			if fd.MapKey().Kind() == protoreflect.StringKind {
				b.partRules(n.keys, fd.MapKey(), r.GetKeys())
			} else {
				n.say(b.partWords("Keys: ", fd.MapKey(), r.GetKeys()))
			}
		}
		b.partRules(n.values, fd.MapValue(), r.GetValues())
		return r.GetMinPairs() > 0
	}
	n.say(b.partWords("Keys: ", fd.MapKey(), r.GetKeys()))
	n.say(b.partWords("Values: ", fd.MapValue(), r.GetValues()))
	return r.GetMinPairs() > 0
}

// partWords tells the rules of a key or value in words.
func (b *builder) partWords(what string, fd protoreflect.FieldDescriptor, r *validate.FieldRules) string {
	if r == nil {
		return ""
	}
	n := &node{kind: "string"}
	if fd.Kind() == protoreflect.EnumKind {
		n = b.enum(fd.Enum())
		n.desc = ""
	}
	b.partRules(n, fd, r)
	for _, f := range n.facts {
		n.say(f.words)
	}
	if names := n.enum; len(names) > 0 {
		if fd.Kind() == protoreflect.StringKind {
			names = quotedAll(names)
		}
		n.say(listWords("One of ", names))
	}
	if len(n.exact) > 0 {
		n.say(listWords("One of ", n.exact))
	}
	if n.desc == "" {
		return ""
	}
	return what + strings.ToLower(n.desc[:1]) + n.desc[1:]
}

// notZero states that the value may not be the zero value of its type.
func (b *builder) notZero(n *node, fd protoreflect.FieldDescriptor) {
	switch {
	case fd.IsMap():
		n.atLeast("minProperties", "At least %s entries.")
	case fd.IsList():
		n.atLeast("minItems", "At least %s items.")
	case fd.Kind() == protoreflect.StringKind:
		if len(n.enum) == 0 {
			n.atLeast("minLength", "At least %s characters.")
		}
	case fd.Kind() == protoreflect.BoolKind:
		n.exact = []string{"true"}
	case fd.Kind() == protoreflect.EnumKind:
		keepNumbers(n, fd.Enum(), func(e protoreflect.EnumNumber) bool { return e != 0 }, false)
	case fd.Kind() == protoreflect.BytesKind:
		n.say("Must not be empty.")
	default:
		n.fact("not", `{"enum":[0,"0"]}`, "Must not be 0.")
	}
}

// orZero lets the zero value through where the contract ignores rules for it.
func orZero(n *node) {
	var zero string
	switch {
	case n.kind == "string" && len(n.or) == 0:
		zero = `""`
	case n.kind == "string":
		zero = `0,"0"`
	case n.kind == "integer", n.kind == "number", len(n.anyOf) > 0 && n.anyOf[0].kind == "number":
		zero = "0"
	case n.kind == "boolean":
		n.exact = nil
		return
	default:
		return
	}
	rest := *n
	rest.desc = ""
	*n = node{desc: n.desc, anyOf: []*node{{exact: []string{zero}}, &rest}}
}

// ruleName returns the name of the rules that fit fd.
func ruleName(fd protoreflect.FieldDescriptor) string {
	switch {
	case fd.IsMap():
		return "map"
	case fd.IsList():
		return "repeated"
	}
	return valueRuleName(fd)
}

func valueRuleName(fd protoreflect.FieldDescriptor) string {
	if fd.Message() == nil {
		return fd.Kind().String()
	}
	switch fd.Message().FullName() {
	case "google.protobuf.Any":
		return "any"
	case "google.protobuf.Duration":
		return "duration"
	case "google.protobuf.Timestamp":
		return "timestamp"
	case "google.protobuf.FieldMask":
		return "field_mask"
	}
	short, ok := strings.CutPrefix(string(fd.Message().FullName()), "google.protobuf.")
	if kind, isWrapper := strings.CutSuffix(short, "Value"); ok && isWrapper {
		return strings.ToLower(kind)
	}
	return ""
}

// celWords tells CEL rules by their messages.
func celWords(rules []*validate.Rule, expressions []string) []string {
	var words []string
	for _, r := range rules {
		switch {
		case r.GetMessage() != "":
			words = append(words, "Rule: "+strings.TrimRight(shorten(clean(r.GetMessage()), 200), ".")+".")
		case r.GetExpression() != "":
			words = append(words, "Rule (CEL): "+shorten(visible(r.GetExpression()), 200))
		}
	}
	for _, e := range expressions {
		words = append(words, "Rule (CEL): "+shorten(visible(e), 200))
	}
	return words
}
