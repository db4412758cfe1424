package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/mesh"
	"github.com/toolway/toolway/internal/suggest"
	"github.com/toolway/toolway/internal/toolschema"
)

func checkCommand() *cobra.Command {
	var (
		f                   sourceFlags
		asJSON, suggestions bool
		out                 string
	)
	cmd := &cobra.Command{
		Use:   "check [FILE...]",
		Short: "Say whether contracts are fit to be tools",
		Long: `Check descriptor sets, buf images or live servers: missing comments, names that had to be cut, clashes, writes that say nothing about
themselves, schemas that some model API refuses, and everything that had to be left out.

Exit code 0: fit. 1: findings. 2: something could not be read.

With --suggest, write a policy for methods that do not say what they do: which look like reads, writes and deletions, and why. It is a file to
review and use with --config; by itself it grants nothing.`,
		Example: "  toolway check shop.binpb\n  toolway check --json --backend 127.0.0.1:50051\n  toolway check --suggest -o policy.yaml shop.binpb",
		RunE: func(cmd *cobra.Command, files []string) error {
			if suggestions {
				return writeSuggestions(cmd, &f, files, out)
			}
			if out != "" {
				return errors.New("--out is where --suggest writes: say --suggest too")
			}
			report, err := check(cmd, &f, files)
			if asJSON {
				if err != nil {
					report.Error = err.Error()
				}
				if err := printJSON(cmd.OutOrStdout(), report); err != nil {
					return err
				}
			}
			if !asJSON && (err == nil || len(report.Findings)+report.Totals.Methods > 0) {
				printReport(cmd.OutOrStdout(), report)
			}
			if err != nil {
				return err
			}
			if !report.Fit {
				return exitCode(1)
			}
			return nil
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON, in every case")
	cmd.Flags().BoolVar(&suggestions, "suggest", false, "write a policy to review instead of the report")
	cmd.Flags().StringVarP(&out, "out", "o", "", "new `FILE` for the policy of --suggest (default: standard output)")
	cmd.MarkFlagsMutuallyExclusive("json", "suggest")
	cmd.SetFlagErrorFunc(reportFlagError)
	return cmd
}

// writeSuggestions writes a policy for the sources. It never writes over a file, which somebody may have reviewed.
func writeSuggestions(cmd *cobra.Command, f *sourceFlags, files []string, out string) error {
	m, broken, err := openSources(cmd, f, files)
	if err != nil {
		return err
	}
	defer m.Close()
	s := m.Catalog().Snapshot()
	if err := errors.Join(broken, unreadable(s)); err != nil {
		return err
	}
	if out == "" {
		return suggest.Write(cmd.OutOrStdout(), s)
	}
	to, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%q is there already; suggestions are not written over what may have been reviewed: name another file", out)
	}
	if err != nil {
		return err
	}
	return errors.Join(suggest.Write(to, s), to.Close())
}

// reportFlagError keeps the promise of --json, a report in every case, for a command line that could not be understood.
func reportFlagError(cmd *cobra.Command, err error) error {
	err = explainFlag(cmd, err)
	if slices.Contains(os.Args[1:], "--json") {
		if err := printJSON(cmd.OutOrStdout(), checkReport{Report: catalog.Report{Findings: []catalog.Finding{}}, Error: err.Error()}); err != nil {
			return err
		}
	}
	return err
}

// checkReport is what check prints; its JSON form is stable. Error is set when something could not be read.
type checkReport struct {
	catalog.Report
	Error string `json:"error,omitempty"`
}

func check(cmd *cobra.Command, f *sourceFlags, files []string) (checkReport, error) {
	m, broken, err := openSources(cmd, f, files)
	if err != nil {
		return checkReport{Report: catalog.Report{Findings: []catalog.Finding{}}}, err
	}
	defer m.Close()
	s := m.Catalog().Snapshot()
	report := checkReport{Report: catalog.Check(s, schemaProblems)}
	return report, errors.Join(broken, unreadable(s))
}

// openSources opens a mesh of descriptor files and what the flags name, as openMesh does, and refuses to stand before nothing. A file that
// cannot be read does not keep the others from being looked at: broken says which, and why.
func openSources(cmd *cobra.Command, f *sourceFlags, files []string) (m *mesh.Mesh, broken, err error) {
	for i, file := range files {
		// Each file is a contract of its own, whatever else is read with it.
		name := uniqueName(file, files[:i])
		if _, err := catalog.ReadFile(name, file); err != nil {
			broken = errors.Join(broken, err)
			continue
		}
		f.descriptors = append(f.descriptors, name+"="+file)
	}
	switch {
	case len(f.descriptors) > 0, len(f.backends) > 0, f.config != "":
		m, err = openMesh(cmd.Context(), f, 15*time.Second)
		return m, broken, err
	case broken != nil:
		return nil, nil, broken
	}
	return nil, nil, fmt.Errorf("nothing to %s: name a descriptor file, or a server with --backend", cmd.Name())
}

// unreadable returns an error if some backend's contract could not be read.
func unreadable(s *catalog.Snapshot) error {
	for _, b := range s.Backends() {
		if b.Files == nil {
			return fmt.Errorf("backend %q could not be read: see the findings", b.Name)
		}
	}
	return nil
}

// uniqueName names a file's backend after the file; earlier files of the same name push it on.
func uniqueName(file string, earlier []string) string {
	name := mesh.NameOf(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)))
	for i, e := range earlier {
		if filepath.Base(e) == filepath.Base(file) {
			return fmt.Sprintf("%.55s-%d", name, i+2)
		}
	}
	return name
}

// schemaProblems finds what model APIs would refuse in a method's schemas.
func schemaProblems(m *catalog.Method) []catalog.Finding {
	var out []catalog.Finding
	if m.Tool.Name == "" {
		return nil
	}
	add := func(d toolschema.Direction, schema []byte) {
		for _, p := range toolschema.Problems(schema, toolschema.Portable, d) {
			out = append(out, catalog.Finding{Code: "schema-problem", Severity: catalog.SeverityWarning, Subject: m.Tool.Name, Message: p})
		}
	}
	add(toolschema.Input, m.InputSchema(toolschema.Portable))
	add(toolschema.Output, m.OutputSchema(toolschema.Portable))
	return out
}

func printReport(w io.Writer, r checkReport) {
	for _, f := range r.Findings {
		where := ""
		if f.Backend != "" {
			where = f.Backend + ": "
		}
		fmt.Fprintf(w, "%s: %s%s: %s\n", f.Severity, where, f.Code, f.Message)
	}
	t := r.Totals
	fmt.Fprintf(w, "%d services, %d methods, %d tools, %d routes; %d of %d request fields have comments; %d findings\n",
		t.Services, t.Methods, t.Tools, t.Routes, t.Fields-t.FieldsWithoutComment, t.Fields, len(r.Findings))
}
