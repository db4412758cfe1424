package gateway

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/toolschema"
)

// pathItem is one path of the document. OpenAPI calls two paths the same that differ in the names of their parameters alone, so the first
// template of a shape names them for all.
type pathItem struct {
	path       string
	names      []string // of the parameters, one for each wildcard
	operations object
}

// pathShape is equal for templates that match the same paths.
func pathShape(t *template) string {
	var b strings.Builder
	for _, s := range t.segments {
		b.WriteByte('/')
		if s.kind == literal {
			b.WriteString(s.text)
			continue
		}
		b.WriteString("{}")
	}
	return b.String() + ":" + t.verb
}

// newPathItem writes a template as OpenAPI wants it: a variable of several segments becomes its literals with one parameter for each wildcard.
func newPathItem(t *template) *pathItem {
	item := &pathItem{operations: object{}}
	var b strings.Builder
	used := map[string]bool{}
	for i, s := range t.segments {
		b.WriteByte('/')
		if s.kind == literal {
			b.WriteString(s.text)
			continue
		}
		name := unused(wildcardName(t, i), used)
		item.names = append(item.names, name)
		b.WriteString("{" + name + "}")
	}
	if t.verb != "" {
		b.WriteString(":" + t.verb)
	}
	item.path = b.String()
	return item
}

// wildcardName is the variable's own name where it covers one wildcard, else that of the collection before the wildcard.
func wildcardName(t *template, i int) string {
	v := variableAt(t, i)
	if v == nil {
		return "segment"
	}
	wild := 0
	for _, s := range t.segments[v.from:v.to] {
		if s.kind != literal {
			wild++
		}
	}
	if wild > 1 && i > v.from && t.segments[i-1].kind == literal {
		return v.path + "." + t.segments[i-1].text
	}
	return v.path
}

func variableAt(t *template, i int) *variable {
	for k := range t.vars {
		if v := &t.vars[k]; v.from <= i && i < v.to {
			return v
		}
	}
	return nil
}

func unused(name string, used map[string]bool) string {
	out := name
	for n := 2; used[out]; n++ {
		out = name + "_" + strconv.Itoa(n)
	}
	used[out] = true
	return out
}

// parameters describes the wildcards of t under the path's names.
func (p *pathItem) parameters(t *template) []object {
	var out []object
	for i, s := range t.segments {
		if s.kind == literal {
			continue
		}
		param := object{"name": p.names[len(out)], "in": "path", "required": true, "schema": object{"type": "string"}}
		if text := wildcardText(t, i); text != "" {
			param["description"] = text
		}
		out = append(out, param)
	}
	return out
}

func wildcardText(t *template, i int) string {
	v := variableAt(t, i)
	var text string
	switch {
	case v == nil:
		text = "Any value; it is not used."
	case v.to-v.from > 1:
		text = "Part of the field " + strconv.Quote(v.path) + ", which is " + strconv.Quote(variablePattern(t, v)) + "."
	default:
		text = "The field " + strconv.Quote(v.path) + "."
	}
	if t.segments[i].kind == deep {
		text += " It may hold slashes, or be empty."
	}
	return text
}

func variablePattern(t *template, v *variable) string {
	var parts []string
	for _, s := range t.segments[v.from:v.to] {
		switch s.kind {
		case single:
			parts = append(parts, "*")
		case deep:
			parts = append(parts, "**")
		default:
			parts = append(parts, s.text)
		}
	}
	return strings.Join(parts, "/")
}

const (
	maxQueryDepth = 3  // of the parameters that are listed; deeper ones are accepted all the same
	maxQueryList  = 60 // parameters listed for one route
)

// query describes the fields that neither path nor body sets.
func (b *apiBuilder) query(r *route) []object {
	if r.body == wholeBody {
		return nil
	}
	taken := map[string]bool{}
	for _, v := range r.template.vars {
		taken[v.path] = true
	}
	if r.bodyField != nil {
		taken[r.body] = true
	}
	var out []object
	b.queryFields(r.method.Desc.Input(), "", "", 1, taken, &out)
	return out
}

func (b *apiBuilder) queryFields(md protoreflect.MessageDescriptor, path, name string, depth int, taken map[string]bool, out *[]object) {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		p, n := path+string(fd.Name()), name+fd.JSONName()
		if taken[p] || fd.IsMap() || len(*out) >= maxQueryList {
			continue
		}
		if fd.Message() != nil && !scalarJSON(fd.Message()) {
			if !fd.IsList() && depth < maxQueryDepth && !strings.HasPrefix(string(fd.Message().FullName()), "google.protobuf.") {
				b.queryFields(fd.Message(), p+".", n+".", depth+1, taken, out)
			}
			continue
		}
		*out = append(*out, object{"name": n, "in": "query", "schema": b.schemas.field(fd, toolschema.Input)})
	}
}

// scalarJSON says whether a message's JSON is a string, number or boolean, so that it can stand in a query.
func scalarJSON(md protoreflect.MessageDescriptor) bool {
	name := string(md.FullName())
	switch name {
	case "google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask":
		return true
	}
	return strings.HasPrefix(name, "google.protobuf.") && strings.HasSuffix(name, "Value") && name != "google.protobuf.Value" && name != "google.protobuf.ListValue"
}
