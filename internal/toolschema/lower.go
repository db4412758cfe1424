package toolschema

import (
	"slices"
	"strings"
)

// keywords that a profile keeps besides type, description, properties, required, items and enum; Full keeps all.
var keywords = map[Profile]map[string]bool{
	Portable: set("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "pattern", "format"),
	Strict:   set("pattern", "format"),
}

// formatsOf are the string and number formats that a profile keeps.
var formatsOf = map[Profile]map[string]bool{
	Portable: set(`"date-time"`, `"int32"`, `"float"`),
	Strict:   set(`"date-time"`, `"email"`, `"hostname"`, `"ipv4"`, `"ipv6"`, `"uuid"`),
}

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// lower turns what the profile has no keyword for into words.
func (b *builder) lower(n *node) {
	if b.o.Profile == Full {
		return
	}
	kept := n.facts[:0]
	for _, f := range n.facts {
		switch {
		case keywords[b.o.Profile][f.key] && (f.key != "format" || formatsOf[b.o.Profile][f.raw]):
			kept = append(kept, f)
		case f.key == "exclusiveMinimum" && b.o.Profile == Portable:
			n.say(f.words)
			kept = append(kept, fact{key: "minimum", raw: f.raw})
		case f.key == "exclusiveMaximum" && b.o.Profile == Portable:
			n.say(f.words)
			kept = append(kept, fact{key: "maximum", raw: f.raw})
		default:
			n.say(f.words)
		}
	}
	n.facts = kept
	if b.o.Profile == Portable && slices.Contains(n.enum, "") {
		if n.enum = slices.DeleteFunc(n.enum, func(s string) bool { return s == "" }); len(n.enum) > 0 {
			n.say("May be empty.")
		} else {
			n.say("Must be empty.")
		}
	}
	if len(n.exact) == 0 || b.o.Profile == Strict {
		return
	}
	if len(n.exact) == 1 {
		n.say("Must be " + n.exact[0] + ".")
	} else {
		n.say("One of " + strings.Join(n.exact, ", ") + ".")
	}
	n.exact = nil
}
