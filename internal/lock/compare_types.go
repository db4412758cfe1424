package lock

import (
	"fmt"
	"strings"
)

// side compares what a tool takes, or returns, with all that it reaches.
func (c *comparison) side(side, was, is string) {
	if strings.HasPrefix(was, "stream ") != strings.HasPrefix(is, "stream ") {
		c.at(member(side)).add(Breaks, "", "the %s changed from %s to %s", side, was, is)
		return
	}
	c.pair(side, message(was), message(is))
}

// pair compares two types, which may have different names. A pair is compared once per side.
func (c *comparison) pair(side, was, is string) {
	at := [3]string{side, was, is}
	if c.seen[at] {
		return
	}
	c.seen[at] = true
	a, b := c.was[was], c.is[is]
	switch {
	case a == nil && b == nil: // well-known, or scalar
		if was != is {
			c.add(Breaks, is, "%s: the type changed from %s to %s", side, was, is)
		}
		return
	case a == nil || b == nil || (len(a.Values) > 0) != (len(b.Values) > 0):
		c.add(Breaks, is, "%s: the type changed from %s to %s", side, was, is)
		return
	}
	if a.Rules != b.Rules {
		c.at(member("rules")).add(c.narrower(side), is, "%s: the rules of %s changed from %q to %q", side, is, a.Rules, b.Rules)
	}
	c.fields(side, is, a.Fields, b.Fields)
	c.values(side, is, a.Values, b.Values)
}

// narrower is the effect of rules that changed: a request may be refused that was not.
func (c *comparison) narrower(side string) Effect {
	if side == "request" {
		return Breaks
	}
	return Changes
}

func (c *comparison) fields(side, typ string, was, is []Field) {
	before := map[string]Field{}
	for _, f := range was {
		before[f.Name] = f
	}
	after := map[string]bool{}
	for _, f := range is {
		after[f.Name] = true
		old, known := before[f.Name]
		if known {
			c.field(side, typ, old, f)
			continue
		}
		switch {
		case f.Required && side == "request":
			c.at(member("fields")).add(Breaks, typ, "%s: the field %s.%s is new and required%s", side, typ, f.Name, doc(f.Doc))
		default:
			c.at(member("fields")).add(Changes, typ, "%s: the field %s.%s is new%s", side, typ, f.Name, doc(f.Doc))
		}
	}
	for _, f := range was {
		if !after[f.Name] {
			c.at(member("fields"), item(f.Name)).add(Breaks, typ, "%s: the field %s.%s is gone", side, typ, f.Name)
		}
	}
}

// item is how the line of a field or value begins.
func item(name string) string { return `{"name":` + string(encode(name)) }

func doc(s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf(": %q", s)
}

func (c *comparison) field(side, typ string, was, is Field) {
	name := typ + "." + is.Name
	at := func() *comparison { return c.at(member("fields"), item(is.Name)) }
	kind := func(f Field) string { return strings.TrimSpace(f.Form + " " + f.Type) }
	scalar := func(f Field) bool { return c.was[f.Type] == nil && c.is[f.Type] == nil }
	switch {
	case was.Form != is.Form, scalar(was) != scalar(is), scalar(was) && was.Type != is.Type:
		at().add(Breaks, typ, "%s: the type of %s changed from %s to %s", side, name, kind(was), kind(is))
	default:
		c.pair(side, was.Type, is.Type)
	}
	if was.Required != is.Required {
		switch {
		case is.Required && side == "request":
			at().add(Breaks, typ, "%s: the field %s is required now", side, name)
		case is.Required:
			at().add(Changes, typ, "%s: the field %s is always there now", side, name)
		default:
			at().add(Changes, typ, "%s: the field %s is no longer required", side, name)
		}
	}
	if was.Oneof != is.Oneof {
		at().add(Breaks, typ, "%s: %s was in the oneof %q, and is in %q", side, name, was.Oneof, is.Oneof)
	}
	if was.Rules != is.Rules {
		at().add(c.narrower(side), typ, "%s: the rules of %s changed from %q to %q", side, name, was.Rules, is.Rules)
	}
	if was.Deprecated != is.Deprecated {
		at().add(Changes, typ, "%s: %s is deprecated: %v, was %v", side, name, is.Deprecated, was.Deprecated)
	}
	if was.Doc != is.Doc {
		at().add(Changes, typ, "%s: the description of %s changed from %q to %q", side, name, was.Doc, is.Doc)
	}
}

func (c *comparison) values(side, typ string, was, is []Value) {
	before := map[string]Value{}
	for _, v := range was {
		before[v.Name] = v
	}
	after := map[string]bool{}
	for _, v := range is {
		after[v.Name] = true
		old, known := before[v.Name]
		switch {
		case !known:
			c.at(member("values")).add(Changes, typ, "%s: %s has the new value %s%s", side, typ, v.Name, doc(v.Doc))
		case old.Doc != v.Doc:
			c.at(member("values"), item(v.Name)).add(Changes, typ, "%s: the description of %s.%s changed from %q to %q", side, typ, v.Name, old.Doc, v.Doc)
		case old.Deprecated != v.Deprecated:
			c.at(member("values"), item(v.Name)).add(Changes, typ, "%s: %s.%s is deprecated: %v, was %v", side, typ, v.Name, v.Deprecated, old.Deprecated)
		}
	}
	for _, v := range was {
		if !after[v.Name] {
			c.at(member("values"), item(v.Name)).add(c.narrower(side), typ, "%s: %s no longer has the value %s", side, typ, v.Name)
		}
	}
}
