package main

import (
	"os"

	"github.com/spf13/cobra"
)

func mcpCommand() *cobra.Command {
	var f sourceFlags
	var view string
	cmd := &cobra.Command{
		Use:     "mcp --backend [NAME=]TARGET...",
		Short:   "Serve backends to an agent host over MCP on standard input and output",
		Long:    "Serve MCP over stdio. Standard output carries the protocol only; logs go to standard error.\nEnds when standard input is closed and the calls in flight have finished.",
		Example: "  toolway mcp --backend 127.0.0.1:50051",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Whatever a library prints must not reach the protocol's stream.
			out := os.Stdout
			os.Stdout = os.Stderr
			c, err := f.loadServing()
			if err != nil {
				return err
			}
			if view != "" {
				c.MCP.View = view
			}
			m, err := openServing(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer m.Close()
			return m.ServeStdio(cmd.Context(), os.Stdin, out)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&view, "view", "", "`NAME` of the view to show: one of the configuration, or search, whose three tools find, describe and call all others (default: every tool)")
	return cmd
}
