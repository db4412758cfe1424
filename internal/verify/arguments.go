package verify

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// most bounds the instances that cover a schema.
const most = 300

// arguments makes instances of the input schema of a profile and sends them there and back.
func (v *subject) arguments(p toolschema.Profile) {
	schema := v.o.Schema(v.m, toolschema.Input, p)
	at := where(toolschema.Input, p)
	compiled, err := compile(schema)
	if err != nil {
		v.invalid(at, err)
		return
	}
	t, err := parse(schema, v.any)
	if err != nil {
		v.invalid(at, err)
		return
	}
	mk := newMaker(t, v.seed)
	sent, unmade := 0, 0
	try := func(x value) bool {
		if v.keeps(compiled, x) {
			v.send(x, at)
			sent++
		} else {
			unmade++
		}
		return v.ctx.Err() == nil
	}
	mk.systematic(most, try)
	if x, ok := mk.deepest(); ok {
		try(x)
	}
	for range v.o.Instances {
		if x, ok := mk.any(); ok && !try(x) {
			break
		}
	}
	v.tool.Arguments += sent
	v.tool.Unmade += unmade
	if sent == 0 && v.ctx.Err() == nil {
		v.find(Finding{Code: "arguments-unproved", Severity: catalog.SeverityWarning, Where: at,
			Message: fmt.Sprintf("none of %d arguments that were made keeps the schema", unmade), Mend: "look for rules of required fields that contradict each other"})
	}
}

func (v *subject) invalid(at string, err error) {
	v.find(Finding{Code: "schema-invalid", Severity: catalog.SeverityError, Where: at, Message: "the schema does not compile: " + oneLine(err), Mend: ours})
}

// keeps says whether the instance keeps its own schema. The generator does not follow every rule.
func (v *subject) keeps(s *jsonschema.Schema, x value) bool {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(x.append(nil)))
	return err == nil && s.Validate(doc) == nil
}

// send takes the messages out of a tool's arguments, as the MCP door does, and sends each.
func (v *subject) send(x value, at string) {
	in := v.m.Desc.Input()
	switch {
	case v.m.Kind().Client:
		messages, _ := x.get("messages")
		for _, message := range messages.list {
			v.there(message, at)
		}
	case toolschema.Wrapped(in):
		if inner, ok := x.get(toolschema.WrapperKey); ok {
			v.there(inner, at)
		}
	default:
		v.there(x, at)
	}
}

// there turns one message into wire bytes and back, twice, and compares.
func (v *subject) there(x value, at string) {
	c := v.o.codec(v.m.Request())
	doc := x.append(nil)
	fail := func(code, format string, args ...any) {
		v.find(Finding{Code: code, Severity: catalog.SeverityError, Where: at, Message: fmt.Sprintf(format, args...), Mend: ours, Example: string(doc)})
	}
	wire, err := c.AppendWire(nil, doc, transcode.ReadOptions{})
	if err != nil {
		fail("arguments-refused", "the call refuses what the schema accepts: %v", err)
		return
	}
	if err := c.Check(wire); err != nil {
		fail("arguments-broken", "the arguments become bytes that are no message: %v", err)
		return
	}
	back, err := c.AppendJSON(nil, wire, transcode.WriteOptions{})
	if err != nil {
		fail("arguments-unwritable", "the arguments cannot be shown again: %v", err)
		return
	}
	var got any
	dec := json.NewDecoder(bytes.NewReader(back))
	dec.UseNumber()
	if err := dec.Decode(&got); err != nil {
		fail("arguments-unwritable", "the arguments come back as what is no JSON: %v", err)
		return
	}
	if what := lost(x, got, v.m.Desc.Input()); what != "" {
		fail("arguments-changed", "the arguments do not come back: %s", trimDot(what))
		return
	}
	again, err := c.AppendWire(nil, back, transcode.ReadOptions{})
	if err != nil {
		fail("arguments-changed", "the arguments, written as the mesh writes them, are refused: %v", err)
		return
	}
	if what := unstable(c, wire, again); what != "" {
		fail("arguments-unstable", "the arguments %s", what)
	}
}

// unstable says how two wire forms of one message differ where they must not, or that the canonical form is none; "" if all is well.
func unstable(c codec, wire, again []byte) string {
	one, err := c.AppendCanonical(nil, wire)
	if err != nil {
		return "have no canonical form: " + err.Error()
	}
	two, err := c.AppendCanonical(nil, again)
	if err != nil {
		return "have no canonical form after a round trip: " + err.Error()
	}
	if !bytes.Equal(one, two) {
		return fmt.Sprintf("have another canonical form after a round trip: %s, then %s", inHex(one), inHex(two))
	}
	three, err := c.AppendCanonical(nil, one)
	if err != nil || !bytes.Equal(one, three) {
		return "have a canonical form whose canonical form is another"
	}
	return ""
}

func inHex(b []byte) string {
	const most = 60
	if len(b) > most {
		return fmt.Sprintf("%x…", b[:most])
	}
	return fmt.Sprintf("%x", b)
}

func trimDot(s string) string {
	if len(s) > 0 && s[0] == '.' {
		return s[1:]
	}
	return s
}

func oneLine(err error) string {
	return cut(string(bytes.Join(bytes.Fields([]byte(err.Error())), []byte(" "))), 400)
}
