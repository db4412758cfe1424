package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/mesh"
	"github.com/toolway/toolway/internal/nearmiss"
	"github.com/toolway/toolway/internal/toolschema"
)

func toolsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List, show and call tools",
		Long:  "List, show and call tools of a gRPC server, a descriptor file, or a running mesh (--mesh TARGET; 127.0.0.1:7070 is the default).",
		Args:  cobra.NoArgs, // an unknown subcommand is an error, not a request for help
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(toolsListCommand(), toolsShowCommand(), toolsCallCommand())
	return cmd
}

// openMesh opens the mesh that the flags describe, without listeners, and waits until its catalog is complete or wait has passed.
// Without any source it stands before the mesh that runs on this machine.
func openMesh(ctx context.Context, f *sourceFlags, wait time.Duration) (*mesh.Mesh, error) {
	c, err := f.load()
	if err != nil {
		return nil, err
	}
	o := mesh.Options{Version: currentVersion(), NoStore: true}
	switch {
	case f.mesh != "" && len(c.Backends) > 0:
		return nil, errors.New("--mesh names a running mesh, which has backends of its own: leave out --backend, --descriptors and the configuration's backends, or --mesh")
	case f.tokenFile != "" && len(c.Backends) > 0:
		return nil, errors.New("--token-file says who calls a running mesh, and backends are not told: name the mesh with --mesh TARGET in place of --backend, or leave out --token-file")
	case len(c.Backends) == 0:
		o.LoginTo = "mesh-on-this-machine" // its name says in every message where the command looked
		target := "127.0.0.1:7070"
		if f.mesh != "" {
			o.LoginTo, target = "mesh", f.mesh
		}
		b, err := mesh.ParseBackend(o.LoginTo + "=" + target)
		if err != nil {
			return nil, fmt.Errorf("--mesh: %w", err)
		}
		c.Backends = append(c.Backends, b)
		o.Login = credential(f.tokenFile)
	}
	if !f.calls {
		c.Audit = mesh.Audit{}
	}
	log := slog.New(slog.DiscardHandler) // findings are told by the command itself
	if c.Log.Level != "" {
		if log, err = logger(c.Log, os.Stderr); err != nil {
			return nil, err
		}
	}
	o.Logger = log
	m, err := mesh.Open(ctx, c, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := m.Ready(ctx); err != nil {
		log.Warn("catalog is not complete", slog.Any("error", err))
	}
	return m, nil
}

func toolsListCommand() *cobra.Command {
	var (
		f      sourceFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List tools",
		Example: "  toolway tools list --backend 127.0.0.1:50051\n  toolway tools list --descriptors etcd.binpb",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := openMesh(cmd.Context(), &f, 10*time.Second)
			if err != nil {
				return err
			}
			defer m.Close()
			s := m.Catalog().Snapshot()
			warn(s)
			if asJSON {
				tools := make([]json.RawMessage, 0, len(s.Tools()))
				for _, t := range s.Tools() {
					tools = append(tools, toolJSON(t, toolschema.Portable))
				}
				return printJSON(cmd.OutOrStdout(), map[string]any{"tools": tools})
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "TOOL\tKIND\tHINTS\tMETHOD\tBACKEND")
			for _, t := range s.Tools() {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.Tool.Name, kindWord(t.Kind()), strings.Join(hintWords(t.Tool.Hints), ","), strings.TrimPrefix(t.FullMethod, "/"), t.Backend.Name)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			if len(s.Tools()) == 0 {
				return errors.New("no tools; toolway check says what is wrong with a contract")
			}
			return nil
		},
	}
	f.register(cmd)
	f.registerMesh(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print tools as MCP's tools/list has them")
	return cmd
}

func toolsShowCommand() *cobra.Command {
	var (
		f       sourceFlags
		asJSON  bool
		whole   bool
		profile string
	)
	cmd := &cobra.Command{
		Use:   "show TOOL|METHOD",
		Short: "Show one tool as an agent sees it, with its policy and where each value of it comes from",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want one tool or method, got %d: %s", len(args), cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := toolschema.ParseProfile(profile)
			if err != nil {
				return err
			}
			m, err := openMesh(cmd.Context(), &f, 10*time.Second)
			if err != nil {
				return err
			}
			defer m.Close()
			t, err := findTool(m.Catalog().Snapshot(), args[0])
			if err != nil {
				return err
			}
			in, out := t.InputSchema(p), t.OutputSchema(p)
			if whole {
				in, out = t.WholeSchema(toolschema.Input, p), t.WholeSchema(toolschema.Output, p)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), shownTool(t, in, out))
			}
			return showTool(cmd.OutOrStdout(), t, in, out)
		},
	}
	f.register(cmd)
	f.registerMesh(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the tool as MCP's tools/list has it, with its policy")
	cmd.Flags().BoolVar(&whole, "whole", false, "cut nothing of the schemas, however large they are")
	cmd.Flags().StringVar(&profile, "profile", "portable", "schema `PROFILE`: portable, full or strict")
	return cmd
}

