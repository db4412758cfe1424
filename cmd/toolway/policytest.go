package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolway/toolway/internal/mesh"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Test the rules of a configuration",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(policyTestCommand())
	return cmd
}

func policyTestCommand() *cobra.Command {
	var f sourceFlags
	cmd := &cobra.Command{
		Use:   "test --config FILE CASES...",
		Short: "Judge calls as the mesh would, and compare with what is expected",
		Long: `Judge the calls in files of cases by the scopes, tenants and rules of a configuration, and compare with what is expected. Nothing is called.

Exit code 0: all as expected, and every rule fits its methods. 1: something is not. 2: something could not be read.`,
		Example: "  toolway policy test --config toolway.yaml cases.yaml\n  toolway policy test --config toolway.yaml --descriptors orders=orders.binpb cases.yaml",
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				return errors.New("want at least one file of cases")
			}
			var cases []mesh.Case
			for _, file := range files {
				more, err := mesh.LoadCases(file)
				if err != nil {
					return err
				}
				cases = append(cases, more...)
			}
			m, err := openMesh(cmd.Context(), &f, 15*time.Second)
			if err != nil {
				return err
			}
			defer m.Close()
			return judge(cmd, m, cases)
		},
	}
	f.register(cmd)
	return cmd
}

// judge prints a line for each case, and what was expected where it is not so.
func judge(cmd *cobra.Command, m *mesh.Mesh, cases []mesh.Case) error {
	failed := 0
	out := cmd.OutOrStdout()
	for i := range cases {
		c := &cases[i]
		v, err := m.Judge(c)
		if err == nil && c.Met(v) {
			fmt.Fprintf(out, "ok    %s: %s\n", c.Where(), c.Name)
			continue
		}
		failed++
		fmt.Fprintf(out, "FAIL  %s: %s\n", c.Where(), c.Name)
		if err != nil {
			fmt.Fprintf(out, "        %v\n", err)
			continue
		}
		fmt.Fprintf(out, "        want  %s\n        got   %s\n", by(c.Expect, c.Rule), by(v.Effect, v.Rule))
		if v.Why != "" {
			fmt.Fprintf(out, "        why   %s\n", v.Why)
		}
	}
	problems := m.CheckRules()
	for _, p := range problems {
		fmt.Fprintf(os.Stderr, "toolway: %v\n", p)
	}
	unmatched := m.Unmatched()
	for _, text := range unmatched {
		fmt.Fprintf(os.Stderr, "toolway: policy-unmatched: %s\n", text)
	}
	fmt.Fprintf(out, "%d cases, %d failed\n", len(cases), failed)
	if failed+len(problems)+len(unmatched) > 0 {
		return exitCode(1)
	}
	return nil
}

func by(effect, rule string) string {
	if rule == "" {
		return effect
	}
	return fmt.Sprintf("%s by %q", effect, rule)
}
