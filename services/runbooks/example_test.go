package runbooks_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	runbooksv1 "github.com/toolway/toolway/gen/agentops/runbooks/v1"
	"github.com/toolway/toolway/services/runbooks"
)

// A folder is read, and searched in; Register adds the server to a gRPC server.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	text := "---\ntitle: A disk is nearly full\nalerts: [DiskAlmostFull]\n---\n1. Look at `df -h` first.\n2. Delete old exports.\n"
	if err := os.WriteFile(filepath.Join(dir, "disk-full.md"), []byte(text), 0o644); err != nil {
		panic(err)
	}
	library, err := runbooks.Open(dir, runbooks.Options{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = library.Close() }()

	server := runbooks.NewServer(library, nil)
	found, err := server.SearchRunbooks(context.Background(), &runbooksv1.SearchRunbooksRequest{Query: "deleting exports"})
	if err != nil {
		panic(err)
	}
	for _, m := range found.Matches {
		fmt.Println(m.Runbook.Name, m.Runbook.Title, m.Passages)
	}
	// Output: runbooks/disk-full A disk is nearly full [Delete old exports.]
}
