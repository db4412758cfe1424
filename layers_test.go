package toolway_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/toolway/toolway/"

// layers is DESIGN's table. A package imports only packages of lower layers, never a sibling.
var layers = map[string]int{
	"gen":                      0,
	"internal/apart":           0,
	"internal/buffer":          0,
	"internal/hangup":          0,
	"internal/nearmiss":        0,
	"internal/origin":          0,
	"internal/relay":           0,
	"internal/jwks":            0,
	"internal/transcode":       1,
	"internal/toolschema":      1,
	"internal/store":           1,
	"internal/object":          1,
	"interceptors/backendauth": 1,
	"internal/audit":           2,
	"internal/dial":            2,
	"internal/identity":        2,
	"internal/catalog":         3,
	"internal/call":            4,
	"internal/rules":           4,
	"internal/search":          4,
	"internal/verify":          4,
	"internal/suggest":         4,
	"internal/lock":            4,
	"interceptors":             5,
	"internal/backend":         5,
	"internal/task":            5,
	"internal/proxy":           6,
	"mcpadapter":               6,
	"gateway":                  6,
	"internal/durable":         6,
	"internal/meshapi":         6,
	"internal/mesh":            7,
	"cmd/toolway":              8,
}

// only says which module may be imported by one package alone: what it knows, nobody else does.
var only = map[string]string{
	"github.com/modelcontextprotocol/go-sdk": "mcpadapter",
	"github.com/spf13/cobra":                 "cmd/toolway",
	"go.yaml.in/yaml":                        "internal/mesh",
	"github.com/nats-io":                     "internal/store",
	"github.com/blevesearch/bleve":           "internal/search",
}

// forbidden imports, with the remedy.
var forbidden = map[string]string{
	"github.com/golang/protobuf": "use google.golang.org/protobuf",
	"log":                        "use the *slog.Logger that you were given",
	"math/rand":                  "use math/rand/v2",
	"io/ioutil":                  "use io and os",
}

func TestLayers(t *testing.T) {
	for pkg, files := range packages(t) {
		layer, known := layerOf(pkg)
		if !known {
			t.Errorf("package %s is in no layer: add it to the table in layers_test.go and in docs/design.md", pkg)
			continue
		}
		for file, imports := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, imp := range imports {
				if remedy, bad := forbidden[imp]; bad {
					t.Errorf("%s imports %q: %s", file, imp, remedy)
				}
				for prefix, owner := range only {
					if strings.HasPrefix(imp, prefix) && !under(pkg, owner) {
						t.Errorf("%s imports %q, which only %s may know: ask for what you need through an interface", file, imp, owner)
					}
				}
				dep, ours := strings.CutPrefix(imp, module)
				if !ours || under(dep, pkg) || under(pkg, dep) { // a command below a package belongs to it
					continue
				}
				if l, ok := layerOf(dep); !ok || l >= layer {
					t.Errorf("%s (%s, layer %d) imports %s (layer %d): a package imports only lower layers, never a sibling; declare a small interface where you need it, or move what both need down", file, pkg, layer, dep, l)
				}
			}
		}
	}
}

// inits are the init functions that there must be, with the reason.
var inits = map[string]string{
	"internal/dial/endpoint.go": "grpc-go takes a balancing policy only through its registry, which may only be written while the program initialises",
}

func TestPackagesKeepNoInit(t *testing.T) {
	for _, files := range packages(t) {
		for file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(src), "\nfunc init() {") && inits[filepath.ToSlash(file)] == "" {
				t.Errorf("%s has an init function: nothing registers itself; construct it where it is needed", file)
			}
		}
	}
}

// packages returns, by package folder, the imports of each hand-written file of the root module.
func packages(t *testing.T) map[string]map[string][]string {
	t.Helper()
	out := map[string]map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path == "." {
				return nil
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata" || path == "gen" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || !strings.Contains(path, string(filepath.Separator)) {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(path))
		if out[pkg] == nil {
			out[pkg] = map[string][]string{}
		}
		for _, imp := range f.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			out[pkg][path] = append(out[pkg][path], p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 5 {
		t.Fatalf("found only %d packages; the walk is broken", len(out))
	}
	return out
}

// layerOf finds the layer of the package or of the nearest folder above it that has one.
func layerOf(pkg string) (int, bool) {
	for p := pkg; p != "." && p != "/"; p = filepath.ToSlash(filepath.Dir(p)) {
		if l, ok := layers[p]; ok {
			return l, true
		}
	}
	return 0, false
}

func under(pkg, parent string) bool { return pkg == parent || strings.HasPrefix(pkg, parent+"/") }
