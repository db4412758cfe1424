// Command toolway puts gRPC servers behind three doors: gRPC, MCP and HTTP.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// exitCode is an error that has been told already; it only sets the exit code.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// run runs one command line and returns the exit code: 0, what a command asked for, or 2 for a mistake in the command line or its input.
func run(ctx context.Context, args []string) int {
	root := &cobra.Command{
		Use:           "toolway",
		Short:         "Serve gRPC services as gRPC, MCP and HTTP",
		Long:          "Toolway stands before gRPC servers and serves their methods to gRPC clients, AI agents (MCP) and browsers (REST and SSE).\nEverything is derived from descriptors; no code per service is needed.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       currentVersion(),
	}
	root.SetFlagErrorFunc(explainFlag)
	root.AddCommand(serveCommand(), mcpCommand(), toolsCommand(), checkCommand(), lockCommand(), diffCommand(), verifyCommand(), keyCommand(), approvalsCommand(), policyCommand(), whyCommand(), auditCommand(), versionCommand())
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(os.Stderr, "toolway:", err)
	return 2
}
