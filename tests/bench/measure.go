package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/toolway/toolway/tests/internal/run"
)

// caller makes one call after the other.
type caller struct {
	call  func(ctx context.Context) error
	close func()
}

// path is one way to the backend.
type path struct {
	name  string
	proxy *proxy // nil for the direct one
	// open returns a caller of a shape, nil if this path has no such call.
	open func(s shape) func() (caller, error)
}

// sample is what one round of a path measured.
type sample struct {
	rate                                float64 // calls a second
	p50, p99                            float64 // seconds
	backendCPU, proxyCPU, allocs, bytes float64 // a call; CPU in seconds
	allCPU                              float64 // a call, of the load too
}

// measure calls for a while and says what that took.
func (p *path) measure(ctx context.Context, s shape, backend process, callers int, length time.Duration) (sample, error) {
	m, err := p.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	b, err := backend.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	mine, err := ownCPU()
	if err != nil {
		return sample{}, err
	}
	out, calls, err := load(ctx, p.open(s), callers, length)
	if err != nil {
		return sample{}, err
	}
	mine2, err := ownCPU()
	if err != nil {
		return sample{}, err
	}
	b2, err := backend.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	m2, err := p.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	n := float64(calls)
	out.backendCPU, out.proxyCPU = (b2.cpu-b.cpu).Seconds()/n, (m2.cpu-m.cpu).Seconds()/n
	out.allCPU = out.backendCPU + out.proxyCPU + (mine2-mine).Seconds()/n
	out.allocs, out.bytes = (m2.allocs-m.allocs)/n, (m2.allocatedByte-m.allocatedByte)/n
	return out, nil
}

func (p *path) usage(ctx context.Context) (usage, error) {
	if p.proxy == nil {
		return usage{}, nil
	}
	return p.proxy.usage(ctx)
}

// load calls from many goroutines for a while. Each has a caller of its own, which is open before the clock starts; the first has made a call.
func load(ctx context.Context, open func() (caller, error), callers int, length time.Duration) (out sample, calls int, err error) {
	ctx, cancel := context.WithTimeout(ctx, length+run.Patience)
	defer cancel()
	all := make([]caller, callers)
	for i := range all {
		if all[i], err = open(); err != nil {
			return out, 0, err
		}
		defer all[i].close()
	}
	if err := all[0].call(ctx); err != nil {
		return out, 0, err
	}
	var wg sync.WaitGroup
	took := make([][]time.Duration, callers)
	failed := make([]error, callers)
	start := time.Now()
	for i, c := range all {
		wg.Go(func() {
			for last := start; last.Sub(start) < length; {
				if failed[i] = errors.Join(ctx.Err(), c.call(ctx)); failed[i] != nil {
					return
				}
				now := time.Now()
				took[i] = append(took[i], now.Sub(last))
				last = now
			}
		})
	}
	wg.Wait()
	whole := time.Since(start)
	for _, err := range failed {
		if err != nil {
			return out, 0, err
		}
	}
	sorted := slices.Concat(took...)
	slices.Sort(sorted)
	n := len(sorted)
	out.rate, out.p50, out.p99 = float64(n)/whole.Seconds(), sorted[n/2].Seconds(), sorted[min(n-1, n*99/100)].Seconds()
	return out, n, nil
}

// middle is the median of each figure.
func middle(samples []sample) sample {
	of := func(f func(sample) float64) float64 {
		v := make([]float64, len(samples))
		for i, s := range samples {
			v[i] = f(s)
		}
		return median(v)
	}
	return sample{
		rate: of(func(s sample) float64 { return s.rate }), p50: of(func(s sample) float64 { return s.p50 }), p99: of(func(s sample) float64 { return s.p99 }),
		backendCPU: of(func(s sample) float64 { return s.backendCPU }), proxyCPU: of(func(s sample) float64 { return s.proxyCPU }),
		allocs: of(func(s sample) float64 { return s.allocs }), bytes: of(func(s sample) float64 { return s.bytes }),
		allCPU: of(func(s sample) float64 { return s.allCPU }),
	}
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// ratio is a/b as text, to the digits that a busy machine can repeat.
func ratio(a, b float64) string {
	switch r := a / b; {
	case b == 0:
		return "–"
	case r >= 100:
		return fmt.Sprintf("%.0f", r)
	case r >= 10:
		return fmt.Sprintf("%.1f", r)
	default:
		return fmt.Sprintf("%.2f", r)
	}
}
