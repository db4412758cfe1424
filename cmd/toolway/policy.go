package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
)

// setting is one value of a method's effective policy.
type setting struct {
	name string
	// Value is text, a number, a truth value or a list of texts.
	Value any `json:"value"`
	// From says where the value stands; "default" where nobody has said anything.
	From string `json:"from"`
}

// effective returns the policy as calls meet it, by the names of the configuration. What is not set and bounds nothing is left out.
func effective(m *catalog.Method) []setting {
	p, h := m.Policy, m.Tool.Hints
	var out []setting
	add := func(name string, value any) {
		out = append(out, setting{name, value, cmp.Or(p.From[name], "default")})
	}
	set := func(name string, value any, is bool) {
		if is || p.From[name] != "" {
			add(name, value)
		}
	}
	set("tool_name", m.Tool.Name, false)
	set("title", m.Tool.Title, false)
	add("read_only", h.ReadOnly)
	add("destructive", h.Destructive)
	add("idempotent", h.Idempotent)
	add("open_world", h.OpenWorld)
	add("scopes", list(p.Scopes))
	add("approval", p.Approval.String())
	set("approver_scope", p.ApproverScope, p.Approval != catalog.ApprovalNone)
	set("timeout", bound(m.Timeout), false)
	set("max_timeout", bound(m.MaxTimeout), false)
	add("cost", p.Cost)
	add("priority", p.Priority.String())
	add("cache_ttl", p.CacheTTL.String())
	add("retry", p.Retry)
	set("idempotency.key_template", p.KeyTemplate, p.KeyTemplate != "")
	set("idempotency.key_field", p.KeyField, p.KeyField != "")
	set("idempotency.required", p.KeyRequired, p.KeyRequired)
	set("stream.cursor_field", p.CursorField, p.CursorField != "")
	set("stream.event_id_field", p.EventIDField, p.EventIDField != "")
	set("stream.event_type_field", p.EventTypeField, p.EventTypeField != "")
	set("result_limits.max_bytes", p.MaxResultBytes, p.MaxResultBytes > 0)
	set("result_limits.max_items", p.MaxResultItems, p.MaxResultItems > 0)
	set("result_limits.max_depth", p.MaxResultDepth, p.MaxResultDepth > 0)
	set("labels", list(p.Labels), len(p.Labels) > 0)
	out = append(out, doorsOf(m))
	return append(out, fieldsOf(m)...)
}

func list(in []string) []string { return append([]string{}, in...) }

// bound is a duration, where none leaves it to the mesh.
func bound(d time.Duration) string {
	if d == 0 {
		return "the mesh's"
	}
	return d.String()
}

// doorsOf says which doors expose the method.
func doorsOf(m *catalog.Method) setting {
	var doors catalog.Doors
	for _, d := range []catalog.Doors{catalog.DoorGRPC, catalog.DoorMCP, catalog.DoorHTTP} {
		if m.Exposed(d) {
			doors |= d
		}
	}
	return setting{"doors", doors.Names(), cmp.Or(m.Policy.From["doors"], "expose")}
}

// fieldsOf lists the marked fields of requests and responses.
func fieldsOf(m *catalog.Method) []setting {
	var out []setting
	for _, side := range []struct {
		name string
		set  *catalog.FieldSet
	}{{"request", m.Sensitive(toolschema.Input)}, {"response", m.Sensitive(toolschema.Output)}} {
		for _, f := range side.set.Paths() {
			var words []string
			if f.Mark.Sensitive {
				words = append(words, "sensitive")
			}
			if f.Mark.Redact {
				words = append(words, "redact_result")
			}
			if f.Mark.Label != "" {
				words = append(words, "data_label "+f.Mark.Label)
			}
			out = append(out, setting{side.name + " " + f.Path, words, cmp.Or(m.Policy.From["fields."+f.Path], "option of the field")})
		}
	}
	return out
}

// showPolicy prints the policy as a table.
func showPolicy(w io.Writer, m *catalog.Method) error {
	fmt.Fprintln(w, "\npolicy")
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, s := range effective(m) {
		value := fmt.Sprint(s.Value)
		if names, ok := s.Value.([]string); ok {
			value = cmp.Or(strings.Join(names, ", "), "none")
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", s.name, value, s.From)
	}
	return t.Flush()
}

// policyJSON is the policy as an object of settings by name.
func policyJSON(m *catalog.Method) json.RawMessage {
	var b strings.Builder
	b.WriteByte('{')
	for i, s := range effective(m) {
		if i > 0 {
			b.WriteByte(',')
		}
		v, err := json.Marshal(s)
		if err != nil {
			continue // of texts, numbers and truth values only
		}
		fmt.Fprintf(&b, "%q:%s", s.name, v)
	}
	b.WriteByte('}')
	return json.RawMessage(b.String())
}
