package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/verify"
)

func verifyCommand() *cobra.Command {
	var (
		f      sourceFlags
		o      verify.Options
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "verify [FILE...]",
		Short: "Prove that the tools of contracts work",
		Long: `Verify the tools of descriptor sets, buf images or live servers, without a call to any of them: for each tool, arguments are made that
its input schema accepts, edge values and random ones, and sent through the codec and back; results as a server may give them are made and
held against its output schema; and its name, its size, the rules of model APIs and its HTTP routes are checked. See docs/verify.md.

Exit code 0: fit. 1: findings. 2: something could not be read.`,
		Example: "  toolway verify shop.binpb\n  toolway verify --json --seed 7 --backend 127.0.0.1:50051",
		RunE: func(cmd *cobra.Command, files []string) error {
			report, err := verifySources(cmd, &f, files, o)
			if asJSON {
				if err != nil {
					report.Error = err.Error()
				}
				if err := printJSON(cmd.OutOrStdout(), report); err != nil {
					return err
				}
			}
			if !asJSON && (err == nil || len(report.Findings)+len(report.Tools) > 0) {
				if err := report.Print(cmd.OutOrStdout()); err != nil {
					return err
				}
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
	cmd.SetFlagErrorFunc(reportFlagError)
	cmd.Flags().Uint64Var(&o.Seed, "seed", 0, "`SEED` of what is random; the same seed gives the same report")
	cmd.Flags().IntVar(&o.Instances, "instances", verify.DefaultInstances, "`NUMBER` of random arguments and results for each schema, besides those that cover it; -1 for none")
	return cmd
}

// verifyReport is what verify prints; its JSON form is stable. Error is set when something could not be read.
type verifyReport struct {
	verify.Report
	Error string `json:"error,omitempty"`
}

func verifySources(cmd *cobra.Command, f *sourceFlags, files []string, o verify.Options) (verifyReport, error) {
	report := verifyReport{Report: verify.Report{Views: []verify.View{}, Tools: []verify.Tool{}, Findings: []catalog.Finding{}}}
	m, broken, err := openSources(cmd, f, files)
	if err != nil {
		return report, err
	}
	defer m.Close()
	s := m.Catalog().Snapshot()
	o.Entry = func(m *catalog.Method) []byte { return toolJSON(m, toolschema.Portable) }
	r, err := verify.Run(cmd.Context(), s, o)
	report.Report = *r
	if err != nil {
		return report, err
	}
	return report, errors.Join(broken, unreadable(s))
}
