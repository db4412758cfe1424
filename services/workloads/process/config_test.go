package process_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolway/toolway/services/workloads/process"
)

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workloads.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`
workloads:
  - name: web
    command: [python3, -m, http.server, "${PORT}"]
    replicas: 2
    port: 8000
    env: {MODE: demo}
    ready: {http: "http://127.0.0.1:${PORT}/", after: 2s}
    grace: 1m30s
    labels: {tier: front}
`)
	list, err := process.Load(path)
	if err != nil || len(list) != 1 {
		t.Fatalf("Load = %v, %v", list, err)
	}
	if w := list[0]; w.Name != "web" || *w.Replicas != 2 || w.Port != 8000 || w.Env["MODE"] != "demo" || w.Ready.HTTP == "" || time.Duration(w.Grace) != 90*time.Second ||
		time.Duration(w.Ready.After) != 2*time.Second || !slices.Equal(w.Command, []string{"python3", "-m", "http.server", "${PORT}"}) || w.Labels["tier"] != "front" {
		t.Errorf("Load = %+v", w)
	}
	for _, c := range []struct{ text, want string }{
		{"workloads: []", "no workloads"},
		{"workloads: [{name: a, comand: [b]}]", `unknown field "comand"`},
		{"workloads: [{name: a, command: [b], grace: 5}]", `write it like "10s"`},
		{"workloads: [{name: a, command: [b], grace: soon}]", `"soon" is no duration`},
		{"workloads: {", "yaml"},
	} {
		write(c.text)
		if _, err := process.Load(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Load(%s) = %v, want %q", c.text, err, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	w, err := process.Parse("web=echo a=b; sleep 1")
	if err != nil || w.Name != "web" || !slices.Equal(w.Command, []string{"/bin/sh", "-c", "echo a=b; sleep 1"}) {
		t.Errorf("Parse = %+v, %v", w, err)
	}
	for _, text := range []string{"", "web", "web=", "web= "} {
		if _, err := process.Parse(text); err == nil || !strings.Contains(err.Error(), "name=command") {
			t.Errorf("Parse(%q) = %v, want an error", text, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	base := func(change func(*process.Workload)) []process.Workload {
		w := process.Workload{Name: "web", Command: []string{"sleep", "1"}}
		change(&w)
		return []process.Workload{w}
	}
	n := func(i int32) *int32 { return &i }
	for _, c := range []struct {
		name string
		list []process.Workload
		want string
	}{
		{"none", nil, "no workloads"},
		{"name", base(func(w *process.Workload) { w.Name = "a/b" }), "name: is not"},
		{"twice", append(base(func(*process.Workload) {}), base(func(*process.Workload) {})...), "is there twice"},
		{"command", base(func(w *process.Workload) { w.Command = nil }), "command: is empty"},
		{"replicas", base(func(w *process.Workload) { w.Replicas = n(-1) }), "replicas: -1 is not in 0 to 1000"},
		{"port", base(func(w *process.Workload) { w.Port = 70000 }), "port: 70000"},
		{"env", base(func(w *process.Workload) { w.Env = map[string]string{"A=B": ""} }), `env: "A=B" cannot be set`},
		{"env marker", base(func(w *process.Workload) { w.Env = map[string]string{"WORKLOADS_REPLICA": ""} }), "cannot be set"},
		{"two probes", base(func(w *process.Workload) { w.Ready = process.Ready{TCP: "a:1", HTTP: "http://a"} }), "one of tcp and http"},
		{"tcp", base(func(w *process.Workload) { w.Ready.TCP = "a" }), "ready.tcp"},
		{"http", base(func(w *process.Workload) { w.Ready.HTTP = "a" }), "ready.http"},
		{"grace", base(func(w *process.Workload) { w.Grace = process.Duration(time.Hour) }), "grace: 1h0m0s"},
		{"after", base(func(w *process.Workload) { w.Ready.After = -1 }), "ready.after"},
	} {
		t.Run(c.name, func(t *testing.T) {
			driver, err := process.Open(t.Context(), c.list, process.Options{Owner: "o", Lock: filepath.Join(t.TempDir(), "lock")})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open = %v, want %q", err, c.want)
			}
			if err == nil {
				_ = driver.Close()
			}
		})
	}
}