func toolsCallCommand() *cobra.Command {
	var (
		f       sourceFlags
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:     "call TOOL|METHOD [JSON|@FILE|-]",
		Short:   "Call one tool and print its replies, one JSON line each",
		Long:    "Call one tool with JSON arguments (default {}); @FILE reads them from a file, - from standard input.\nReplies are printed as they come, one JSON object a line. A status other than OK is told on standard error; the exit code is 1.",
		Example: "  toolway tools call --backend 127.0.0.1:50051 greeter_say_hello '{\"name\":\"you\"}'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return fmt.Errorf("want a tool and at most one JSON argument, in quotes: %s", strings.TrimSpace(strings.Split(cmd.Example, "\n")[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			body := []byte("{}")
			if len(args) == 2 {
				var err error
				if body, err = readArgument(args[1], cmd.InOrStdin()); err != nil {
					return err
				}
			}
			m, err := openMesh(cmd.Context(), &f, 10*time.Second)
			if err != nil {
				return err
			}
			defer m.Close()
			t, err := findTool(m.Catalog().Snapshot(), args[0])
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			err = m.Invoke(ctx, t, body, func(reply []byte) error {
				_, err := cmd.OutOrStdout().Write(append(reply, '\n'))
				return err
			})
			if err == nil {
				return nil
			}
			return tellStatus(err)
		},
	}
	f.calls = true
	f.register(cmd)
	f.registerMesh(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "deadline of the call (default: the method's)")
	return cmd
}

// detail is a status detail as one line of JSON, or its type where that is not linked in.
func detail(d *anypb.Any) string {
	b, err := protojson.Marshal(d)
	if err != nil {
		return d.GetTypeUrl()
	}
	var line bytes.Buffer // protojson's spacing is random
	if err := json.Compact(&line, b); err != nil {
		return d.GetTypeUrl()
	}
	return line.String()
}

func readArgument(arg string, stdin io.Reader) ([]byte, error) {
	switch {
	case arg == "-":
		return io.ReadAll(stdin)
	case strings.HasPrefix(arg, "@"):
		return os.ReadFile(arg[1:])
	}
	return []byte(arg), nil
}

// findTool takes a tool name, a full method or pkg.Service.Method.
func findTool(s *catalog.Snapshot, name string) (*catalog.Method, error) {
	if t := s.Tool(name); t != nil {
		return t, nil
	}
	full := "/" + strings.TrimPrefix(name, "/")
	if m := s.Method(full); m != nil {
		return m, nil
	}
	if i := strings.LastIndex(full, "."); i > 0 {
		if m := s.Method(full[:i] + "/" + full[i+1:]); m != nil {
			return m, nil
		}
	}
	warn(s)
	var names []string
	for _, t := range s.Methods() {
		if t.Tool.Name != "" {
			names = append(names, t.Tool.Name, t.FullMethod[1:], string(t.Desc.FullName()))
		}
	}
	if near := nearmiss.Find(strings.TrimPrefix(name, "/"), slices.Values(names)); near != "" {
		return nil, fmt.Errorf("no tool %q; did you mean %q?", name, near)
	}
	return nil, fmt.Errorf("no tool %q among %d; toolway tools list shows them", name, len(s.Tools()))
}

