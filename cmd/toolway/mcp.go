package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/mesh"
)

func mcpCommand() *cobra.Command {
	var f sourceFlags
	var view, remote, tokenFile, data, nats string
	cmd := &cobra.Command{
		Use:   "mcp {--backend [NAME=]TARGET... | --connect URL}",
		Short: "Serve backends to an agent host over MCP on standard input and output",
		Long: "Serve MCP over stdio. Standard output carries the protocol only; logs go to standard error.\nWhere the configuration asks who calls, TOOLWAY_TOKEN or TOOLWAY_API_KEY in the environment says it.\nEnds when standard input is closed and the calls in flight have finished.\n\n" +
			"With --connect a mesh that runs elsewhere is reached over Streamable HTTP, with the credential of --token-file, TOOLWAY_TOKEN or TOOLWAY_API_KEY.",
		Example: "  toolway mcp --backend 127.0.0.1:50051\n  toolway mcp --connect https://tools.example.com/mcp --view search --token-file ~/.toolway-token",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Whatever a library prints must not reach the protocol's stream.
			out := os.Stdout
			os.Stdout = os.Stderr
			if remote != "" {
				if len(f.backends)+len(f.descriptors) > 0 || f.config != "" {
					return errors.New("--connect reaches a mesh that has backends of its own: leave out --backend, --descriptors and --config, or run the mesh here without --connect")
				}
				if data != "" || nats != "" {
					return errors.New("--connect reaches a mesh that has state of its own: leave out --data and --nats, or run the mesh here without --connect")
				}
				return connect(cmd.Context(), remote, view, tokenFile, mesh.Log{Format: f.logFormat, Level: f.logLevel}, os.Stdin, out)
			}
			if tokenFile != "" {
				return errors.New("--token-file is for --connect: it says who calls the mesh at that URL")
			}
			c, err := f.loadServing()
			if err != nil {
				return err
			}
			if c.Expose.MCP == "" { // the host is on this machine, whatever the listeners' addresses are
				c.Expose.MCP = "all"
			}
			if data != "" {
				c.Data = data
			}
			if nats != "" {
				c.Store.NATS = nats
			}
			if view != "" {
				c.MCP.View = view
			}
			m, done, err := openServing(cmd.Context(), c, call.Credentials{Bearer: os.Getenv("TOOLWAY_TOKEN"), APIKey: os.Getenv("TOOLWAY_API_KEY")})
			if err != nil {
				return err
			}
			defer done()
			return m.ServeStdio(cmd.Context(), os.Stdin, out)
		},
	}
	f.register(cmd)
	f.registerLock(cmd)
	cmd.Flags().StringVar(&remote, "connect", "", "`URL` of the MCP endpoint of a mesh that runs elsewhere, instead of backends")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "`FILE` with the bearer token for --connect; read for every request, so it may be replaced")
	registerState(cmd, &data, &nats)
	cmd.Flags().StringVar(&view, "view", "", "`NAME` of the view to show: one of the configuration, or search, whose three tools find, describe and call all others (default: every tool)")
	return cmd
}
