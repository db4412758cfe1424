package durable_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolway/toolway/tests/internal/run"
)

// node is a NATS server in a process of its own.
type node struct {
	*run.Process
	bin, config string
	// wrap begins the command line, such as to run it in another network namespace.
	wrap []string
	url  string
}

// nodes starts servers with JetStream, which are a cluster if there are several. Each has an address of its own in 127.0.0.0/8, so that ports can be
// fixed without a clash.
func nodes(t *testing.T, n int) []*node {
	t.Helper()
	var hosts []string
	for range n {
		hosts = append(hosts, fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(256), 1+rand.IntN(250)))
	}
	return nodesAt(t, hosts, hosts, make([][]string, n))
}

// nodesAt starts servers whose clients come to some addresses, and whose peers to others.
func nodesAt(t *testing.T, clients, peers []string, wrap [][]string) []*node {
	t.Helper()
	bin, err := run.Package("nats-server", "github.com/nats-io/nats-server/v2")
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for _, p := range peers {
		routes = append(routes, "nats://"+p+":6222")
	}
	var out []*node
	for i := range clients {
		dir := t.TempDir()
		text := fmt.Sprintf("server_name: n%d\nlisten: \"%s:4222\"\nping_interval: 1s\njetstream {store_dir: %q, max_file_store: 1TB, sync_interval: always}\n", i, clients[i], filepath.Join(dir, "js"))
		if len(clients) > 1 {
			text += fmt.Sprintf("cluster {name: c, listen: \"%s:6222\", no_advertise: true, ping_interval: 1s, routes: [%s]}\n", peers[i], strings.Join(routes, ", "))
		}
		d := &node{bin: bin, config: filepath.Join(dir, "nats.conf"), url: "nats://" + clients[i] + ":4222", wrap: wrap[i]}
		if err := os.WriteFile(d.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d.start(t)
		out = append(out, d)
	}
	t.Cleanup(func() {
		for _, d := range out {
			d.Kill()
		}
	})
	return out
}

// start starts the server, on the state that it had.
func (d *node) start(t *testing.T) {
	t.Helper()
	command := append(append([]string{}, d.wrap...), d.bin, "-c", d.config)
	p, err := run.Spawn(nil, command[0], command[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	d.Process = p
	p.Explain(t)
	if err := p.Await(func(line string) bool { return strings.Contains(line, "Server is ready") }); err != nil {
		t.Fatal(err)
	}
}

// urls is what meshes are told of servers.
func urls(nodes ...*node) string {
	var out []string
	for _, d := range nodes {
		out = append(out, d.url)
	}
	return strings.Join(out, ",")
}
