// Package verify proves that tools work: for each, it derives the schemas, makes arguments that the input schema accepts and results as a
// server may answer them, sends both through the real codec and back, and checks what agents get to see besides: names, sizes, the rules of
// model APIs, HTTP routes.
//
// A finding is a defect. What a schema says only in words (see words.go) is kept by the arguments that are made, as an agent that reads
// would keep it.
package verify

import (
	"cmp"
	"context"
	"hash/fnv"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// DefaultInstances is how many random instances are made of each schema, besides those that cover it.
const DefaultInstances = 8

// Options say how to verify. The zero value is fine.
type Options struct {
	// Seed of everything that is random: the same seed gives the same report.
	Seed uint64
	// Instances are the random instances of each schema and message, besides those that cover every value of it once. Default
	// DefaultInstances; negative means none.
	Instances int
	// Parallel is how many tools are verified at once. Default: as many as there are processors.
	Parallel int
	// Entry returns a tool as tools/list has it; it is what sizes are told of. Default: title, description and both schemas, one after another.
	Entry func(*catalog.Method) []byte
	// Schema returns the schema to verify. Default: the method's own.
	Schema func(*catalog.Method, toolschema.Direction, toolschema.Profile) []byte

	codec func(*transcode.Message) codec
}

// codec is what is verified of a *transcode.Message.
type codec interface {
	AppendWire(dst, src []byte, o transcode.ReadOptions) ([]byte, error)
	AppendJSON(dst, wire []byte, o transcode.WriteOptions) ([]byte, error)
	AppendCanonical(dst, wire []byte) ([]byte, error)
	Check(wire []byte) error
	AppendParam(dst []byte, path string, values []string) ([]byte, error)
	AppendFieldWire(dst []byte, name string, src []byte, o transcode.ReadOptions) ([]byte, error)
	AppendFieldJSON(dst []byte, name string, wire []byte, o transcode.WriteOptions) ([]byte, error)
}

func (o Options) withDefaults() Options {
	if o.Instances == 0 {
		o.Instances = DefaultInstances
	}
	o.Instances = max(o.Instances, 0)
	if o.Parallel <= 0 {
		o.Parallel = runtime.GOMAXPROCS(0)
	}
	if o.Schema == nil {
		o.Schema = func(m *catalog.Method, d toolschema.Direction, p toolschema.Profile) []byte {
			if d == toolschema.Input {
				return m.InputSchema(p)
			}
			return m.OutputSchema(p)
		}
	}
	if o.Entry == nil {
		o.Entry = func(m *catalog.Method) []byte {
			return slices.Concat([]byte(m.Tool.Title), []byte(m.Tool.Description), o.Schema(m, toolschema.Input, toolschema.Portable), o.Schema(m, toolschema.Output, toolschema.Portable))
		}
	}
	if o.codec == nil {
		o.codec = func(m *transcode.Message) codec { return m }
	}
	return o
}

// Run verifies every tool of s, several at once. When ctx ends, it returns what is known by then with ctx's error.
func Run(ctx context.Context, s *catalog.Snapshot, o Options) (*Report, error) {
	o = o.withDefaults()
	tools := s.Tools()
	r := &Report{Seed: o.Seed, Instances: o.Instances, Findings: unserved(s), Tools: make([]Tool, len(tools))}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(o.Parallel, len(tools)) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(tools) {
					return
				}
				r.Tools[i] = verify(ctx, tools[i], o)
			}
		})
	}
	workers.Wait()
	if err := ctx.Err(); err != nil {
		r.Tools = slices.DeleteFunc(r.Tools, func(t Tool) bool { return t.Name == "" })
		r.sum()
		return r, err
	}
	r.unique()
	r.sum()
	return r, nil
}

// unserved returns what the catalog could not serve: it is no tool, so it cannot be verified.
func unserved(s *catalog.Snapshot) []catalog.Finding {
	out := []catalog.Finding{}
	for _, f := range s.Findings() {
		if f.Severity == catalog.SeverityError || strings.HasPrefix(f.Code, "tool-") || strings.HasPrefix(f.Code, "route-") {
			out = append(out, f)
		}
	}
	return out
}

// subject is one tool while it is verified.
type subject struct {
	m    *catalog.Method
	o    Options
	seed uint64
	ctx  context.Context
	tool *Tool
	any  []string
	seen map[string]int // findings by code and where
}

func verify(ctx context.Context, m *catalog.Method, o Options) Tool {
	h := fnv.New64a()
	h.Write([]byte(m.FullMethod))
	t := Tool{Name: m.Tool.Name, Method: strings.TrimPrefix(m.FullMethod, "/"), Backend: m.Backend.Name, Findings: []Finding{}}
	v := &subject{m: m, o: o, seed: o.Seed ^ h.Sum64(), ctx: ctx, tool: &t, any: anyTypes(m), seen: map[string]int{}}
	v.words()
	v.sizes()
	for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full, toolschema.Strict} {
		v.arguments(p)
	}
	v.results()
	v.routes()
	slices.SortStableFunc(t.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Code, b.Code))
	})
	return t
}

// anyTypes returns messages that an Any may hold: those of the method itself, and a type with a JSON form of its own.
func anyTypes(m *catalog.Method) []string {
	var out []string
	for _, md := range []protoreflect.MessageDescriptor{m.Desc.Input(), m.Desc.Output()} {
		if name := string(md.FullName()); !strings.HasPrefix(name, "google.protobuf.") && !slices.Contains(out, name) && md.RequiredNumbers().Len() == 0 {
			out = append(out, name)
		}
	}
	if d, err := m.Backend.Files.FindDescriptorByName(anyDuration); err == nil {
		if _, ok := d.(protoreflect.MessageDescriptor); ok {
			out = append(out, anyDuration)
		}
	}
	if len(out) == 0 {
		out = append(out, anyAny)
	}
	return out
}

// find adds a finding, once for each code and place; further ones are counted.
func (v *subject) find(f Finding) {
	key := f.Code + " " + f.Where
	if i, known := v.seen[key]; known {
		v.tool.Findings[i].Count++
		return
	}
	f.Count = 1
	f.Example = cut(f.Example, maxExample)
	v.seen[key] = len(v.tool.Findings)
	v.tool.Findings = append(v.tool.Findings, f)
}
