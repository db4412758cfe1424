package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/audit"
)

func auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List, follow and export the records of calls",
		Long: "List, follow and export the records of calls: of a mesh that runs, which keeps them in its store, or without one the last ones in memory, or in " +
			"its audit file.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(auditListCommand(), auditTailCommand(), auditExportCommand())
	return cmd
}

// queryFlags say which records are wanted.
type queryFlags struct {
	principal, tenant, tool, trace, outcome string
	since                                   time.Duration
	asJSON                                  bool
}

func (f *queryFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.principal, "principal", "", "only calls of this principal")
	fs.StringVar(&f.tenant, "tenant", "", "only calls of this tenant")
	fs.StringVar(&f.tool, "tool", "", "only calls of this tool, or method as package.Service/Method")
	fs.StringVar(&f.trace, "trace", "", "only calls of this trace id")
	fs.StringVar(&f.outcome, "outcome", "", "only calls that ended so: ok, refused, failed or unknown")
}

func (f *queryFlags) registerJSON(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print records as lines of JSON, as in the audit file")
}

func (f *queryFlags) registerSince(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.since, "since", 0, "only calls that ended within this time, e.g. 1h")
}

func (f *queryFlags) query() (audit.Query, error) {
	q := audit.Query{Principal: f.principal, Tenant: f.tenant, Tool: f.tool, TraceID: f.trace}
	if f.since > 0 {
		q.Since = time.Now().Add(-f.since)
	}
	if f.outcome != "" {
		n, ok := toolwayv1.AuditRecord_Outcome_value["OUTCOME_"+strings.ToUpper(f.outcome)]
		if !ok || n == 0 {
			return q, fmt.Errorf("--outcome %q: want ok, refused, failed or unknown", f.outcome)
		}
		q.Outcome = toolwayv1.AuditRecord_Outcome(n)
	}
	return q, nil
}

func auditListCommand() *cobra.Command {
	var (
		from  auditFlags
		which queryFlags
		limit int
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the last calls, the newest first",
		Example: "  toolway audit list --outcome refused --since 1h\n  toolway audit list --file audit.jsonl --tool orders_delete --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := which.query()
			if err != nil {
				return err
			}
			if limit < 1 {
				return fmt.Errorf("--limit %d: want at least 1", limit)
			}
			records, err := from.list(cmd.Context(), q, limit)
			if err != nil {
				return err
			}
			out := recordPrinter(cmd.OutOrStdout(), which.asJSON)
			for _, r := range records {
				if err := out(r); err != nil {
					return err
				}
			}
			return nil
		},
	}
	from.register(cmd)
	which.register(cmd)
	which.registerJSON(cmd)
	which.registerSince(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "how many at most")
	return cmd
}

func auditTailCommand() *cobra.Command {
	var (
		from  auditFlags
		which queryFlags
	)
	cmd := &cobra.Command{
		Use:     "tail",
		Short:   "Print calls as they end",
		Example: "  toolway audit tail --outcome refused\n  toolway audit tail --file audit.jsonl",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := which.query()
			if err != nil {
				return err
			}
			return from.follow(cmd.Context(), q, recordPrinter(cmd.OutOrStdout(), which.asJSON))
		},
	}
	from.register(cmd)
	which.register(cmd)
	which.registerJSON(cmd)
	return cmd
}

func auditExportCommand() *cobra.Command {
	var (
		from  auditFlags
		which queryFlags
		until time.Duration
	)
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write all records as lines of JSON, the newest first",
		Long: "Write all records that a mesh keeps as lines of JSON, as they are in the audit file, the newest first. Records that are made meanwhile are not among " +
			"them. It ends with an error if it could not read them all.",
		Example: "  toolway audit export > audit.jsonl\n  toolway audit export --since 48h --until 24h --principal idp#ann | gzip > ann.jsonl.gz",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := which.query()
			if err != nil {
				return err
			}
			if until > 0 {
				q.Until = time.Now().Add(-until)
			}
			if !q.Until.IsZero() && !q.Since.IsZero() && !q.Since.Before(q.Until) {
				return fmt.Errorf("--since %s and --until %s leave nothing: want a longer --since", which.since, until)
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			if err := from.pages(cmd.Context(), q, 0, recordPrinter(out, true)); err != nil {
				_ = out.Flush() // the error is what counts
				return err
			}
			return out.Flush()
		},
	}
	from.registerMesh(cmd)
	which.register(cmd)
	which.registerSince(cmd)
	cmd.Flags().DurationVar(&until, "until", 0, "only calls that ended longer ago than this, e.g. 24h")
	return cmd
}

// recordPrinter prints records one a line, with a heading before the first.
func recordPrinter(w io.Writer, asJSON bool) func(*toolwayv1.AuditRecord) error {
	if asJSON {
		return func(r *toolwayv1.AuditRecord) error {
			line, err := audit.AppendJSON(nil, r)
			if err != nil {
				return err
			}
			_, err = w.Write(append(line, '\n'))
			return err
		}
	}
	const form = "%-24s  %-32s  %-4s  %-7s  %-20s  %9s  %-24s  %s\n"
	first := true
	return func(r *toolwayv1.AuditRecord) error {
		if first {
			first = false
			if _, err := fmt.Fprintf(w, form, "ENDED", "CALL", "DOOR", "OUTCOME", "CODE", "MS", "PRINCIPAL", "TOOL"); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(w, form, audit.Ended(r).UTC().Format("2006-01-02T15:04:05.000Z"), r.GetCallId(), r.GetDoor(), audit.Word(r.GetOutcome()),
			r.GetCode(), fmt.Sprintf("%.1f", r.GetLatencyMs()), or(r.GetPrincipal(), "-"), or(r.GetTool(), r.GetMethod()))
		return err
	}
}

// or returns s, or instead if s is empty.
func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}
