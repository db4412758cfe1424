package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
)

func approvalsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "Show held calls of a running mesh, and decide about them",
		Long:  "Show the calls that a running mesh holds until somebody agrees to them, and decide about them.\nWhoever decides needs the scope that the approval names, and is not whoever made the call.",
		Args:  cobra.NoArgs, // an unknown subcommand is an error, not a request for help
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(approvalsListCommand(), approvalsWatchCommand(),
		approvalsDecideCommand("approve", "Let a held call through, once", func(ctx context.Context, c toolwayv1.ApprovalServiceClient, id, comment string) (*toolwayv1.HeldCall, error) {
			r, err := c.Approve(ctx, &toolwayv1.ApproveRequest{Id: id, Comment: comment})
			return r.GetApproval(), err
		}),
		approvalsDecideCommand("refuse", "Turn a held call away", func(ctx context.Context, c toolwayv1.ApprovalServiceClient, id, comment string) (*toolwayv1.HeldCall, error) {
			r, err := c.Refuse(ctx, &toolwayv1.RefuseRequest{Id: id, Comment: comment})
			return r.GetApproval(), err
		}))
	return cmd
}

// withApprovals runs f with a client of the mesh that the flags name.
func withApprovals(ctx context.Context, flags *meshFlags, f func(context.Context, toolwayv1.ApprovalServiceClient) error) error {
	ctx, conn, err := flags.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(ctx, toolwayv1.NewApprovalServiceClient(conn))
}

// callTimeout bounds a call that is not a stream.
const callTimeout = 30 * time.Second

func approvalsListCommand() *cobra.Command {
	var (
		f      meshFlags
		state  string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List held calls, the newest first",
		Example: "  toolway approvals list --mesh 127.0.0.1:7070",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := approvalState(state)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			return withApprovals(ctx, &f, func(ctx context.Context, c toolwayv1.ApprovalServiceClient) error {
				t := newApprovalTable(cmd.OutOrStdout(), asJSON)
				for token := ""; ; {
					page, err := c.ListApprovals(ctx, &toolwayv1.ListApprovalsRequest{State: want, PageSize: 500, PageToken: token})
					if err != nil {
						return tellStatus(err)
					}
					for _, a := range page.GetApprovals() {
						if err := t.row(a); err != nil {
							return err
						}
					}
					if token = page.GetNextPageToken(); token == "" {
						return t.flush()
					}
				}
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&state, "state", "pending", "only those in this `STATE`: pending, approved, refused, used, expired or all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each as one line of JSON")
	return cmd
}

func approvalsWatchCommand() *cobra.Command {
	var (
		f      meshFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show pending calls, and each change as it comes, until interrupted",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withApprovals(cmd.Context(), &f, func(ctx context.Context, c toolwayv1.ApprovalServiceClient) error {
				s, err := c.WatchApprovals(ctx, &toolwayv1.WatchApprovalsRequest{})
				if err != nil {
					return tellStatus(err)
				}
				t := newApprovalTable(cmd.OutOrStdout(), asJSON)
				for ctx.Err() == nil { // until interrupted
					m, err := s.Recv()
					switch {
					case err == nil:
						err = errors.Join(t.row(m.GetApproval()), t.flush())
					case errors.Is(err, io.EOF):
						err = errors.New("the mesh has ended the stream")
					case ctx.Err() == nil:
						err = tellStatus(err)
					}
					if err != nil && ctx.Err() == nil {
						return err
					}
				}
				return nil
			})
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each as one line of JSON")
	return cmd
}

func approvalsDecideCommand(verb, short string, decide func(ctx context.Context, c toolwayv1.ApprovalServiceClient, id, comment string) (*toolwayv1.HeldCall, error)) *cobra.Command {
	var (
		f       meshFlags
		comment string
	)
	cmd := &cobra.Command{
		Use:     verb + " ID",
		Short:   short,
		Example: "  toolway approvals " + verb + " ID --comment \"as agreed in INC-7\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			return withApprovals(ctx, &f, func(ctx context.Context, c toolwayv1.ApprovalServiceClient) error {
				a, err := decide(ctx, c, args[0], comment)
				if err != nil {
					return tellStatus(err)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s for %s, until %s\n", approvalWord(a.GetState()), a.GetId(), a.GetMethod(), call.PlainText(a.GetPrincipal()), a.GetExpiresAt().AsTime().Local().Format(time.TimeOnly))
				return err
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&comment, "comment", "", "`TEXT` for the caller and the audit")
	return cmd
}

var approvalStates = []string{"all", "pending", "approved", "refused", "used", "expired"}

func approvalState(word string) (toolwayv1.HeldCall_State, error) {
	i := slices.Index(approvalStates, word)
	if i < 0 {
		return 0, fmt.Errorf("--state %q: want one of %s", word, strings.Join(approvalStates, ", "))
	}
	return toolwayv1.HeldCall_State(i), nil //nolint:gosec // a short list
}

func approvalWord(s toolwayv1.HeldCall_State) string {
	if i := int(s); i > 0 && i < len(approvalStates) {
		return approvalStates[i]
	}
	return s.String()
}

// approvalTable prints approvals as a table, or as lines of JSON.
type approvalTable struct {
	w      *tabwriter.Writer
	out    io.Writer
	asJSON bool
	rows   int
}

func newApprovalTable(w io.Writer, asJSON bool) *approvalTable {
	return &approvalTable{w: tabwriter.NewWriter(w, 0, 4, 2, ' ', 0), out: w, asJSON: asJSON}
}

func (t *approvalTable) row(a *toolwayv1.HeldCall) error {
	if t.asJSON {
		b, err := protojson.Marshal(a)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(t.out, "%s\n", b)
		return err
	}
	if t.rows++; t.rows == 1 {
		fmt.Fprintln(t.w, "ID\tSTATE\tUNTIL\tPRINCIPAL\tMETHOD\tARGUMENTS")
	}
	arguments := call.PlainText(a.GetArguments())
	if len(arguments) > 100 || a.GetArgumentsCut() {
		arguments = strings.ToValidUTF8(arguments[:min(100, len(arguments))], "") + "…"
	}
	_, err := fmt.Fprintf(t.w, "%s\t%s\t%s\t%s\t%s\t%s\n", a.GetId(), approvalWord(a.GetState()), a.GetExpiresAt().AsTime().Local().Format(time.DateTime), call.PlainText(a.GetPrincipal()), a.GetMethod(), arguments)
	return err
}

func (t *approvalTable) flush() error { return t.w.Flush() }
