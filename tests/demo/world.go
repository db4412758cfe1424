package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/toolway/toolway/tests/internal/run"
)

// world is all that runs: the shop, five services and the mesh before them.
type world struct {
	dir      string
	binaries map[string]string
	addr     map[string]string // of each process, by its name in capitals
	keys     map[string]string // API keys by name
	mesh     *run.Mesh

	running    []*run.Process    // in the order of their start
	transports []*http.Transport // of callers
}

// callers are those who have a key.
var callers = []string{"agent", "approver", "browser", "incidents"}

// build builds every binary, so that no time of the story is spent on it.
func build() (map[string]string, error) {
	binaries := map[string]string{}
	for _, name := range []string{"toolway", "logs", "metrics", "workloads", "runbooks", "incidents", "shop"} {
		build := func() (string, error) { return run.Service(name) }
		if name == "toolway" {
			build = run.Toolway
		}
		bin, err := build()
		if err != nil {
			return nil, err
		}
		binaries[name] = bin
	}
	return binaries, nil
}

// prepare makes a world in a directory, with keys and configuration, in which nothing runs yet.
func prepare(dir string, binaries map[string]string) (*world, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, binaries: binaries, addr: map[string]string{}, keys: map[string]string{}}
	names := []string{"GRPC", "HTTP", "ADMIN", "LOGS", "METRICS", "RUNBOOKS", "WORKLOADS", "INCIDENTS", "INVENTORY", "PAYMENT", "CHECKOUT"}
	if err := w.freePorts(names); err != nil {
		return nil, err
	}
	repository, err := repository()
	if err != nil {
		return nil, err
	}
	values := map[string]string{"CONTRACTS": filepath.Join(repository, "deploy", "local", "contracts"), "SHOP": binaries["shop"], "SHOP_LOG": w.path("shop.log"), "DATA": w.path("mesh")}
	for name, addr := range w.addr {
		values[name] = addr
	}
	for _, name := range callers {
		_, key, stderr, err := run.Output(nil, binaries["toolway"], "key", "new", name)
		if err != nil {
			return nil, fmt.Errorf("make a key: %w: %s", err, stderr)
		}
		key = bytes.TrimSpace(key)
		hash := sha256.Sum256(key)
		w.keys[name], values[strings.ToUpper(name)+"_SHA256"] = string(key), hex.EncodeToString(hash[:])
		if err := os.WriteFile(w.path(name+".key"), key, 0o600); err != nil {
			return nil, err
		}
	}
	for _, file := range []string{"demo-incident.yaml", "demo-incident-shop.yaml"} {
		if err := w.fill(file, values); err != nil {
			return nil, err
		}
	}
	return w, os.WriteFile(w.path("shop.log"), nil, 0o600)
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// freePorts finds a port for each name, all different.
func (w *world) freePorts(names []string) error {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for _, name := range names {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		held = append(held, l)
		w.addr[name] = l.Addr().String()
	}
	return nil
}

var placeholder = regexp.MustCompile(`\$\{[A-Z0-9_]+\}`)

// fill writes a file of deploy/local with its placeholders filled in.
func (w *world) fill(file string, values map[string]string) error {
	repository, err := repository()
	if err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(repository, "deploy", "local", file))
	if err != nil {
		return err
	}
	var missing []string
	b = placeholder.ReplaceAllFunc(b, func(name []byte) []byte {
		value, ok := values[string(name[2:len(name)-1])]
		if !ok {
			missing = append(missing, string(name))
		}
		return []byte(value)
	})
	if len(missing) > 0 {
		return fmt.Errorf("%s: nothing to fill in for %s", file, strings.Join(missing, ", "))
	}
	return os.WriteFile(w.path(file), b, 0o600)
}

func repository() (string, error) {
	module, err := run.Module()
	return filepath.Dir(module), err
}

// start starts everything and waits until the mesh serves all tools.
func (w *world) start() error {
	repository, err := repository()
	if err != nil {
		return err
	}
	jwks := "http://" + w.addr["HTTP"] + "/.well-known/jwks.json"
	trust := func(name string) []string {
		return []string{"--auth-issuer", "demo", "--auth-audience", name, "--auth-jwks", jwks}
	}
	for _, s := range []struct {
		name string
		args []string
	}{
		{"workloads", append(trust("workloads"), "--data", w.path("workloads"), "--config", w.path("demo-incident-shop.yaml"))},
		{"logs", []string{"--data", w.path("logs"), "--ingest-file", w.path("shop.log")}},
		{"metrics", []string{"--scrape-interval", "1s", "--scrape", "checkout=http://" + w.addr["CHECKOUT"], "--scrape", "payment=http://" + w.addr["PAYMENT"], "--scrape", "inventory=http://" + w.addr["INVENTORY"]}},
		{"runbooks", []string{"--dir", filepath.Join(repository, "services", "runbooks", "samples")}},
	} {
		if _, err := w.spawn(s.name, s.args...); err != nil {
			return err
		}
	}
	if _, err := w.startIncidents(); err != nil {
		return err
	}
	for _, p := range w.running {
		if err := p.Await(func(line string) bool { return strings.Contains(line, "msg=serving") }); err != nil {
			return err
		}
	}
	w.mesh, err = run.Serve("--config", w.path("demo-incident.yaml"), "--grpc-addr", w.addr["GRPC"], "--http-addr", w.addr["HTTP"], "--admin-addr", w.addr["ADMIN"])
	return err
}

// startIncidents starts the incident service, or starts it again on what it has kept.
func (w *world) startIncidents() (*run.Process, error) {
	return w.spawn("incidents", "--data", w.path("incidents"), "--mesh", w.addr["GRPC"], "--mesh-token-file", w.path("incidents.key"), "--window", "8s", "--poll", "500ms",
		"--auth-issuer", "demo", "--auth-audience", "incidents", "--auth-jwks", "http://"+w.addr["HTTP"]+"/.well-known/jwks.json")
}

func (w *world) spawn(name string, args ...string) (*run.Process, error) {
	p, err := run.Spawn(nil, w.binaries[name], append([]string{"--addr", w.addr[strings.ToUpper(name)]}, args...)...)
	if err != nil {
		return nil, err
	}
	w.running = append(w.running, p)
	return p, nil
}

// incidents is the incident service that runs now.
func (w *world) incidents() *run.Process { return w.running[len(w.running)-1] }

// forget takes a process that was killed off the list of those that are stopped.
func (w *world) forget(p *run.Process) {
	w.running = slices.DeleteFunc(w.running, func(other *run.Process) bool { return other == p })
}

// stop ends all processes, and with the workload service the shop. It says which of them did not end well.
func (w *world) stop() error {
	for _, t := range w.transports {
		t.CloseIdleConnections()
	}
	var group errgroup.Group
	for _, p := range w.running {
		group.Go(p.Stop)
	}
	err := group.Wait()
	if w.mesh != nil {
		err = errors.Join(err, w.mesh.Stop())
	}
	return err
}

// logs is what the processes have printed last, for whoever has to find out what went wrong.
func (w *world) logs() string {
	var b strings.Builder
	last := func(name, log string) {
		lines := strings.Split(log, "\n")
		fmt.Fprintf(&b, "--- %s\n%s\n", name, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	for _, p := range w.running {
		last(fmt.Sprint("process ", p.PID()), p.Log())
	}
	if w.mesh != nil {
		last("mesh", w.mesh.Log())
	}
	return b.String()
}
