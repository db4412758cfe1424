package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/toolway/toolway/internal/lock"
	"github.com/toolway/toolway/internal/mesh"
)

// defaultLock is where the lock is unless the configuration or a flag says otherwise.
const defaultLock = "toolway.lock"

func lockCommand() *cobra.Command {
	var (
		f   sourceFlags
		out string
	)
	cmd := &cobra.Command{
		Use:   "lock [FILE...]",
		Short: "Pin the definitions of tools as they are now",
		Long: `Write the definition of every tool to a file: name, description, schemas, annotations, HTTP rules, effective policy and sensitive fields.
Keep it under version control. A mesh with --lock FILE (lock: FILE in the configuration) quarantines tools whose definition is another one:
they are not listed and calls are refused, until a review has led to a new lock. What only tightens is not held back.`,
		Example: "  toolway lock --backend 127.0.0.1:50051\n  toolway lock --config toolway.yaml\n  toolway lock -o - shop.binpb",
		RunE: func(cmd *cobra.Command, files []string) error {
			now, path, err := lockedNow(cmd, &f, files)
			if err != nil {
				return err
			}
			if out != "" {
				path = out
			}
			if path == "-" {
				_, err := cmd.OutOrStdout().Write(now.Encode())
				return err
			}
			if err := replaceFile(path, now.Encode()); err != nil {
				return fmt.Errorf("write the lock: %w", err)
			}
			fmt.Fprintf(os.Stderr, "%s: %d tools\n", path, len(now.Tools))
			return nil
		},
	}
	f.register(cmd)
	cmd.Flags().StringVarP(&out, "out", "o", "", "`FILE` to write, - for standard output (default: the configuration's lock, else "+defaultLock+")")
	return cmd
}

// lockedNow returns the lock of the sources as they are, and where the configuration keeps it. A backend that cannot be read is an error: its
// tools would be gone from the lock.
func lockedNow(cmd *cobra.Command, f *sourceFlags, files []string) (*lock.File, string, error) {
	path := defaultLock
	// The lock is not to be judged by itself, nor need it be there.
	f.change = func(c *mesh.Config) {
		if c.Lock != "" {
			path, c.Lock = c.Lock, ""
		}
	}
	m, broken, err := openSources(cmd, f, files)
	if err != nil {
		return nil, "", err
	}
	defer m.Close()
	s := m.Catalog().Snapshot()
	if err := errors.Join(broken, unreadable(s)); err != nil {
		warn(s)
		return nil, "", err
	}
	return lock.Of(s), path, nil
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // it is gone when it was renamed
	_, err = tmp.Write(data)
	if err := errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
