package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/toolway/toolway/internal/lock"
)

func diffCommand() *cobra.Command {
	var (
		f              sourceFlags
		path           string
		asJSON, github bool
	)
	cmd := &cobra.Command{
		Use:   "diff [FILE...]",
		Short: "Show how tools differ from the lock, and what that means for agents",
		Long: `Compare tools with the lock that toolway lock has written, in words: what breaks calls, what loosens a rule, what agents are told
differently, and what only tightens.

Exit code 0: nothing has changed. 1: something has. 2: something could not be read.`,
		Example: "  toolway diff --config toolway.yaml\n  toolway diff --lock toolway.lock shop.binpb\n  toolway diff --github --config toolway.yaml",
		RunE: func(cmd *cobra.Command, files []string) error {
			now, configured, err := lockedNow(cmd, &f, files)
			if err != nil {
				return err
			}
			if path == "" {
				path = configured
			}
			text, err := os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("read lock: %w; write it with toolway lock", err)
			}
			if err != nil {
				return fmt.Errorf("read lock: %w", err)
			}
			was, err := lock.Parse(text)
			if err != nil {
				return fmt.Errorf("read lock %q: %w", path, err)
			}
			changes := lock.Compare(was, now)
			switch {
			case asJSON:
				err = printJSON(cmd.OutOrStdout(), map[string]any{"changes": slices.Concat([]lock.Change{}, changes)})
			case github:
				err = lock.WriteGitHub(cmd.OutOrStdout(), inRepository(path), text, changes)
			default:
				err = lock.WriteText(cmd.OutOrStdout(), changes)
			}
			if err == nil && len(changes) > 0 {
				return exitCode(1)
			}
			return err
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&path, "lock", "", "lock `FILE` to compare with (default: the configuration's, else "+defaultLock+")")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the changes as JSON")
	cmd.Flags().BoolVar(&github, "github", false, "print annotations for a pull request on GitHub")
	cmd.MarkFlagsMutuallyExclusive("json", "github")
	return cmd
}

// inRepository returns the path of a file from the root of the Git repository that it is in, as annotations have to name it; the path as given where
// there is none.
func inRepository(path string) string {
	file, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			rel, err := filepath.Rel(dir, file)
			if err != nil {
				return path
			}
			return filepath.ToSlash(rel)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
	}
}
