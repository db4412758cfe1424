package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolway/toolway/tests/internal/run"
)

// scale measures what a mesh with a large catalog costs, before a probe whose methods are called: sizes are counts of services.
func scale(ctx context.Context, sizes []int, length time.Duration, doc *document, found results) error {
	backend, addr, err := run.Child("probe")
	if err != nil {
		return err
	}
	defer backend.Kill()
	// A server without reflection, so that its contract is the set's alone. Nothing calls it.
	silent, silentAddr, err := run.Child("probe", "-reflection", "none")
	if err != nil {
		return err
	}
	defer silent.Kill()
	dir, err := os.MkdirTemp("", "toolway-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is below the temporary directory
	t := &table{title: "Scale of the catalog: a made contract, with the probe's methods beside it", head: []string{"methods"}}
	var names []string
	columns := make([]map[string]string, len(sizes))
	for i, services := range sizes {
		b := &big{columns: map[string]string{}, dir: dir, backend: addr, silent: silentAddr, length: length}
		if err := b.measure(ctx, services); err != nil {
			return fmt.Errorf("%d services: %w", services, err)
		}
		names, columns[i] = b.names, b.columns
		t.head = append(t.head, fmt.Sprintf("%d", services*methodsOfService))
		found["page ms"] = b.page.Seconds() * 1e3
	}
	for _, n := range names {
		row := []string{n}
		for _, c := range columns {
			row = append(row, c[n])
		}
		t.add(row...)
	}
	return doc.putTables("scale", t)
}

// big is a mesh with a large catalog.
type big struct {
	dir, backend, silent string
	length               time.Duration

	mesh    *run.Mesh
	names   []string
	columns map[string]string
	page    time.Duration
}

func (b *big) say(name, format string, args ...any) {
	b.names = append(b.names, name)
	b.columns[name] = fmt.Sprintf(format, args...)
}

func (b *big) measure(ctx context.Context, services int) error {
	set, err := made(ctx, services)
	if err != nil {
		return err
	}
	more, err := made(ctx, services+1)
	if err != nil {
		return err
	}
	path := filepath.Join(b.dir, fmt.Sprintf("%d.binpb", services))
	if err := os.WriteFile(path, set, 0o600); err != nil {
		return err
	}
	b.mesh, err = run.Serve("--backend", "made="+b.silent, "--descriptors", "made="+path, "--backend", "probe="+b.backend)
	if err != nil {
		return err
	}
	defer b.mesh.Kill()
	b.say("descriptors, MB", "%.1f", float64(len(set))/1e6)
	used, err := processor(b.mesh.PID())
	if err != nil {
		return err
	}
	b.say("start, CPU ms", "%.0f", used.Seconds()*1e3)
	if err := b.memory("resident when ready, MB"); err != nil {
		return err
	}
	if err := b.uses("first tools/list, CPU ms", func() error { return b.once(ctx, "/mcp", b.list("")) }); err != nil {
		return err
	}
	if err := b.pages(ctx, services*methodsOfService); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		open func() (caller, error)
	}{
		{"MCP tools/call, median µs", overMCP(b.mesh.HTTP, "/mcp", "2026-07-28")(shapes[0])},
		{"REST call, median µs", overREST(b.mesh.HTTP, "")(shapes[0])},
	} {
		out, _, err := load(ctx, c.open, 1, b.length)
		if err != nil {
			return err
		}
		b.say(c.name, "%.0f", out.p50*1e6)
	}
	open, done, err := overGRPC(b.mesh.GRPC)
	if err != nil {
		return err
	}
	defer done()
	out, _, err := load(ctx, open(shapes[0]), 1, b.length)
	if err != nil {
		return err
	}
	b.say("gRPC call, median µs", "%.0f", out.p50*1e6)
	if err := b.search(ctx); err != nil {
		return err
	}
	if err := b.memory("resident after that, MB"); err != nil {
		return err
	}
	return b.reload(ctx, path, more)
}

func (b *big) memory(name string) error {
	mb, err := resident(b.mesh.PID())
	b.say(name, "%.0f", mb)
	return err
}

