package main

import (
	"context"
	"path/filepath"
	"testing"
)

func TestVerifyExitCodes(t *testing.T) {
	shared := func(name string) string { return filepath.Join("..", "..", "..", "shared", "descriptors", name) }
	for _, c := range []struct {
		name string
		args []string
		want int
	}{
		{"fit", []string{"verify", shared("etcd.binpb")}, 0},
		{"several, as JSON", []string{"verify", "--json", "--instances", "1", shared("etcd.binpb"), shared("consul.binpb")}, 0},
		{"a contract of which something cannot be served", []string{"verify", shared("protobuf-conformance.binpb")}, 1},
		{"no such file", []string{"verify", "--json", "no-such.binpb"}, 2},
		{"nothing to verify", []string{"verify"}, 2},
		{"no such flag", []string{"verify", "--sed", "1"}, 2},
	} {
		if got := run(context.Background(), c.args); got != c.want {
			t.Errorf("%s: run(%q) = %d, want %d", c.name, c.args, got, c.want)
		}
	}
}
