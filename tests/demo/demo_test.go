package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestDemo plays the story of "make demo-incident". It fails where anything in it is not as it should be, and where a process does not end well.
func TestDemo(t *testing.T) {
	binaries, err := build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var told strings.Builder
	err = play(ctx, t.TempDir(), binaries, &told)
	t.Log(told.String())
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []string{"The shop works", "Payment gets a fault", "An agent asks", "A browser follows", "The restart is held", "The agent reads", "The shop has recovered", "The agent asks for the same restart", "The trail is read back", "The end"} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("step %d, %q, is not told", n+1, want)
		}
	}
}
