package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/nearmiss"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// maxExamples is the longest that a tool's examples may be together, in characters. The description makes room for them.
const maxExamples = MaxDescription / 2

// faults collects what is wrong with a method's options.
type faults struct {
	method protoreflect.MethodDescriptor
	from   map[string]string // what rules have set
	found  []Finding
}

func (f *faults) find(code, severity, subject, format string, args ...any) {
	f.found = append(f.found, Finding{Code: code, Severity: severity, Subject: subject, Message: fmt.Sprintf(format, args...)})
}

func (f *faults) contradiction(format string, args ...any) {
	f.find("option-contradiction", SeverityWarning, string(f.method.FullName()), format, args...)
}

// value reports a value that cannot be kept, by its name in the configuration, and says where it stands.
func (f *faults) value(code, name, format string, args ...any) {
	where := "option (toolway.v1.method)." + name
	if rule := f.from[name]; rule != "" {
		where = rule + "." + name
	}
	f.find(code, SeverityError, string(f.method.FullName()), "%s of %s: %s", where, f.method.FullName(), fmt.Sprintf(format, args...))
}

// checkPolicy takes out of the policy what cannot be kept. What would have kept calls from running, and cannot, keeps the method from
// being served at all.
func (m *Method) checkPolicy(f *faults, ev hintEvidence) {
	p, md := &m.Policy, m.Desc
	if md.IsStreamingClient() {
		m.checkClientStream(f)
	}
	for _, scope := range append(slices.Clone(p.Scopes), p.ApproverScope) {
		if !ValidScope(scope) {
			f.value("scope-invalid", "scopes", "%q is no scope (visible ASCII without spaces, quotes and backslashes), so nobody can have it and no door serves the method; mend it", scope)
			m.refused = true
		}
	}
	if p.CacheTTL > 0 && (!m.Tool.Hints.ReadOnly || ev.readOnly <= verbEvidence) {
		f.value("policy-contradiction", "cache_ttl", "a result is cached only of a method that is read-only by option, idempotency_level or configuration (an HTTP verb is not enough); nothing is cached; set read_only, or take cache_ttl out")
		p.CacheTTL = 0
		delete(p.From, "cache_ttl")
	}
	if p.KeyTemplate != "" && p.KeyField != "" {
		f.value("policy-contradiction", "idempotency.key_field", "there is a key_template too, which is taken; take one of the two out")
		p.KeyField = ""
	}
	if _, err := p.keyTemplate(md); err != nil {
		name := "idempotency.key_template"
		if p.KeyField != "" {
			name = "idempotency.key_field"
		}
		f.value("idempotency-key-invalid", name, "%v; callers have to send their own keys", err)
		p.KeyTemplate, p.KeyField = "", ""
		delete(p.From, name)
	}
	m.checkStream(f)
}

// checkClientStream takes out what needs the whole request before the call runs: a client's stream is not known before it ends.
func (m *Method) checkClientStream(f *faults) {
	const never = "it needs the whole request before the call runs, which a client stream does not have; "
	p := &m.Policy
	if p.KeyRequired {
		f.value("idempotency-key-invalid", "idempotency.required", never+"so no door serves the method; take required out, or make the method unary")
		m.refused = true
	}
	for _, key := range []struct {
		name  string
		value *string
	}{{"idempotency.key_template", &p.KeyTemplate}, {"idempotency.key_field", &p.KeyField}} {
		if *key.value != "" {
			f.value("idempotency-key-invalid", key.name, never+"there is no key; take it out")
			*key.value = ""
			delete(p.From, key.name)
		}
	}
	if p.Approval != ApprovalNone {
		f.value("approval-impossible", "approval", never+"so no door serves the method; take approval out, or make the method unary")
		m.refused = true
	}
	if p.Task == TaskRequired {
		f.value("policy-contradiction", "task", never+"it does not run as a task; take task out")
		p.Task = TaskOptional
		delete(p.From, "task")
	}
	if p.CacheTTL > 0 {
		f.value("policy-contradiction", "cache_ttl", never+"nothing is cached; take it out")
		p.CacheTTL = 0
		delete(p.From, "cache_ttl")
	}
}

// checkStream takes out the fields of a stream that are not there.
func (m *Method) checkStream(f *faults) {
	p := &m.Policy
	for _, c := range []struct {
		name  string
		value *string
		of    protoreflect.MessageDescriptor
	}{
		{"stream.cursor_field", &p.CursorField, m.Desc.Input()},
		{"stream.event_id_field", &p.EventIDField, m.Desc.Output()},
		{"stream.event_type_field", &p.EventTypeField, m.Desc.Output()},
	} {
		if *c.value == "" {
			continue
		}
		_, err := scalarAt(c.of, *c.value)
		if err == nil && !m.Desc.IsStreamingServer() {
			err = errors.New("the method does not stream responses")
		}
		if err != nil {
			f.value("stream-invalid", c.name, "%v; streams of the method cannot be resumed by it", err)
			*c.value = ""
			delete(p.From, c.name)
		}
	}
}

