package catalog_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolway/toolway/internal/catalog"
)

// figures of a set as a file source serves it: services, methods, tools and routes without infrastructure, and the codes of the findings.
type figures struct {
	services, methods, tools, routes int
	codes                            string
}

var wantFigures = map[string]figures{
	"prometheus-remote.binpb":             {},
	"protobuf-conformance-loadable.binpb": {},
	"protovalidate-conformance.binpb":     {},
	"cel.binpb":                           {1, 3, 3, 0, ""},
	"connect-conformance.binpb":           {1, 6, 6, 0, ""},
	"consul-reversed.binpb":               {6, 16, 16, 0, ""},
	"consul.binpb":                        {6, 16, 16, 0, ""},
	"containerd-api.binpb":                {20, 133, 133, 0, "tool-clash"},
	"cri.binpb":                           {2, 43, 43, 0, ""},
	"csi-noimports.binpb":                 {5, 36, 36, 0, ""},
	"etcd-duplicated.binpb":               {8, 49, 49, 51, ""},
	"etcd.binpb":                          {8, 49, 49, 51, ""},
	"gnmi.binpb":                          {3, 8, 8, 0, ""},
	"go-protobuf-testprotos.binpb":        {3, 4, 4, 0, ""},
	"googleapis-aiplatform-v1.binpb":      {35, 350, 350, 374, ""},
	"googleapis-conversational.binpb":     {61, 414, 414, 571, ""},
	"googleapis-core.binpb":               {65, 610, 610, 837, "resource-invalid route-clash"},
	"grpc-core.binpb":                     {16, 37, 37, 0, ""},
	"grpc-gateway-examples.binpb":         {27, 118, 118, 135, "route-clash"},
	"jaeger-truncated.binpb":              {1, 1, 1, 1, "set-truncated"},
	"jaeger.binpb":                        {9, 26, 26, 19, "tool-clash"},
	"livekit-nojsonname.binpb":            {30, 152, 152, 0, "tool-clash"},
	"otlp.binpb":                          {4, 4, 4, 0, ""},
	"otlp.bufimage.binpb":                 {4, 4, 4, 0, ""},
	"otlp.bufimage.json.gz":               {4, 4, 4, 0, ""},
	"otlp.bufimage.txtpb.gz":              {4, 4, 4, 0, ""},
	"protobuf-conformance.binpb":          {0, 0, 0, 0, "file-dropped"},
	"qdrant-nosourceinfo.binpb":           {4, 49, 49, 0, ""},
	"qdrant.binpb":                        {4, 49, 49, 0, ""},
	"temporal-api-noimports.binpb":        {2, 134, 134, 226, "import-missing"},
	"temporal-api.binpb":                  {2, 134, 134, 226, ""},
	"triton.binpb":                        {1, 20, 20, 0, ""},
	"vault-sdk.binpb":                     {9, 50, 50, 0, ""},
	"vitess.binpb":                        {9, 328, 328, 0, ""},
}

// TestCorpus loads every shared set as `--descriptors NAME=FILE` does.
func TestCorpus(t *testing.T) {
	name := regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,47}$`)
	for _, path := range corpusFiles(t) {
		base := filepath.Base(path)
		t.Run(base, func(t *testing.T) {
			s, err := catalog.ReadFile("corpus", path)
			if err != nil {
				t.Fatalf("ReadFile(%q) = %v", path, err)
			}
			totals := catalog.Check(s).Totals
			got := figures{totals.Services, totals.Methods, totals.Tools, totals.Routes, codesOf(s)}
			if want, known := wantFigures[base]; got != want || !known {
				t.Errorf("figures of %q = %+v, want %+v", base, got, want)
			}
			seen := map[string]bool{}
			for _, m := range s.Tools() {
				if !name.MatchString(m.Tool.Name) || seen[m.Tool.Name] {
					t.Errorf("tool name %q of %s is bad or not unique", m.Tool.Name, m.FullMethod)
				}
				seen[m.Tool.Name] = true
				if m.Tool.Title == "" || m.Tool.Description == "" || utf8.RuneCountInString(m.Tool.Description) > catalog.MaxDescription {
					t.Errorf("%s: title %q, description %q", m.FullMethod, m.Tool.Title, m.Tool.Description)
				}
				if !strings.Contains(m.Tool.Description, string(m.Desc.FullName())) {
					t.Errorf("%s: the description does not name it: %q", m.FullMethod, m.Tool.Description)
				}
				if s.Tool(m.Tool.Name) != m {
					t.Errorf("Tool(%q) is another method", m.Tool.Name)
				}
				if m.Tool.Hints.ReadOnly && m.Tool.Hints.Destructive {
					t.Errorf("%s is read-only and destructive", m.FullMethod)
				}
			}
			if !slices.IsSorted(toolNames(s)) {
				t.Errorf("tools are not sorted by name")
			}
			again, err := catalog.ReadFile("corpus", path)
			if err != nil || again.Version() != s.Version() {
				t.Errorf("loaded again, the versions differ (%v)", err)
			}
		})
	}
}

func TestSetOrderDoesNotMatter(t *testing.T) {
	a, err := catalog.ReadFile("x", filepath.Join(corpus, "consul.binpb"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := catalog.ReadFile("x", filepath.Join(corpus, "variants/consul-reversed.binpb"))
	if err != nil {
		t.Fatal(err)
	}
	if a.Version() != b.Version() {
		t.Errorf("versions of consul and consul-reversed differ")
	}
}

// TestImageForms compares one set in all forms.
func TestImageForms(t *testing.T) {
	want, err := catalog.ReadFile("x", filepath.Join(corpus, "variants/otlp.bufimage.binpb"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"otlp.bufimage.json.gz", "otlp.bufimage.txtpb.gz"} {
		got, err := catalog.ReadFile("x", filepath.Join(corpus, "variants", name))
		if err != nil {
			t.Errorf("ReadFile(%q) = %v", name, err)
			continue
		}
		if got.ToolsVersion() != want.ToolsVersion() {
			t.Errorf("%s and the binary image differ: tools %v and %v", name, toolNames(got), toolNames(want))
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, path := range corpusFiles(b) {
		b.Run(filepath.Base(path), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := catalog.ReadFile("x", path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkToolsVersion(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		s, err := catalog.ReadFile("x", filepath.Join(corpus, "googleapis-core.binpb"))
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		s.ToolsVersion()
	}
}
