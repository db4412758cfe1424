package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/toolway/toolway/tests/internal/run"
)

// results are the figures that aims are about, by name.
type results map[string]float64

// part is one part of a run.
type part struct {
	name string
	run  func(ctx context.Context, quick bool, doc *document, found results) error
}

func pick[T any](quick bool, short, long T) T {
	if quick {
		return short
	}
	return long
}

// callersAtATime load the doors, one count after the other.
var callersAtATime = []int{1, 16, 64}

var parts = []part{
	{"doors", func(ctx context.Context, quick bool, doc *document, found results) error {
		of := plan{shapes, callersAtATime, 3, 800 * time.Millisecond, true}
		if quick {
			of = plan{[]shape{shapes[0], shapes[1], shapes[3]}, []int{16}, 3, 250 * time.Millisecond, false}
		}
		all, err := doors(ctx, of, doc)
		found.doors(all)
		return err
	}},
	{"profile", func(ctx context.Context, quick bool, doc *document, _ results) error {
		if quick {
			return nil
		}
		return profiles(ctx, 3*time.Second, doc)
	}},
	{"codec", func(ctx context.Context, quick bool, doc *document, found results) error {
		return codec(ctx, pick(quick, 3, 7), pick(quick, 20*time.Millisecond, 100*time.Millisecond), doc, found)
	}},
	{"chain", func(ctx context.Context, quick bool, doc *document, found results) error {
		return chain(ctx, pick(quick, "50ms", "300ms"), pick(quick, 1, 5), pick(quick, 20_000, 200_000), doc, found)
	}},
	{"schema", func(ctx context.Context, quick bool, doc *document, _ results) error {
		if quick {
			return nil
		}
		return schemas(ctx, "200ms", 3, doc)
	}},
	{"scale", func(ctx context.Context, quick bool, doc *document, found results) error {
		return scale(ctx, pick(quick, []int{50}, []int{5, 50, 500}), pick(quick, 300*time.Millisecond, time.Second), doc, found)
	}},
	{"start", func(ctx context.Context, quick bool, doc *document, found results) error {
		return startUp(ctx, pick(quick, 1, 5), doc, found)
	}},
	{"store", func(_ context.Context, quick bool, doc *document, _ results) error {
		return stores(pick(quick, 1000, 5000), 16, doc)
	}},
}

func partNames() []string {
	var all []string
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

func all(ctx context.Context, quick bool, callers int, out, only string) error {
	if callers > 0 {
		callersAtATime = []int{callers}
	}
	doc, err := openDocument(out)
	if err != nil {
		return err
	}
	wanted := partNames()
	if only != "" {
		wanted = strings.Split(only, ",")
	}
	for _, name := range wanted {
		if !slices.Contains(partNames(), name) {
			return fmt.Errorf("-only %q: there is no part %q; want some of %s", only, name, strings.Join(partNames(), ", "))
		}
	}
	if err := run.Prepare("probe"); err != nil {
		return err
	}
	where, err := machine(ctx)
	if err != nil {
		return err
	}
	fmt.Println(where)
	found := results{}
	for _, p := range parts {
		if !slices.Contains(wanted, p.name) {
			continue
		}
		if err := p.run(ctx, quick, doc, found); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if err := found.report(doc); err != nil {
		return err
	}
	return doc.put("machine", "\n"+where+"\n")
}

// machine says when and where this was measured, and with what.
func machine(ctx context.Context) (string, error) {
	model := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	kernel, err := exec.CommandContext(ctx, "uname", "-sr").Output()
	if err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	peers, err := versions(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Measured %s on %d cores of %s, %s, %s; load average before: %s. %s.\n",
		time.Now().UTC().Format("2006-01-02 15:04 MST"), runtime.NumCPU(), model, strings.TrimSpace(string(kernel)), runtime.Version(), loadAverage(), peers), nil
}