// mark lays a rule about a field over what the contract marks, in requests and responses that have the path.
func (m *Method) mark(r FieldRule) {
	for i, md := range []protoreflect.MessageDescriptor{m.Desc.Input(), m.Desc.Output()} {
		if _, err := findField(md, r.Path, true); err != nil {
			continue
		}
		m.marked[i] = m.marked[i].with(md, r.Path, func(mark *FieldMark) {
			if r.Redact != nil {
				mark.Redact = *r.Redact
				mark.Sensitive = mark.Sensitive || mark.Redact
			}
			if r.Sensitive != nil {
				mark.Sensitive = *r.Sensitive
				mark.Redact = mark.Redact && mark.Sensitive
			}
			if r.Label != nil {
				mark.Label = *r.Label
			}
		})
	}
}

// scalarAt finds a singular scalar field by its path through singular messages.
func scalarAt(md protoreflect.MessageDescriptor, path string) ([]protoreflect.FieldDescriptor, error) {
	fds, err := findField(md, path, false)
	if err != nil {
		return nil, err
	}
	last := fds[len(fds)-1]
	if last.IsList() || last.IsMap() || last.Message() != nil {
		return nil, fmt.Errorf("field %q of %s is no single scalar value", path, md.FullName())
	}
	return fds, nil
}

// findField finds a field by its path, with dots between names. Lists and maps on the way are looked through if asked for.
func findField(md protoreflect.MessageDescriptor, path string, through bool) ([]protoreflect.FieldDescriptor, error) {
	var out []protoreflect.FieldDescriptor
	at := md
	for name := range strings.SplitSeq(path, ".") {
		if len(out) > 0 {
			last := out[len(out)-1]
			if at = within(last); at == nil || !through && (last.IsList() || last.IsMap()) {
				return nil, fmt.Errorf("field %q of %s: %q is no single message, so there is no %q in it", path, md.FullName(), last.Name(), name)
			}
		}
		fd := at.Fields().ByName(protoreflect.Name(name))
		if fd == nil {
			problem := fmt.Sprintf("%s has no field %q", at.FullName(), name)
			if near := nearmiss.Find(name, fieldNames(at)); near != "" {
				problem += fmt.Sprintf("; did you mean %q?", near)
			}
			return nil, errors.New(problem)
		}
		out = append(out, fd)
	}
	return out, nil
}

func fieldNames(md protoreflect.MessageDescriptor) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range md.Fields().Len() {
			if !yield(string(md.Fields().Get(i).Name())) {
				return
			}
		}
	}
}

// examples returns the examples that agents are shown, as arguments of the tool.
func (m *methodInfo) examples(o terms, f *faults) []string {
	var out []string
	room := maxExamples
	for i, text := range o.GetExamples() {
		name := fmt.Sprintf("example %d", i+1)
		shown, err := m.example(text)
		if err != nil {
			f.value("example-invalid", "examples", "%s is not shown: %v; mend it", name, err)
			continue
		}
		if room -= utf8.RuneCountInString(shown) + 1; room < 0 {
			f.find("example-left-out", SeverityWarning, string(m.Desc.FullName()), "%s of %s and later ones are not shown: examples may have %d characters together; take some out, or make them shorter", name, m.Desc.FullName(), maxExamples)
			break
		}
		out = append(out, shown)
	}
	return out
}

// example checks one example against the request, and makes it the tool's arguments.
func (m *methodInfo) example(text string) (string, error) {
	if _, err := m.codecs.Message(m.Desc.Input()).AppendWire(nil, []byte(text), transcode.ReadOptions{}); err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		return "", err
	}
	shown := b.String()
	if clean(shown, false) != shown {
		return "", errors.New("it has control or invisible characters")
	}
	var given map[string]json.RawMessage
	if json.Unmarshal(b.Bytes(), &given) == nil {
		for _, fd := range required(&m.Method) {
			if given[fd.JSONName()] == nil && given[fd.TextName()] == nil {
				return "", fmt.Errorf("%q is missing, which is required", fd.JSONName())
			}
		}
	}
	switch {
	case m.Desc.IsStreamingClient():
		return `{"messages":[` + shown + `]}`, nil
	case toolschema.Wrapped(m.Desc.Input()):
		return `{"` + toolschema.WrapperKey + `":` + shown + `}`, nil
	}
	return shown, nil
}
