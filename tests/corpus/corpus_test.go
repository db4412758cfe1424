// Package corpus_test runs the built binary on every descriptor set of the shared corpus: sets of public APIs that nobody here wrote, and
// damaged variants of them.
package corpus_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/tests/internal/run"
)

// damaged is cut off in the middle of a file: what comes before is served, and check owes it an error.
const damaged = "jaeger-truncated.binpb"

// infrastructure is how many methods of a set are no tools, because their service is one of gRPC's own, which the mesh itself answers.
// All methods of all other sets are tools.
var infrastructure = map[string]int{
	"grpc-core.binpb": 12,
	"triton.binpb":    1,
}

func sets(t *testing.T) []string {
	t.Helper()
	dir, err := run.Descriptors("")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, pattern := range []string{"*.binpb", "variants/*.binpb", "variants/*.gz"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 30 {
		t.Fatalf("only %d descriptor sets in %q", len(files), dir)
	}
	return files
}

// methods counts the methods that a set declares, by reading nothing but the raw descriptors. ok is false for what is not a binary set.
func methods(t *testing.T, file string) (n int, ok bool) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if !strings.HasSuffix(file, ".binpb") || proto.Unmarshal(b, &set) != nil {
		return 0, false
	}
	seen := map[string]bool{}
	for _, f := range set.GetFile() {
		if seen[f.GetName()] {
			continue
		}
		seen[f.GetName()] = true
		for _, s := range f.GetService() {
			n += len(s.GetMethod())
		}
	}
	return n, true
}

func TestCheck(t *testing.T) {
	bin, err := run.Plain()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range sets(t) {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr, err := run.Output(nil, bin, "check", "--json", file)
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			if code != 0 && code != 1 || name == damaged && code == 0 {
				t.Errorf("exit code %d\n%s", code, stderr)
			}
			if bytes.Contains(stderr, []byte("panic")) || bytes.Contains(stderr, []byte("DATA RACE")) {
				t.Errorf("standard error:\n%s", stderr)
			}
			var report struct {
				Fit      *bool
				Findings []struct{ Severity, Message string }
			}
			if err := json.Unmarshal(stdout, &report); err != nil || report.Fit == nil || *report.Fit != (code == 0) {
				t.Errorf("exit code %d; the report does not say so: %v\n%.500s", code, err, stdout)
			}
			if name == damaged && (len(report.Findings) == 0 || report.Findings[0].Severity != "error") {
				t.Errorf("findings = %+v, want an error first", report.Findings)
			}
			again, text, stderr, err := run.Output(nil, bin, "check", file)
			if err != nil || again != code || len(text)+len(stderr) == 0 {
				t.Errorf("without --json: exit code %d, %v, want %d and a word\n%s%s", again, err, code, text, stderr)
			}
		})
	}
}

func TestCheckOfWhatIsNoSet(t *testing.T) {
	t.Parallel()
	bin, err := run.Plain()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"empty.binpb": "", "text.binpb": "this is no descriptor set", "json.json": `{"file":[{"name":1}]}`, "zeros.binpb": strings.Repeat("\x00", 1000), "missing": ""} {
		file := filepath.Join(dir, name)
		if name != "missing" {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code, stdout, stderr, err := run.Output(nil, bin, "check", "--json", file)
		if err != nil || code != 2 {
			t.Errorf("%s: exit code %d, %v, want 2\n%s", name, code, err, stderr)
		}
		if !json.Valid(stdout) {
			t.Errorf("%s: the report is no JSON: %.300q", name, stdout)
		}
	}
}

func TestList(t *testing.T) {
	bin, err := run.Plain()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range sets(t) {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			declared, binary := methods(t, file)
			code, stdout, stderr, err := run.Output(nil, bin, "tools", "list", "--json", "--descriptors", "set="+file)
			if err != nil || bytes.Contains(stderr, []byte("panic")) {
				t.Fatalf("%v\n%s", err, stderr)
			}
			if code != 0 {
				t.Fatalf("exit code %d\n%s", code, stderr)
			}
			var list struct {
				Tools []struct {
					Name, Description string
					InputSchema       struct{ Type string }
					OutputSchema      struct{ Type string }
					Annotations       map[string]bool
				}
			}
			if err := json.Unmarshal(stdout, &list); err != nil {
				t.Fatalf("%v\n%.300s", err, stdout)
			}
			seen := map[string]bool{}
			for _, tool := range list.Tools {
				if seen[tool.Name] {
					t.Errorf("tool %q is listed twice", tool.Name)
				}
				seen[tool.Name] = true
				if tool.Name == "" || len(tool.Name) > 48 || tool.Description == "" || tool.InputSchema.Type != "object" || tool.OutputSchema.Type != "object" || len(tool.Annotations) != 4 {
					t.Errorf("tool %q: description %.50q, schemas %q and %q, annotations %v", tool.Name, tool.Description, tool.InputSchema.Type, tool.OutputSchema.Type, tool.Annotations)
				}
			}
			if want := declared - infrastructure[name]; binary && len(list.Tools) != want {
				t.Errorf("%d of %d methods are tools, want %d\n%s", len(list.Tools), declared, want, stderr)
			}
		})
	}
}
