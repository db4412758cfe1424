package process

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Defaults of [Workload], and bounds.
const (
	defaultGrace = 10 * time.Second
	defaultAfter = time.Second
	maxGrace     = 10 * time.Minute
	maxReplicas  = 1000
)

// Workload is a program that is to run, in replicas.
//
// In Command, Env, Dir, Output and Ready, ${NAME} is the workload's name, ${REPLICA} the replica's index from 0 and ${PORT} its port. The environment has the same as
// WORKLOAD_NAME, WORKLOAD_REPLICA and, where there is a port, PORT.
type Workload struct {
	// Name is [a-zA-Z0-9][a-zA-Z0-9._-]*, at most 64 characters.
	Name string `json:"name"`
	// Command is the program and its arguments. It must stay in the foreground.
	Command []string `json:"command"`
	// Replicas is how many run at first. Default: 1. A change of it counts as a change of what is wanted.
	Replicas *int32 `json:"replicas,omitempty"`
	// Env is added to the environment of the service.
	Env map[string]string `json:"env,omitempty"`
	// Dir is where the program runs. Default: where the service does.
	Dir string `json:"dir,omitempty"`
	// Port is that of replica 0; each further one has the next.
	Port int `json:"port,omitempty"`
	// Output is the file that standard output and standard error are appended to. Default: those of the service.
	Output string `json:"output,omitempty"`
	// Ready says when a replica is ready.
	Ready Ready `json:"ready,omitempty"`
	// Grace is how long a replica may take to stop after SIGTERM, such as 10s; then it gets SIGKILL. Default: 10s.
	Grace Duration `json:"grace,omitempty"`
	// Labels are shown to callers.
	Labels map[string]string `json:"labels,omitempty"`
}

// Ready says when a replica is ready: when it answers, or has run for a while. At most one of TCP and HTTP.
type Ready struct {
	// TCP is an address, host:port, that takes connections.
	TCP string `json:"tcp,omitempty"`
	// HTTP is a URL that answers with a status of 200 to 399.
	HTTP string `json:"http,omitempty"`
	// After is for how long a replica must have run, if neither is given. Default: 1s.
	After Duration `json:"after,omitempty"`
}

// Duration is a time.Duration that is written like 10s or 1m30s.
type Duration time.Duration

// UnmarshalJSON reads the text.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("%s is no duration; write it like \"10s\"", b)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is no duration; write it like \"10s\"", text)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes the text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// Load reads workloads from a YAML or JSON file: a list under "workloads".
func Load(path string) ([]Workload, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Workloads []Workload `json:"workloads"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(file.Workloads) == 0 {
		return nil, fmt.Errorf("%s: no workloads; list them under workloads:, each with name and command", path)
	}
	return file.Workloads, nil
}

// Parse reads name=command, as on a command line. The command is run by /bin/sh.
func Parse(text string) (Workload, error) {
	name, command, ok := strings.Cut(text, "=")
	if !ok || strings.TrimSpace(command) == "" {
		return Workload{}, fmt.Errorf("%.80q is not name=command, such as 'web=python3 -m http.server 8000'", text)
	}
	return Workload{Name: name, Command: []string{"/bin/sh", "-c", command}}, nil
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)

// check says what is wrong with a workload, and sets defaults.
func (w *Workload) check() error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("workload %q: %s: %s", w.Name, field, fmt.Sprintf(format, args...))
	}
	if !namePattern.MatchString(w.Name) {
		return fmt.Errorf("workload %.80q: name: is not [a-zA-Z0-9][a-zA-Z0-9._-]* of at most 64 characters", w.Name)
	}
	if len(w.Command) == 0 || w.Command[0] == "" {
		return bad("command", "is empty; give the program and its arguments as a list")
	}
	if w.Replicas == nil {
		w.Replicas = new(int32(1))
	}
	if n := *w.Replicas; n < 0 || n > maxReplicas {
		return bad("replicas", "%d is not in 0 to %d", n, maxReplicas)
	}
	if w.Port < 0 || w.Port > 65535 {
		return bad("port", "%d is no port", w.Port)
	}
	for key := range w.Env {
		if key == "" || strings.ContainsAny(key, "=\x00") || key == marker {
			return bad("env", "%q cannot be set", key)
		}
	}
	if w.Ready.TCP != "" && w.Ready.HTTP != "" {
		return bad("ready", "give one of tcp and http")
	}
	one := w.expander(0)
	if w.Ready.TCP != "" {
		if _, _, err := net.SplitHostPort(one.Replace(w.Ready.TCP)); err != nil {
			return bad("ready.tcp", "%q is no host:port", w.Ready.TCP)
		}
	}
	if w.Ready.HTTP != "" {
		if u, err := url.Parse(one.Replace(w.Ready.HTTP)); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return bad("ready.http", "%q is no URL like http://127.0.0.1:8080/healthz", w.Ready.HTTP)
		}
	}
	w.Grace, w.Ready.After = cmp.Or(w.Grace, Duration(defaultGrace)), cmp.Or(w.Ready.After, Duration(defaultAfter))
	if w.Grace < 0 || time.Duration(w.Grace) > maxGrace {
		return bad("grace", "%s is not in 0 to %s", time.Duration(w.Grace), maxGrace)
	}
	if w.Ready.After < 0 {
		return bad("ready.after", "is negative")
	}
	if w.Output != "" {
		dir := filepath.Dir(one.Replace(w.Output))
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return bad("output", "%v", err)
		}
	}
	return nil
}

// checkAll says what is wrong with workloads together.
func checkAll(list []Workload) error {
	if len(list) == 0 {
		return errors.New("no workloads; name some with --workload or --config")
	}
	seen := map[string]bool{}
	for i := range list {
		if err := list[i].check(); err != nil {
			return err
		}
		if seen[list[i].Name] {
			return fmt.Errorf("workload %q is there twice; give one another name", list[i].Name)
		}
		seen[list[i].Name] = true
	}
	return nil
}

// hash tells programs apart that a running replica could be of: how many there shall be and how they are shown is not in it.
func (w *Workload) hash() string {
	program := *w
	program.Replicas, program.Labels, program.Ready, program.Grace = nil, nil, Ready{}, 0
	text, err := json.Marshal(program)
	if err != nil {
		panic(err) // strings and numbers have a JSON form
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// expander replaces what stands for a replica.
func (w *Workload) expander(index int) *strings.Replacer {
	pairs := []string{"${NAME}", w.Name, "${REPLICA}", strconv.Itoa(index)}
	if w.Port != 0 {
		pairs = append(pairs, "${PORT}", strconv.Itoa(w.Port+index))
	}
	return strings.NewReplacer(pairs...)
}
