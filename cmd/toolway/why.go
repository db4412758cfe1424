package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/audit"
)

func whyCommand() *cobra.Command {
	var (
		from   auditFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "why CALL_ID",
		Short: "Say why a call ended as it did",
		Long: `Show one call: who called, what each policy decided and how long it took, the tries at the backend, the time that there was, and the outcome.

Callers find the id in what they were answered: the HTTP header Toolway-Call-Id (or X-Request-Id), the gRPC trailer toolway-call-id, the member
io.toolway/call-id of MCP's _meta; the log has it as call_id.`,
		Example: "  toolway why 4f1c0d8e9a7b6c5d4e3f2a1b0c9d8e7f\n  toolway why 4f1c0d8e9a7b6c5d4e3f2a1b0c9d8e7f --file audit.jsonl",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want one call id, got %d: %s", len(args), cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := from.call(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return recordPrinter(cmd.OutOrStdout(), true)(r)
			}
			return explainCall(cmd.OutOrStdout(), r)
		},
	}
	from.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the record as JSON, as in the audit file")
	return cmd
}

// explainCall prints a record for people.
func explainCall(out io.Writer, r *toolwayv1.AuditRecord) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("call", "%s", r.GetCallId())
	row("outcome", "%s", outcomeText(r))
	if r.GetMessage() != "" {
		row("", "%q", r.GetMessage())
	}
	row("what", "%s", strings.Join(nonEmpty(r.GetTool(), r.GetMethod()), ", "))
	row("backend", "%s", r.GetBackend())
	row("door", "%s", strings.Join(nonEmpty(r.GetDoor(), r.GetProtocolVersion(), prefixed("from ", r.GetPeer())), " "))
	row("who", "%s", whoText(r))
	if len(r.GetScopes()) > 0 {
		row("scopes", "%s", strings.Join(r.GetScopes(), " "))
	}
	row("when", "%s, for %s ms", r.GetStartedAt().AsTime().Format("2006-01-02T15:04:05.000Z"), number(r.GetLatencyMs()))
	row("budget", "%s", budgetText(r))
	for _, f := range []struct{ name, value string }{{"trace", r.GetTraceId()}, {"request", r.GetRequestId()}, {"approval", r.GetApprovalId()}, {"key", prefixed("sha256 ", r.GetIdempotencyKeyHash())}} {
		if f.value != "" {
			row(f.name, "%s", f.value)
		}
	}
	row("arguments", "%s", argumentsText(r))
	if r.GetArgumentsHash() != "" {
		row("", "sha256 %s", r.GetArgumentsHash())
	}
	row("result", "%s", resultText(r))
	if r.GetSideEffectId() != "" {
		row("effect", "%s", r.GetSideEffectId())
	}
	row("definition", "%s", r.GetDefinitionHash())
	if err := w.Flush(); err != nil {
		return err
	}
	if err := printSteps(out, r); err != nil {
		return err
	}
	return printAttempts(out, r)
}

func nonEmpty(texts ...string) []string {
	var out []string
	for _, t := range texts {
		if t != "" {
			out = append(out, t)
		}
	}
	return out
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// number writes milliseconds as short as their size allows.
func number(ms float64) string {
	if ms >= 100 {
		return fmt.Sprintf("%.0f", ms)
	}
	return fmt.Sprintf("%.3f", ms)
}

func outcomeText(r *toolwayv1.AuditRecord) string {
	text := audit.Word(r.GetOutcome()) + ": " + r.GetCode()
	if r.GetReason() != "" {
		text += " " + r.GetReason()
	}
	switch r.GetOutcome() {
	case toolwayv1.AuditRecord_OUTCOME_REFUSED:
		text += "; the backend never got the call"
	case toolwayv1.AuditRecord_OUTCOME_FAILED:
		text += "; the backend answered so"
	case toolwayv1.AuditRecord_OUTCOME_UNKNOWN:
		text += "; the backend got the call, and whether it took effect is not known"
	}
	return text
}

func whoText(r *toolwayv1.AuditRecord) string {
	if r.GetPrincipal() == "" {
		return "nobody: the call ended before anybody was authenticated"
	}
	if r.GetAuthentication() == "none" {
		return r.GetPrincipal() + ", since nobody is asked who calls"
	}
	return strings.Join(nonEmpty(r.GetPrincipal(), prefixed("of tenant ", r.GetTenant()), prefixed("by ", r.GetAuthentication())), " ")
}

// budgetText says how much time there was, and how much was left.
func budgetText(r *toolwayv1.AuditRecord) string {
	if r.GetDeadline() == nil {
		return "no deadline"
	}
	whole := r.GetDeadline().AsTime().Sub(r.GetStartedAt().AsTime())
	left := whole - time.Duration(r.GetLatencyMs()*float64(time.Millisecond))
	if left <= 0 {
		return fmt.Sprintf("%v, all spent", whole.Round(time.Millisecond))
	}
	return fmt.Sprintf("%v, of which %v were left", whole.Round(time.Millisecond), left.Round(time.Millisecond))
}

func argumentsText(r *toolwayv1.AuditRecord) string {
	switch {
	case r.GetRequests() == 0:
		return "not read"
	case r.GetArguments() == "" && r.GetArgumentsCut():
		return "too large to be kept"
	case r.GetArguments() == "":
		return "not kept"
	}
	text := r.GetArguments()
	if r.GetArgumentsCut() {
		text += " (cut)"
	}
	if r.GetRequests() > 1 {
		text += fmt.Sprintf(" (the first of %d)", r.GetRequests())
	}
	return text
}

func resultText(r *toolwayv1.AuditRecord) string {
	if r.GetResults() == 0 {
		return "none"
	}
	text := fmt.Sprintf("%d bytes", r.GetResultBytes())
	if r.GetResults() > 1 {
		text += fmt.Sprintf(" in %d messages", r.GetResults())
	}
	return strings.Join(nonEmpty(text, prefixed("sha256 ", r.GetResultHash()), r.GetResultUri()), ", ")
}

// printSteps prints each policy's decision, when the call reached it, and how long it took by itself: the time of a policy includes what is
// behind it, so that of the next one is taken off.
func printSteps(out io.Writer, r *toolwayv1.AuditRecord) error {
	if len(r.GetSteps()) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "\nPOLICY\tAT MS\tITSELF MS\tDECISION\tWHY")
	steps := r.GetSteps()
	for i, s := range steps {
		itself := s.GetTookMs()
		if i+1 < len(steps) {
			itself -= steps[i+1].GetTookMs()
		}
		name := "itself"
		if i+1 == len(steps) && r.GetOutcome() != toolwayv1.AuditRecord_OUTCOME_REFUSED {
			name = "with the backend" // what is behind the last policy
		}
		text := number(max(0, itself))
		if name != "itself" {
			text += " " + name
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.GetName(), number(s.GetAtMs()), text, or(s.GetVerdict(), "-"), s.GetDetail())
	}
	return w.Flush()
}

func printAttempts(out io.Writer, r *toolwayv1.AuditRecord) error {
	if len(r.GetAttempts()) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "\nATTEMPT\tBACKEND\tTARGET\tAT MS\tTOOK MS\tCODE\tOUTCOME\tWHY")
	for i, a := range r.GetAttempts() {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i+1, or(a.GetBackend(), "-"), or(a.GetTarget(), "-"), number(a.GetAtMs()), number(a.GetTookMs()), a.GetCode(), a.GetOutcome(), a.GetWhy())
	}
	return w.Flush()
}
