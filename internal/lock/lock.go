// Package lock pins definitions of tools: what was reviewed is written to a file, and what differs from it is explained and held back.
package lock

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// version is that of the file's form.
const version = 1

// File is the definitions of tools at the time of a review. Two files of the same contracts and configuration are the same bytes.
type File struct {
	// Lock is the version of the form.
	Lock int `json:"lock"`
	// Tools by method, as pkg.Service/Method.
	Tools map[string]*Tool `json:"tools"`
	// Types are the messages and enums that tools take and return, by backend and full name.
	Types map[string]map[string]*Type `json:"types"`
}

// Tool is the definition of one tool. Nothing in it depends on the machine, the time or other tools.
type Tool struct {
	// Hash covers all of the definition, with the types that it reaches.
	Hash string `json:"hash"`
	// Tool is the name as agents see it.
	Tool        string `json:"tool"`
	Backend     string `json:"backend"`
	Title       string `json:"title"`
	Description string `json:"description"`
	// Request and Response are full names of messages, "stream " before those of a stream.
	Request  string `json:"request"`
	Response string `json:"response"`
	Hints    Hints  `json:"annotations"`
	// Routes are the google.api.http rules, as "POST /v1/orders body *".
	Routes []string `json:"routes,omitempty"`
	Policy Policy   `json:"policy"`
	// Sensitive are the marked fields, as "request customer.email: sensitive, pii".
	Sensitive []string `json:"sensitive,omitempty"`
}

// Hints are MCP's annotations.
type Hints struct {
	ReadOnly    bool `json:"readOnly"`
	Destructive bool `json:"destructive"`
	Idempotent  bool `json:"idempotent"`
	OpenWorld   bool `json:"openWorld"`
}

// Policy is the effective policy; what is not set is not in the file.
type Policy struct {
	Scopes         []string `json:"scopes,omitempty"`
	Approval       string   `json:"approval,omitempty"`
	ApproverScope  string   `json:"approver_scope,omitempty"`
	Timeout        string   `json:"timeout,omitempty"`
	MaxTimeout     string   `json:"max_timeout,omitempty"`
	Cost           int      `json:"cost,omitempty"`
	Priority       string   `json:"priority,omitempty"`
	CacheTTL       string   `json:"cache_ttl,omitempty"`
	Retry          bool     `json:"retry,omitempty"`
	KeyTemplate    string   `json:"key_template,omitempty"`
	KeyField       string   `json:"key_field,omitempty"`
	KeyRequired    bool     `json:"key_required,omitempty"`
	CursorField    string   `json:"cursor_field,omitempty"`
	EventIDField   string   `json:"event_id_field,omitempty"`
	EventTypeField string   `json:"event_type_field,omitempty"`
	MaxBytes       int      `json:"max_bytes,omitempty"`
	MaxItems       int      `json:"max_items,omitempty"`
	MaxDepth       int      `json:"max_depth,omitempty"`
	Labels         []string `json:"labels,omitempty"`
	// Doors are those that a rule names; nil where none does.
	Doors *[]string `json:"doors,omitempty"`
}

// Type is a message or an enum as agents see it.
type Type struct {
	// Rules are options of the message that narrow its values.
	Rules string `json:"rules,omitempty"`
	// Fields of a message, by name.
	Fields []Field `json:"fields,omitempty"`
	// Values of an enum, by name.
	Values []Value `json:"values,omitempty"`
}

// Field is one field.
type Field struct {
	// Name is the JSON name.
	Name string `json:"name"`
	// Type is a scalar's, or the full name of a message or enum.
	Type string `json:"type"`
	// Form is "list", "map by KEY" or nothing.
	Form       string `json:"form,omitempty"`
	Required   bool   `json:"required,omitempty"`
	Oneof      string `json:"oneof,omitempty"`
	Deprecated bool   `json:"deprecated,omitempty"`
	// Rules are options that narrow the values, with a hash of all of them.
	Rules string `json:"rules,omitempty"`
	Doc   string `json:"doc,omitempty"`
}

// Value is one value of an enum.
type Value struct {
	Name       string `json:"name"`
	Deprecated bool   `json:"deprecated,omitempty"`
	Doc        string `json:"doc,omitempty"`
}

// ErrForm is that a file is no lock, or not a whole one.
var ErrForm = errors.New("it is no lock that toolway lock has written; write it anew")

