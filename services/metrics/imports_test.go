package metrics_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Of Prometheus, the engine and its models are linked, not the database: that would bring three clouds' SDKs.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	engine := false
	for pkg := range strings.Lines(string(out)) {
		pkg = strings.TrimSpace(pkg)
		engine = engine || pkg == "github.com/prometheus/prometheus/promql"
		for _, bad := range []string{"github.com/aws/", "github.com/Azure/", "cloud.google.com/", "google.golang.org/api/", "k8s.io/"} {
			if strings.HasPrefix(pkg, bad) {
				t.Errorf("%s is linked; find what imports it with go mod why, and do without", pkg)
			}
		}
		if pkg == "github.com/prometheus/prometheus/tsdb" {
			t.Errorf("%s is linked; use promql, storage and model alone", pkg)
		}
	}
	if !engine {
		t.Error("the PromQL engine is not linked: this test looks at the wrong program")
	}
}
