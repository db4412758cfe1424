package verify

import (
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
)

// ours is the mend of what no contract can be blamed for.
const ours = "no contract should be able to cause this: report it to Toolway with the output of --json"

var nameForm = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]*$`)

// words checks what the tool is called and how it is described.
func (v *subject) words() {
	t := v.m.Tool
	if !nameForm.MatchString(t.Name) || len(t.Name) > catalog.MaxToolName {
		v.find(Finding{Code: "name-invalid", Severity: catalog.SeverityError,
			Message: fmt.Sprintf("tool name %q is not [a-zA-Z][a-zA-Z0-9_-]* of at most %d characters", t.Name, catalog.MaxToolName),
			Mend:    "set the tool_name option (toolway.v1) to one that is"})
	}
	const most = 1024
	if n := utf8.RuneCountInString(t.Description); n == 0 || n > most || !utf8.ValidString(t.Description) {
		v.find(Finding{Code: "description-invalid", Severity: catalog.SeverityError,
			Message: fmt.Sprintf("the description has %d characters, want 1 to %d of valid UTF-8", n, most), Mend: "write a comment on the method"})
	}
}

// sizes checks the schemas as such: their size, and the rules of each profile.
func (v *subject) sizes() {
	t := v.tool
	t.Bytes = len(v.o.Entry(v.m))
	t.EstimatedTokens = Tokens(t.Bytes)
	t.InputSchemaBytes = len(v.o.Schema(v.m, toolschema.Input, toolschema.Portable))
	t.OutputSchemaBytes = len(v.o.Schema(v.m, toolschema.Output, toolschema.Portable))
	for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full, toolschema.Strict} {
		for _, d := range []toolschema.Direction{toolschema.Input, toolschema.Output} {
			if p == toolschema.Strict && d == toolschema.Output {
				continue // it is that of full
			}
			schema := v.o.Schema(v.m, d, p)
			if len(schema) > toolschema.DefaultMaxBytes {
				v.find(Finding{Code: "schema-too-large", Severity: catalog.SeverityError, Where: where(d, p),
					Message: fmt.Sprintf("the schema has %d bytes, the budget is %d", len(schema), toolschema.DefaultMaxBytes), Mend: ours})
			}
			for _, problem := range toolschema.Problems(schema, p, d) {
				v.find(Finding{Code: "schema-problem", Severity: catalog.SeverityWarning, Where: where(d, p), Message: problem, Mend: ours})
			}
		}
	}
}

func where(d toolschema.Direction, p toolschema.Profile) string {
	if d == toolschema.Input {
		return p.String() + " input schema"
	}
	return p.String() + " output schema"
}
