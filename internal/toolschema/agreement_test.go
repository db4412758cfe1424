package toolschema_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// eachSet runs f for every set of the corpus in parallel, as many at once as there are processors.
func eachSet(t *testing.T, f func(t *testing.T, files *protoregistry.Files)) {
	t.Helper()
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, path := range corpus(t) {
		name, _ := filepath.Rel(corpusDir(t), path)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			files, _ := load(t, path)
			f(t, files)
		})
	}
}

func mustCompile(t *testing.T, schema []byte) *jsonschema.Schema {
	t.Helper()
	s, err := compile(schema)
	if err != nil {
		t.Fatalf("compile %s: %v", schema, err)
	}
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, doc []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		t.Fatalf("parse %s: %v", doc, err)
	}
	return s.Validate(v)
}

// wrap puts a JSON form that is no object where the schema has it, as the MCP door does.
func wrap(md protoreflect.MessageDescriptor, doc []byte) []byte {
	if toolschema.Wrapped(md) {
		return append(append([]byte(`{"value":`), doc...), '}')
	}
	return doc
}

// TestWritten writes random messages of every corpus type with the transcoder: the output schemas accept the result.
func TestWritten(t *testing.T) {
	eachSet(t, func(t *testing.T, files *protoregistry.Files) {
		codecs := transcode.NewSet(dynamicpb.NewTypes(files))
		n, stride := -1, 3*every(t, 3)
		for i, s := range shapes(files) {
			if s.dir != toolschema.Output {
				continue
			}
			if n++; n%stride > 1 {
				continue
			}
			r := newRandomizer(uint64(i))
			portable := toolschema.For(s.md, toolschema.Options{Direction: toolschema.Output})
			full := toolschema.For(s.md, toolschema.Options{Direction: toolschema.Output, Profile: toolschema.Full})
			schemas := []*jsonschema.Schema{mustCompile(t, portable), mustCompile(t, full)}
			for range 3 {
				wire, err := proto.MarshalOptions{AllowPartial: true}.Marshal(r.top(s.md))
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range []transcode.WriteOptions{{}, {EmitDefaults: true}} {
					doc, err := codecs.Message(s.md).AppendJSON(nil, wire, o)
					if err != nil {
						t.Fatalf("write random %s: %v", s.md.FullName(), err)
					}
					for _, schema := range schemas {
						if err := validate(t, schema, wrap(s.md, doc)); err != nil {
							t.Errorf("output schema of %s refuses what is written: %v\n%s\nportable %s\nfull %s", s.md.FullName(), err, doc, portable, full)
							return
						}
					}
				}
			}
		}
	})
}

// TestAccepted makes instances from every input schema: the transcoder accepts them.
func TestAccepted(t *testing.T) {
	eachSet(t, func(t *testing.T, files *protoregistry.Files) {
		codecs := transcode.NewSet(dynamicpb.NewTypes(files))
		made, tried := 0, 0
		n, stride := -1, 3*every(t, 3)
		for i, s := range shapes(files) {
			if s.dir != toolschema.Input {
				continue
			}
			if n++; n%stride > 1 {
				continue
			}
			for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full, toolschema.Strict} {
				kept, err := accepted(t, codecs, s.md, p, uint64(i))
				made, tried = made+kept, tried+3
				if err != nil {
					t.Error(err)
				}
			}
		}
		if made < tried*8/10 {
			t.Errorf("only %d of %d instances keep their schema", made, tried)
		}
	})
}

// accepted makes three instances and returns how many of them the schema accepts, and an error if the transcoder refuses one of these.
func accepted(t *testing.T, codecs *transcode.Set, md protoreflect.MessageDescriptor, p toolschema.Profile, seed uint64) (made int, err error) {
	t.Helper()
	schema := toolschema.For(md, toolschema.Options{Profile: p})
	compiled := mustCompile(t, schema)
	var parsed map[string]any
	if err := json.Unmarshal(schema, &parsed); err != nil {
		t.Fatal(err)
	}
	g := instances{r: newRandomizer(seed), root: parsed}
	for range 3 {
		g.r.left = 300 // values in one instance
		doc, err := json.Marshal(g.of(parsed))
		if err != nil {
			t.Fatal(err)
		}
		if validate(t, compiled, doc) != nil {
			continue // a pattern of the contract, for which the test makes no text
		}
		made++
		args := doc
		if toolschema.Wrapped(md) {
			var w map[string]json.RawMessage
			if err := json.Unmarshal(doc, &w); err != nil {
				t.Fatal(err)
			}
			args = w[toolschema.WrapperKey]
			if p == toolschema.Strict && args == nil {
				continue // free JSON, which strict cannot say
			}
		}
		if _, err := codecs.Message(md).AppendWire(nil, args, transcode.ReadOptions{}); err != nil {
			return made, fmt.Errorf("the transcoder refuses what the %v schema of %s accepts: %w\n%s\n%s", p, md.FullName(), err, doc, schema)
		}
	}
	return made, nil
}