// warn tells the errors among the findings on standard error, so that an empty list explains itself.
func warn(s *catalog.Snapshot) {
	for _, f := range s.Findings() {
		if f.Severity == "error" {
			fmt.Fprintf(os.Stderr, "toolway: %s: %s\n", f.Backend, f.Message)
		}
	}
}

// toolJSON is the tool as tools/list has it.
func toolJSON(m *catalog.Method, p toolschema.Profile) json.RawMessage {
	return toolEntry(m, m.InputSchema(p), m.OutputSchema(p))
}

func toolEntry(m *catalog.Method, in, out []byte) json.RawMessage {
	h := m.Tool.Hints
	b, err := json.Marshal(struct {
		Name         string          `json:"name"`
		Title        string          `json:"title"`
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema"`
		Annotations  map[string]bool `json:"annotations"`
	}{m.Tool.Name, m.Tool.Title, m.Tool.Description, in, out,
		map[string]bool{"readOnlyHint": h.ReadOnly, "destructiveHint": h.Destructive, "idempotentHint": h.Idempotent, "openWorldHint": h.OpenWorld}})
	if err != nil {
		return json.RawMessage(fmt.Sprintf(`{"name":%q,"error":%q}`, m.Tool.Name, err))
	}
	return b
}

// shownTool is the tool's entry with what only the operator sees.
func shownTool(m *catalog.Method, in, out []byte) json.RawMessage {
	more := fmt.Appendf(nil, `,"policy":%s`, policyJSON(m))
	if m.Quarantine != "" {
		why, _ := json.Marshal(m.Quarantine) // a text
		more = fmt.Appendf(more, `,"quarantine":%s`, why)
	}
	entry := toolEntry(m, in, out)
	return slices.Concat(entry[:len(entry)-1], more, []byte("}"))
}

func showTool(w io.Writer, m *catalog.Method, in, out []byte) error {
	name := m.Tool.Name
	if name == "" {
		name = "(no tool)"
	}
	fmt.Fprintf(w, "%s  %s\n", name, m.Tool.Title)
	fmt.Fprintf(w, "\n%s\n\n", m.Tool.Description)
	if m.Quarantine != "" {
		fmt.Fprintf(w, "QUARANTINED: %s.\nThe tool is not listed and its calls are refused until the change is reviewed (toolway diff) and accepted (toolway lock).\n\n", m.Quarantine)
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(t, "method\t%s\n", strings.TrimPrefix(m.FullMethod, "/"))
	fmt.Fprintf(t, "kind\t%s\n", kindWord(m.Kind()))
	fmt.Fprintf(t, "backend\t%s (%s)\n", m.Backend.Name, m.Backend.State)
	fmt.Fprintf(t, "hints\t%s\n", strings.Join(hintWords(m.Tool.Hints), ", "))
	for _, b := range m.Bindings {
		fmt.Fprintf(t, "route\t%s %s", b.Verb, b.Template)
		if b.Body != "" {
			fmt.Fprintf(t, "  body %s", b.Body)
		}
		if b.ResponseBody != "" {
			fmt.Fprintf(t, "  response_body %s", b.ResponseBody)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintf(t, "route\tPOST %s\n", m.FullMethod)
	if m.Deprecated {
		fmt.Fprintf(t, "deprecated\tyes\n")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := showPolicy(w, m); err != nil {
		return err
	}
	fmt.Fprintln(w, "\ninput schema")
	if err := printJSON(w, json.RawMessage(in)); err != nil {
		return err
	}
	fmt.Fprintln(w, "\noutput schema")
	return printJSON(w, json.RawMessage(out))
}

func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

func kindWord(k catalog.Kind) string {
	switch {
	case k.Client && k.Server:
		return "bidi"
	case k.Client:
		return "client stream"
	case k.Server:
		return "server stream"
	}
	return "unary"
}

func hintWords(h catalog.Hints) []string {
	out := []string{"writes"}
	if h.ReadOnly {
		out[0] = "read-only"
	}
	if h.Destructive {
		out = append(out, "destructive")
	}
	if h.Idempotent {
		out = append(out, "idempotent")
	}
	if h.OpenWorld {
		out = append(out, "open-world")
	}
	return out
}