// list is tools/list from a cursor.
func (b *big) list(cursor string) shape {
	params := "{}"
	if cursor != "" {
		params = `{"cursor":"` + cursor + `"}`
	}
	return shape{body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":` + params + `}`, mark: `"tools":[`}
}

const mcpHeader = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Protocol-Version: 2025-11-25\r\n"

// once sends one request.
func (b *big) once(ctx context.Context, where string, s shape) error {
	c, err := overHTTP(b.mesh.HTTP, "POST "+where, mcpHeader, s.body, s)()
	if err != nil {
		return err
	}
	defer c.close()
	return c.call(ctx)
}

// uses says what processor time the mesh takes for something that is done once.
func (b *big) uses(name string, f func() error) error {
	before, err := processor(b.mesh.PID())
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	after, err := processor(b.mesh.PID())
	b.say(name, "%.0f", (after-before).Seconds()*1e3)
	return err
}

// pages goes through the whole list, and then asks for one page again and again.
func (b *big) pages(ctx context.Context, want int) error {
	var size, count, pages int
	cursor, second := "", ""
	for {
		var reply []byte
		s := b.list(cursor)
		s.seen = func(r []byte) { reply = bytes.Clone(r) }
		if err := b.once(ctx, "/mcp", s); err != nil {
			return err
		}
		size, pages = size+len(reply), pages+1
		count += strings.Count(string(reply), `"inputSchema":`)
		_, next, more := strings.Cut(string(reply), `"nextCursor":"`)
		if !more {
			break
		}
		cursor, _, _ = strings.Cut(next, `"`)
		if second == "" {
			second = cursor
		}
	}
	if count < want {
		return fmt.Errorf("tools/list has %d tools in %d pages, want %d and the probe's", count, pages, want)
	}
	b.say("pages of the list; MB", "%d; %.1f", pages, float64(size)/1e6)
	s := b.list(second)
	out, calls, cpu, err := b.repeat(ctx, overHTTP(b.mesh.HTTP, "POST /mcp", mcpHeader, s.body, s))
	if err != nil {
		return err
	}
	b.page = time.Duration(cpu / float64(calls) * float64(time.Second))
	b.say("one page again, median ms", "%.2f", out.p50*1e3)
	b.say("CPU of that, ms", "%.2f", b.page.Seconds()*1e3)
	return nil
}

// repeat has one caller call for a while, and says what processor time the mesh took for all calls, in seconds.
func (b *big) repeat(ctx context.Context, open func() (caller, error)) (out sample, calls int, cpu float64, err error) {
	before, err := processor(b.mesh.PID())
	if err != nil {
		return out, 0, 0, err
	}
	if out, calls, err = load(ctx, open, 1, b.length); err != nil {
		return out, 0, 0, err
	}
	after, err := processor(b.mesh.PID())
	return out, calls, (after - before).Seconds(), err
}

// words of a search for a method of the probe, whose entries are of a log.
var words = shape{
	body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find_tools","arguments":{"query":"search entries of a log"}}}`, mark: "probe_search",
}

func (b *big) search(ctx context.Context) error {
	if err := b.uses("first find_tools, CPU ms", func() error { return b.once(ctx, "/mcp/search", words) }); err != nil {
		return err
	}
	out, _, _, err := b.repeat(ctx, overHTTP(b.mesh.HTTP, "POST /mcp/search", mcpHeader, words.body, words))
	if err != nil {
		return err
	}
	b.say("find_tools again, median ms", "%.2f", out.p50*1e3)
	return nil
}

// reload writes the contract again with one more service, and waits until the mesh has seen it.
func (b *big) reload(ctx context.Context, path string, more []byte) error {
	err := b.uses("reload with one more service, CPU ms", func() error {
		if err := os.WriteFile(path+".new", more, 0o600); err != nil {
			return err
		}
		changes := strings.Count(b.mesh.Log(), `"catalog changed"`)
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
		if !run.Poll(run.Patience, func() bool { return strings.Count(b.mesh.Log(), `"catalog changed"`) > changes }) {
			return fmt.Errorf("the mesh does not see a changed file of descriptors\n%s", b.mesh.Log())
		}
		return nil
	})
	if err != nil {
		return err
	}
	c, err := overREST(b.mesh.HTTP, "")(shapes[0])()
	if err != nil {
		return err
	}
	defer c.close()
	if err := b.uses("first REST call after it, CPU ms", func() error { return c.call(ctx) }); err != nil {
		return err
	}
	if err := b.uses("first tools/list after it, CPU ms", func() error { return b.once(ctx, "/mcp", b.list("")) }); err != nil {
		return err
	}
	return b.uses("first find_tools after it, CPU ms", func() error { return b.once(ctx, "/mcp/search", words) })
}
