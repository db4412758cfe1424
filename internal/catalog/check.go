package catalog

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Report says whether a contract is fit to be tools. Its JSON form is stable.
type Report struct {
	// Fit is true when there are no findings.
	Fit      bool      `json:"fit"`
	Totals   Totals    `json:"totals"`
	Findings []Finding `json:"findings"`
}

// Totals count what a snapshot serves of backends.
type Totals struct {
	Backends int `json:"backends"`
	Services int `json:"services"`
	Methods  int `json:"methods"`
	Tools    int `json:"tools"`
	Routes   int `json:"routes"`
	// Fields and FieldsWithoutComment count the request fields that the contract itself defines.
	Fields               int `json:"fields"`
	FieldsWithoutComment int `json:"fieldsWithoutComment"`
}

// Check reports everything that was left out or repaired when s was built, and what makes its methods poor tools: no comments, names that
// were cut, writes that do not say what repeating them does. more adds findings of the caller's own for a method, such as problems of its schemas.
// What the mesh itself answers is neither judged nor counted.
func Check(s *Snapshot, more ...func(*Method) []Finding) Report {
	r := Report{Findings: slices.Clone(s.findings), Totals: Totals{Tools: len(s.tools)}}
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	for _, b := range s.backends {
		if compiledIn(s, b) {
			continue
		}
		r.Totals.Backends++
		if b.contract != nil && len(b.contract.services) == 0 && !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Backend == b.Name }) {
			r.find(b, "service-none", b.Name, "the descriptors of %q define no service, so there are no tools; give those of the files with the services", b.Name)
		}
	}
	seen := map[protoreflect.FullName]bool{}
	for _, svc := range s.services {
		if svc.Infrastructure || svc.Mesh {
			continue
		}
		r.Totals.Services++
		fields, bare := 0, 0
		for _, m := range svc.Methods {
			r.Totals.Methods++
			r.Totals.Routes += len(m.Bindings)
			r.method(m)
			for _, find := range more {
				for _, f := range find(m) {
					f.Backend = m.Backend.Name
					r.Findings = append(r.Findings, f)
				}
			}
			n, b := countFields(m.Desc.Input(), seen)
			fields, bare = fields+n, bare+b
		}
		if bare > 0 {
			r.find(svc.Backend, "field-comment-missing", string(svc.Desc.FullName()),
				"%d of %d request fields that service %s brings have no comment; say in one what agents must put there", bare, fields, svc.Desc.FullName())
		}
		r.Totals.Fields += fields
		r.Totals.FieldsWithoutComment += bare
	}
	r.Fit = len(r.Findings) == 0
	return r
}

// compiledIn says whether the backend has nothing but what the mesh itself answers.
func compiledIn(s *Snapshot, b *Backend) bool {
	found := false
	for _, svc := range s.services {
		if svc.Backend != b {
			continue
		}
		if found = svc.Infrastructure || svc.Mesh; !found {
			return false
		}
	}
	return found
}

func (r *Report) method(m *Method) {
	name := string(m.Desc.FullName())
	if !m.commented {
		r.find(m.Backend, "comment-missing", name, "method %s has no comment, so agents read a generated sentence; say in a comment what it does and when to use it, or give its descriptors with source info (protoc --include_source_info)", name)
	}
	if m.cut {
		r.find(m.Backend, "name-cut", m.Tool.Name, "the tool name of %s is longer than %d characters and was cut to %q; set the tool_name option (toolway.v1) to a short one", name, MaxToolName, m.Tool.Name)
	}
	if m.annotated == noEvidence {
		r.find(m.Backend, "write-unannotated", name, "method %s does not say whether it writes or may be repeated, so agents are told that it is destructive; set idempotency_level, or the options of toolway.v1", name)
	}
}

func (r *Report) find(b *Backend, code, subject, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Code: code, Severity: SeverityWarning, Backend: b.Name, Subject: subject, Message: fmt.Sprintf(format, args...)})
}

// countFields counts the fields that md reaches, and those without a comment, each message once. Well-known types are not counted.
func countFields(md protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) (fields, bare int) {
	for todo := []protoreflect.MessageDescriptor{md}; len(todo) > 0; {
		md, todo = todo[len(todo)-1], todo[:len(todo)-1]
		if seen[md.FullName()] {
			continue
		}
		seen[md.FullName()] = true
		counted := !md.IsMapEntry() && md.ParentFile().Package() != "google.protobuf"
		locs := md.ParentFile().SourceLocations()
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			if m := fd.Message(); m != nil {
				todo = append(todo, m)
			}
			if !counted {
				continue
			}
			fields++
			if loc := locs.ByDescriptor(fd); loc.LeadingComments == "" && loc.TrailingComments == "" {
				bare++
			}
		}
	}
	return fields, bare
}