// Read reads a lock. A definition whose hash does not fit is an error: the file was changed by hand, or merged badly.
func Read(path string) (*File, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read lock: %w; write it with toolway lock", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read lock: %w", err)
	}
	f, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("read lock %q: %w", path, err)
	}
	return f, nil
}

// Parse reads a lock from its text.
func Parse(b []byte) (*File, error) {
	f := new(File)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrForm)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("there is more after the end: %w", ErrForm)
	}
	if f.Lock != version {
		return nil, fmt.Errorf("its form is version %d, this toolway knows %d: %w", f.Lock, version, ErrForm)
	}
	sums := map[string]map[string][32]byte{}
	for method, t := range f.Tools {
		if t == nil {
			return nil, fmt.Errorf("%s is empty: %w", method, ErrForm)
		}
		if sums[t.Backend] == nil {
			for name, typ := range f.Types[t.Backend] {
				if typ == nil {
					return nil, fmt.Errorf("type %s is empty: %w", name, ErrForm)
				}
			}
			sums[t.Backend] = map[string][32]byte{}
		}
		if t.hash(f.Types[t.Backend], sums[t.Backend]) != t.Hash {
			return nil, fmt.Errorf("the hash of %s does not fit its definition: the file was changed by hand or merged; write it anew with toolway lock", method)
		}
	}
	return f, nil
}

// hash hashes the tool with all types that it reaches; sums keeps the hashes of types. Where the tool is served from is not in it.
func (t *Tool) hash(types map[string]*Type, sums map[string][32]byte) string {
	own := *t
	own.Hash, own.Backend = "", ""
	h := sha256.New()
	h.Write(encode(own))
	for _, name := range reach(types, message(t.Request), message(t.Response)) {
		sum, ok := sums[name]
		if !ok {
			sum = sha256.Sum256(encode(types[name]))
			sums[name] = sum
		}
		fmt.Fprintf(h, "%s %x\n", name, sum)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// message is the name without "stream ".
func message(ref string) string { return strings.TrimPrefix(ref, "stream ") }

// reach returns the names of the types that the roots reach, sorted.
func reach(types map[string]*Type, roots ...string) []string {
	seen := map[string]bool{}
	for todo := roots; len(todo) > 0; {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		t := types[name]
		if t == nil || seen[name] {
			continue
		}
		seen[name] = true
		for _, f := range t.Fields {
			todo = append(todo, f.Type)
		}
	}
	out := make([]string, 0, len(seen))
	for name := range seen {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// encode writes v as one line of JSON, with characters as they are.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // of texts, numbers and truth values only
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Encode returns the file's text: JSON, sorted, a block for each tool and type and a line for each field, so that a diff shows what has changed.
func (f *File) Encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"lock\": %d,\n  \"tools\": {", f.Lock)
	each(&b, "    ", f.Tools, func(t *Tool) {
		var block bytes.Buffer
		_ = json.Indent(&block, encode(t), "    ", "  ") // encode writes valid JSON
		b.Write(block.Bytes())
	})
	b.WriteString("\n  },\n  \"types\": {")
	each(&b, "    ", f.Types, func(types map[string]*Type) {
		b.WriteString("{")
		each(&b, "      ", types, func(t *Type) { t.encode(&b) })
		b.WriteString("\n    }")
	})
	b.WriteString("\n  }\n}\n")
	return b.Bytes()
}

// each writes the members of an object in order.
func each[V any](b *bytes.Buffer, indent string, m map[string]V, write func(V)) {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, "\n%s%s: ", indent, encode(name))
		write(m[name])
	}
}

func (t *Type) encode(b *bytes.Buffer) {
	b.WriteString("{")
	comma := ""
	if t.Rules != "" {
		fmt.Fprintf(b, "\n        \"rules\": %s", encode(t.Rules))
		comma = ","
	}
	list := func(name string, lines [][]byte) {
		if len(lines) > 0 {
			fmt.Fprintf(b, "%s\n        %q: [\n          %s\n        ]", comma, name, bytes.Join(lines, []byte(",\n          ")))
			comma = ","
		}
	}
	list("fields", encodeAll(t.Fields))
	list("values", encodeAll(t.Values))
	if comma != "" {
		b.WriteString("\n      ")
	}
	b.WriteString("}")
}

func encodeAll[T any](items []T) [][]byte {
	out := make([][]byte, len(items))
	for i, v := range items {
		out[i] = encode(v)
	}
	return out
}
