package verify

import (
	"bytes"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// outputs are the compiled output schemas by the profile that they are of.
type outputs []struct {
	at     string
	schema *jsonschema.Schema
}

// results makes messages as the server may answer them, and holds what is written of them against the output schemas.
func (v *subject) results() {
	var schemas outputs
	for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full} {
		at := where(toolschema.Output, p)
		s, err := compile(v.o.Schema(v.m, toolschema.Output, p))
		if err != nil {
			v.invalid(at, err)
			continue
		}
		schemas = append(schemas, struct {
			at     string
			schema *jsonschema.Schema
		}{at, s})
	}
	md := v.m.Desc.Output()
	w := newWires(md, v.any, v.seed)
	made := 0
	next := func(random bool) {
		if b := w.next(md, random); !w.endless {
			v.back(b, schemas)
			made++
		}
	}
	const most = 100
	for i := 0; i < most && (i == 0 || !w.covered()) && v.ctx.Err() == nil; i++ {
		next(false)
	}
	for range v.o.Instances {
		if v.ctx.Err() != nil {
			return
		}
		next(true)
	}
	if made == 0 && v.ctx.Err() == nil {
		v.find(Finding{Code: "results-unproved", Severity: catalog.SeverityWarning,
			Message: "no result can be made: required fields lead back to their own message without end", Mend: "make one of them optional"})
	}
	if md.RequiredNumbers().Len() == 0 && md.FullName() != "google.protobuf.Value" { // nothing at all is no Value
		v.back(nil, schemas)
	}
}

// back writes one message as JSON in each way that the mesh may be told to, and reads it again.
func (v *subject) back(wire []byte, schemas outputs) {
	v.tool.Results++
	c := v.o.codec(v.m.Response())
	fail := func(code, at, example, format string, args ...any) {
		v.find(Finding{Code: code, Severity: catalog.SeverityError, Where: at, Message: fmt.Sprintf(format, args...), Mend: ours, Example: example})
	}
	bytesInHex := fmt.Sprintf("%x", wire)
	if err := c.Check(wire); err != nil {
		fail("result-broken", "", bytesInHex, "a well-formed message is refused: %v", err)
		return
	}
	for _, o := range []transcode.WriteOptions{{}, {EmitDefaults: true}} {
		doc, err := c.AppendJSON(nil, wire, o)
		if err != nil {
			fail("result-unwritable", "", bytesInHex, "a result cannot be written: %v", err)
			return
		}
		parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(v.result(doc)))
		if err != nil {
			fail("result-unwritable", "", string(doc), "a result is written as what is no JSON: %v", err)
			return
		}
		for _, s := range schemas {
			if err := s.schema.Validate(parsed); err != nil {
				fail("result-refused", s.at, string(doc), "the schema refuses a result: %s", oneLine(err))
			}
		}
		again, err := c.AppendWire(nil, doc, transcode.ReadOptions{})
		if err != nil {
			fail("result-changed", "", string(doc), "a result as it is written cannot be read again: %v", err)
			return
		}
		if what := unstable(c, wire, again); what != "" {
			fail("result-changed", "", string(doc), "the results %s", what)
		}
	}
}

// result puts a message where the MCP door has it.
func (v *subject) result(doc []byte) []byte {
	switch {
	case v.m.Kind().Server:
		return fmt.Appendf(nil, `{"items":[%s]}`, doc)
	case toolschema.Wrapped(v.m.Desc.Output()):
		return fmt.Appendf(nil, `{%q:%s}`, toolschema.WrapperKey, doc)
	}
	return doc
}
