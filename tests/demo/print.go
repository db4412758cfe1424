package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// printer tells the story. It may be used concurrently: the reader of events tells what comes while others act.
type printer struct {
	begun time.Time

	mu sync.Mutex
	w  io.Writer
	n  int
}

// step begins a step of the story.
func (p *printer) step(title string, explained ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	fmt.Fprintf(p.w, "\n%d. %s  (%.0f s)\n", p.n, title, time.Since(p.begun).Seconds())
	for _, line := range explained {
		fmt.Fprintf(p.w, "   %s\n", line)
	}
}

// did says who did what at which door, and what came of it.
func (p *printer) did(who, door, what, result string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "   %-10s %-5s %s\n", who, door, what)
	for line := range strings.Lines(result) {
		fmt.Fprintf(p.w, "   %16s → %s\n", "", strings.TrimRight(line, "\n"))
	}
}

// line prints a line as it is.
func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format+"\n", args...)
}
