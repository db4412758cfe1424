package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/toolway/toolway/tests/internal/run"
)

var errNoBenchmark = errors.New("no benchmark has run")

// goBench is one go test -bench of a package of the root module.
type goBench struct{ pkg, pattern string }

// figure is what a Go benchmark reported, by unit.
type figure struct {
	name  string
	units map[string]float64
}

// run runs it several times and returns the least of each figure, in the order of the first run: what else the machine does only adds.
func (g goBench) run(ctx context.Context, benchtime string, count int) ([]figure, error) {
	module, err := run.Module()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", g.pkg, "-run", "^$", "-bench", g.pattern, "-benchtime", benchtime, "-benchmem", "-count", strconv.Itoa(count))
	cmd.Dir = filepath.Dir(module)
	b, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", cmd.Args, err, b)
	}
	var out []figure
	at := map[string]int{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(f[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i] // the number of processors
		}
		if _, known := at[name]; !known {
			at[name] = len(out)
			out = append(out, figure{name, map[string]float64{}})
		}
		for i := 2; i+1 < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			units := out[at[name]].units
			if least, known := units[f[i+1]]; !known || v < least {
				units[f[i+1]] = v
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%v: %w\n%s", cmd.Args, errNoBenchmark, b)
	}
	return out, nil
}

// exactly is the pattern of one benchmark by its name.
func exactly(name string) string {
	outer, inner, _ := strings.Cut(name, "/")
	return "^Benchmark" + outer + "$/^" + inner + "$"
}

// cpu is the processor time in seconds of one iteration of a benchmark in a process of its own, from what a run of many iterations takes beyond a run of one.
func (g goBench) cpu(ctx context.Context, times int) (float64, error) {
	module, err := run.Module()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "toolway-bench-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is below the temporary directory
	bin := filepath.Join(dir, "test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", bin, g.pkg)
	build.Dir = filepath.Dir(module)
	if b, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%v: %w\n%s", build.Args, err, b)
	}
	of := func(n int) (time.Duration, error) {
		cmd := exec.CommandContext(ctx, bin, "-test.run", "^$", "-test.bench", g.pattern, "-test.benchtime", strconv.Itoa(n)+"x")
		cmd.Dir = filepath.Join(filepath.Dir(module), g.pkg)
		if b, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(b), "Benchmark") {
			return 0, fmt.Errorf("%v: %w\n%s", cmd.Args, errors.Join(err, errNoBenchmark), b)
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
	}
	one, err := of(1)
	if err != nil {
		return 0, err
	}
	many, err := of(times)
	return (many - one).Seconds() / float64(times), err
}

// goTable makes a table of benchmarks.
func goTable(ctx context.Context, title, benchtime string, count int, all ...goBench) (*table, []figure, error) {
	t := &table{title: fmt.Sprintf("%s; the least of %d runs", title, count), head: []string{"", "µs", "KB allocated", "allocations"}}
	var figures []figure
	for _, g := range all {
		some, err := g.run(ctx, benchtime, count)
		if err != nil {
			return nil, nil, err
		}
		for _, f := range some {
			t.add(f.name, fmt.Sprintf("%.1f", f.units["ns/op"]/1e3), fmt.Sprintf("%.1f", f.units["B/op"]/1e3), fmt.Sprintf("%.0f", f.units["allocs/op"]))
		}
		figures = append(figures, some...)
	}
	return t, figures, nil
}

// chain measures what the policies cost: the benchmark has the chain of a plain method as it grows from none to all.
func chain(ctx context.Context, benchtime string, count, times int, doc *document, found results) error {
	t, figures, err := goTable(ctx, "Chain: one call in one goroutine, without door and backend", benchtime, count, goBench{"./interceptors", "^BenchmarkChainShare$"})
	if err != nil {
		return err
	}
	bare, whole := figures[0].units, figures[len(figures)-1].units
	first, last := figures[0].name, figures[len(figures)-1].name
	without, err := goBench{"./interceptors", exactly(first)}.cpu(ctx, times)
	if err != nil {
		return err
	}
	with, err := goBench{"./interceptors", exactly(last)}.cpu(ctx, times)
	if err != nil {
		return err
	}
	found["chain µs"] = (with - without) * 1e6
	t.note("By processor time, the collector's included, the first takes %.1f µs and the last %.1f µs.", without*1e6, with*1e6)
	found["chain allocations"] = whole["allocs/op"] - bare["allocs/op"]
	return doc.putTables("chain", t)
}

// schemas measures what is done once for each contract: schemas, loading, routes.
func schemas(ctx context.Context, benchtime string, count int, doc *document) error {
	t, _, err := goTable(ctx, "Schemas, descriptors and routes: once for each contract", benchtime, count,
		goBench{"./internal/toolschema", "^BenchmarkFor$"},
		goBench{"./internal/catalog", "^BenchmarkLoad$/^(etcd|temporal-api|googleapis-core)[.]binpb$"},
		goBench{"./internal/catalog", "^BenchmarkToolsVersion$"},
		goBench{"./gateway", "^BenchmarkTable$"})
	if err != nil {
		return err
	}
	return doc.putTables("schema", t)
}
