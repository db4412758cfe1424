package durable_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolway/toolway/tests/internal/run"
)

// inNamespace is set for the child that has a network namespace for itself, in which it makes others: they all end with it.
const inNamespace = "TOOLWAY_TEST_NETNS"

// cluster3 is a cluster of three nodes of which the last can be cut off from the others, but not from its clients.
type cluster3 struct {
	nodes     []*node
	cut, heal func() error
}

// TestMinority cuts one node of three off from the others: meshes at the majority go on, one at the minority says UNAVAILABLE, and when the cut is
// healed it has what was written meanwhile. The nodes are in network namespaces of their own. Where this machine allows none the node is
// stopped instead, which for the others is the same.
func TestMinority(t *testing.T) {
	if os.Getenv(inNamespace) != "" {
		minority(t, namespaces(t))
		return
	}
	t.Parallel()
	if how := unshared(); how != nil {
		bin, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*run.Patience)
		defer cancel()
		child := exec.CommandContext(ctx, how[0], append(how[1:], bin, "-test.run=^TestMinority$", "-test.v", "-test.count=1")...)
		child.Env = append(os.Environ(), inNamespace+"=1")
		child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestMinority") {
			t.Fatalf("in a network namespace: %v\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "partition_test.go") {
				t.Log("in a network namespace: " + strings.TrimSpace(line))
			}
		}
		return
	}
	t.Log("this machine lets the test make no network namespace: one node is stopped instead of cut off")
	n := nodes(t, 3)
	minority(t, cluster3{n, func() error { return n[2].Signal(syscall.SIGSTOP) }, func() error { return n[2].Signal(syscall.SIGCONT) }})
}

// unshared is the command that gives a program a network namespace with everything in it that the test needs, or nil.
func unshared() []string {
	for _, how := range [][]string{{"unshare", "-n"}, {"unshare", "-Urn"}} {
		probe := slices.Concat(how[1:], []string{"sh", "-c", "ip link set lo up && ip link add tw0 type veth peer name tw1 && ip link add twb type bridge && unshare -n true && nsenter --version"})
		if exec.CommandContext(context.Background(), how[0], probe...).Run() == nil {
			return how
		}
	}
	return nil
}

// namespaces makes the cluster: each node in a namespace with two networks, one for its clients, one for its peers.
func namespaces(t *testing.T) cluster3 {
	t.Helper()
	command(t, "ip link set lo up")
	command(t, "ip link add name peers type bridge")
	command(t, "ip link set peers up")
	var clients, peers []string
	var wrap [][]string
	for i := range 3 {
		holder, err := run.Spawn(nil, "unshare", "-n", "sleep", "3600")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(holder.Kill)
		pid := strconv.Itoa(holder.PID())
		here, err := os.Readlink("/proc/self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		run.Eventually(t, "the namespace is there", func() bool {
			there, err := os.Readlink("/proc/" + pid + "/ns/net")
			return err == nil && there != here
		})
		in := []string{"nsenter", "-t", pid, "-n"}
		inside := strings.Join(in, " ") + " "
		command(t, fmt.Sprintf("ip link add name p%d type veth peer name peers0 netns %s", i, pid))
		command(t, fmt.Sprintf("ip link set p%d master peers up", i))
		command(t, fmt.Sprintf("ip link add name c%d type veth peer name clients0 netns %s", i, pid))
		command(t, fmt.Sprintf("ip addr add 10.1.%d.1/24 dev c%d", i, i))
		command(t, fmt.Sprintf("ip link set c%d up", i))
		command(t, inside+"ip link set lo up")
		command(t, fmt.Sprintf("%sip addr add 10.2.0.%d/24 dev peers0", inside, i+1))
		command(t, fmt.Sprintf("%sip addr add 10.1.%d.2/24 dev clients0", inside, i))
		command(t, inside+"ip link set peers0 up")
		command(t, inside+"ip link set clients0 up")
		clients, peers, wrap = append(clients, fmt.Sprintf("10.1.%d.2", i)), append(peers, fmt.Sprintf("10.2.0.%d", i+1)), append(wrap, in)
	}
	link := func(state string) func() error {
		return func() error {
			if out, err := exec.CommandContext(context.Background(), "ip", "link", "set", "p2", state).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}
	}
	return cluster3{nodesAt(t, clients, peers, wrap), link("down"), link("up")}
}

func command(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(line)
	if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

func minority(t *testing.T, c cluster3) {
	ctx := t.Context()
	backend := startCounter(t)
	most := serve(t, "--config", backend.configFile(t, fmt.Sprintf(shared, urls(c.nodes[:2]...), 3)))
	few := serve(t, "--config", backend.configFile(t, fmt.Sprintf(shared, urls(c.nodes[2]), 3)))
	if a, err := few.ask(ctx, "grpc", "before"); err != nil || a.String() != ok {
		t.Fatalf("before: %v, %v", a, err)
	}
	heldAt(ctx, t, few, most, few, "held before", backend)

	if err := c.cut(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	few.awaitStore(t, "down")
	t.Logf("the minority says that the store is down after %v", time.Since(begun).Round(time.Millisecond))
	for _, door := range doors {
		for _, key := range []string{"before", "at the minority"} {
			a, err := few.ask(ctx, door, key)
			// A node that led the keys before the cut still knows what was answered; it takes no new one.
			replayed := key == "before" && err == nil && a.replayed && a.number == 1
			if !replayed && (err != nil || a.String() != noKeys || !a.retry) {
				t.Errorf("%s at the minority, through %s: %v, %v", key, door, a, err)
			}
		}
	}
	if a, err := few.label(ctx, "grpc", "held"); err != nil || a.String() != noHolding {
		t.Errorf("approval at the minority: %v, %v", a, err)
	}
	if err := few.watch(ctx); err != nil {
		t.Errorf("a call that needs no store, at the minority: %v", err)
	}
	if n := backend.count("at the minority"); n != 0 {
		t.Errorf("%d executions at the minority", n)
	}
	// The majority has to choose new leaders where the node led.
	for _, key := range []string{"at the majority", "another"} {
		run.Eventually(t, "the majority goes on", func() bool {
			a, err := most.ask(ctx, "http", key)
			return err == nil && a.String() == ok
		})
	}
	t.Logf("the majority goes on after %v", time.Since(begun).Round(time.Millisecond))
	if a, err := most.ask(ctx, "mcp", "before"); err != nil || !a.replayed || a.number != 1 {
		t.Errorf("what was written at the minority before: %v, %v", a, err)
	}

	if err := c.heal(); err != nil {
		t.Fatal(err)
	}
	healed := time.Now()
	few.awaitStore(t, "up")
	run.Eventually(t, "the minority has what was written meanwhile", func() bool {
		a, err := few.ask(ctx, "grpc", "at the majority")
		if err == nil && a.String() == ok && (!a.replayed || a.number != 1) {
			t.Fatalf("at the majority: %v, replayed %v, execution %d", a, a.replayed, a.number)
		}
		return err == nil && a.replayed
	})
	run.Eventually(t, "the minority takes writes again", func() bool {
		a, err := few.ask(ctx, "http", "at the minority")
		return err == nil && a.String() == ok && a.number == 1
	})
	t.Logf("healed after %v", time.Since(healed).Round(time.Millisecond))
	backend.mu.Lock()
	defer backend.mu.Unlock()
	for key, n := range backend.times {
		if n != 1 {
			t.Errorf("%s was executed %d times", key, n)
		}
	}
}
