package verify

import (
	"fmt"
	"io"
	"slices"

	"github.com/toolway/toolway/internal/catalog"
)

const maxExample = 2000

// Report is what was verified. Its JSON form is stable.
type Report struct {
	// Fit is true when there are no findings.
	Fit bool `json:"fit"`
	// Seed and Instances repeat the options, so that a report can be made again.
	Seed      uint64 `json:"seed"`
	Instances int    `json:"instances"`
	Totals    Totals `json:"totals"`
	// Views tell the cost of each list of tools that agents can be given.
	Views []View `json:"views"`
	// Tools are all tools by name, those without findings too.
	Tools []Tool `json:"tools"`
	// Findings are about what is no tool because it could not be served.
	Findings []catalog.Finding `json:"findings"`
}

// Totals sum up the tools.
type Totals struct {
	Tools             int `json:"tools"`
	ToolsWithFindings int `json:"toolsWithFindings"`
	// Bytes, EstimatedTokens and SchemaBytes are sums over all tools.
	Bytes           int `json:"bytes"`
	EstimatedTokens int `json:"estimatedTokens"`
	SchemaBytes     int `json:"schemaBytes"`
	// Arguments, Results and Routes are how many went there and back.
	Arguments int `json:"arguments"`
	Results   int `json:"results"`
	Routes    int `json:"routes"`
	// Unmade are arguments that were made but did not keep their own schema, and so say nothing: patterns and rules that the generator does
	// not follow.
	Unmade int `json:"unmade"`
}

// View is a list of tools and what it costs an agent to read it.
type View struct {
	Name            string `json:"name"`
	Tools           int    `json:"tools"`
	Bytes           int    `json:"bytes"`
	EstimatedTokens int    `json:"estimatedTokens"`
}

// Tool is one tool and what was found.
type Tool struct {
	Name    string `json:"name"`
	Method  string `json:"method"`
	Backend string `json:"backend"`
	// Bytes is the tool's entry in tools/list, and EstimatedTokens what a model reads it as; see [Tokens].
	Bytes             int `json:"bytes"`
	EstimatedTokens   int `json:"estimatedTokens"`
	InputSchemaBytes  int `json:"inputSchemaBytes"`
	OutputSchemaBytes int `json:"outputSchemaBytes"`
	Arguments         int `json:"arguments"`
	Results           int `json:"results"`
	Routes            int `json:"routes"`
	Unmade            int `json:"unmade"`
	// Findings are errors first.
	Findings []Finding `json:"findings"`
}

// Finding is one defect of a tool.
type Finding struct {
	// Code is stable and machine-readable, such as "arguments-refused".
	Code string `json:"code"`
	// Severity is that of catalog.Finding.
	Severity string `json:"severity"`
	// Where is the profile or route concerned; may be empty.
	Where string `json:"where,omitempty"`
	// Message says what is wrong, and Mend what to do about it.
	Message string `json:"message"`
	Mend    string `json:"mend"`
	// Example is what showed it: arguments, a result, a path.
	Example string `json:"example,omitempty"`
	// Count is how often it was seen.
	Count int `json:"count"`
}

// Tokens estimates how many tokens a model reads a text of so many bytes as: one for four bytes, which is about right for English and JSON
// in the tokenizers of today.
func Tokens(bytes int) int { return (bytes + 3) / 4 }

func (r *Report) sum() {
	r.Totals = Totals{Tools: len(r.Tools)}
	for _, t := range r.Tools {
		if len(t.Findings) > 0 {
			r.Totals.ToolsWithFindings++
		}
		r.Totals.Bytes += t.Bytes
		r.Totals.EstimatedTokens += t.EstimatedTokens
		r.Totals.SchemaBytes += t.InputSchemaBytes + t.OutputSchemaBytes
		r.Totals.Arguments += t.Arguments
		r.Totals.Results += t.Results
		r.Totals.Routes += t.Routes
		r.Totals.Unmade += t.Unmade
	}
	r.Views = []View{{Name: "all", Tools: r.Totals.Tools, Bytes: r.Totals.Bytes, EstimatedTokens: r.Totals.EstimatedTokens}}
	r.Fit = r.Totals.ToolsWithFindings == 0 && len(r.Findings) == 0
}

// unique finds tools that share a name.
func (r *Report) unique() {
	first := map[string]string{}
	for i := range r.Tools {
		t := &r.Tools[i]
		other, taken := first[t.Name]
		if !taken {
			first[t.Name] = t.Method
			continue
		}
		t.Findings = slices.Insert(t.Findings, 0, Finding{
			Code: "name-taken", Severity: catalog.SeverityError, Count: 1,
			Message: fmt.Sprintf("%s has the tool name of %s", t.Method, other), Mend: "set a prefix on one of the backends",
		})
	}
}

// Print writes one line for each thing that needs attention, and the totals.
func (r *Report) Print(w io.Writer) error {
	p := printer{w: w}
	for _, f := range r.Findings {
		p.printf("%s: %s: %s: %s\n", f.Severity, f.Backend, f.Code, f.Message)
	}
	for _, t := range r.Tools {
		if len(t.Findings) == 0 {
			continue
		}
		f := t.Findings[0]
		p.printf("%s: %s: %s", f.Severity, t.Name, f.Code)
		if f.Where != "" {
			p.printf(" (%s)", f.Where)
		}
		p.printf(": %s; %s", f.Message, f.Mend)
		if more := len(t.Findings) - 1; more > 0 {
			p.printf(" (and %d more, see --json)", more)
		}
		p.printf("\n")
	}
	for _, v := range r.Views {
		mean := 0
		if v.Tools > 0 {
			mean = v.EstimatedTokens / v.Tools
		}
		p.printf("view %s: %d tools, %d bytes in tools/list, about %d tokens (%d a tool, at 4 bytes a token)\n", v.Name, v.Tools, v.Bytes, v.EstimatedTokens, mean)
	}
	t := r.Totals
	p.printf("%d tools, %d with findings; %d bytes of schemas; %d arguments, %d results and %d routes went there and back; seed %d\n",
		t.Tools, t.ToolsWithFindings, t.SchemaBytes, t.Arguments, t.Results, t.Routes, r.Seed)
	return p.err
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
