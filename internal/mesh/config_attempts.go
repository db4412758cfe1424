package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/catalog"
)

// Attempts say how often and how a backend is tried; docs/policy.md has the rules.
type Attempts struct {
	Retry   Retry   `yaml:"retry"`
	Breaker Breaker `yaml:"breaker"`
	// Hedge are the methods for which a second attempt begins while the first is under way. Default: none.
	Hedge []Hedge `yaml:"hedge"`
}

// Retry bounds the attempts of one call, and what all of them add to a backend's load.
type Retry struct {
	// MaxAttempts includes the first attempt. Default 3; 1 turns retries off.
	MaxAttempts int `yaml:"max_attempts"`
	// BaseDelay bounds the wait before the second attempt; it doubles up to MaxDelay. Defaults 50ms and 1s.
	BaseDelay Duration `yaml:"base_delay"`
	MaxDelay  Duration `yaml:"max_delay"`
	// MaxWait is the longest wait that a backend may ask for. Default 10s.
	MaxWait Duration `yaml:"max_wait"`
	// MaxRequestBytes is the largest request that is kept for another attempt. Default 1 MiB.
	MaxRequestBytes int    `yaml:"max_request_bytes"`
	Budget          Budget `yaml:"budget"`
}

// Budget bounds the retries at one backend.
type Budget struct {
	// Ratio is how many retries a success earns. Default 0.1.
	Ratio float64 `yaml:"ratio"`
	// Burst is how many can be saved up. Default 10.
	Burst int `yaml:"burst"`
	// PerSecond is what time earns. Default 0.1.
	PerSecond float64 `yaml:"per_second"`
}

// Breaker says when a backend is left alone.
type Breaker struct {
	// Off turns breakers off.
	Off bool `yaml:"off"`
	// FailureRate is the share of at least MinAttempts attempts within Window that must fail. Defaults 0.5, 20 and 10s.
	FailureRate float64  `yaml:"failure_rate"`
	MinAttempts int      `yaml:"min_attempts"`
	Window      Duration `yaml:"window"`
	// Open is how long the backend is left alone then. Default 2s.
	Open Duration `yaml:"open"`
	// Probes is how many attempts must succeed after that. Default 3.
	Probes int `yaml:"probes"`
	// SlowAfter is how long an attempt must have taken for a passed deadline to count. Default 1s.
	SlowAfter Duration `yaml:"slow_after"`
}

// Hedge says when a second attempt begins.
type Hedge struct {
	// Methods are patterns of full methods, such as "acme.logs.v1.Logs/*".
	Methods []string `yaml:"methods"`
	// Delay is how long the first attempt is waited for.
	Delay Duration `yaml:"delay"`
	// Quantile, such as 0.95, makes it that quantile of the method's latest times; Delay holds until there are enough of them.
	Quantile float64 `yaml:"quantile"`
}

// normalise fills in defaults and refuses contradictions, those of failovers among them.
func (a *Attempts) normalise(backends []Backend) error {
	r, b := &a.Retry, &a.Breaker
	r.MaxAttempts = cmp.Or(r.MaxAttempts, 3)
	r.BaseDelay = cmp.Or(r.BaseDelay, Duration(50*time.Millisecond))
	r.MaxDelay = cmp.Or(r.MaxDelay, Duration(time.Second))
	r.MaxWait = cmp.Or(r.MaxWait, Duration(10*time.Second))
	r.MaxRequestBytes = cmp.Or(r.MaxRequestBytes, 1<<20)
	r.Budget.Ratio = cmp.Or(r.Budget.Ratio, 0.1)
	r.Budget.Burst = cmp.Or(r.Budget.Burst, 10)
	r.Budget.PerSecond = cmp.Or(r.Budget.PerSecond, 0.1)
	b.FailureRate = cmp.Or(b.FailureRate, 0.5)
	b.MinAttempts = cmp.Or(b.MinAttempts, 20)
	b.Window = cmp.Or(b.Window, Duration(10*time.Second))
	b.Open = cmp.Or(b.Open, Duration(2*time.Second))
	b.Probes = cmp.Or(b.Probes, 3)
	b.SlowAfter = cmp.Or(b.SlowAfter, Duration(time.Second))
	switch {
	case r.MaxAttempts < 1 || r.MaxAttempts > 10:
		return fmt.Errorf("attempts.retry.max_attempts %d is not between 1, which turns retries off, and 10", r.MaxAttempts)
	case r.BaseDelay > r.MaxDelay:
		return fmt.Errorf("attempts.retry.base_delay %v is above max_delay %v: lower the one or raise the other", time.Duration(r.BaseDelay), time.Duration(r.MaxDelay))
	case r.MaxRequestBytes < 0, r.Budget.Burst < 0, r.Budget.PerSecond < 0:
		return errors.New("attempts.retry: a limit cannot be negative; leave it out for the default")
	case r.Budget.Ratio < 0 || r.Budget.Ratio > 1:
		return fmt.Errorf("attempts.retry.budget.ratio %v is not between 0 and 1: it is how many retries a success earns", r.Budget.Ratio)
	case b.FailureRate < 0 || b.FailureRate > 1:
		return fmt.Errorf("attempts.breaker.failure_rate %v is not between 0 and 1", b.FailureRate)
	case b.MinAttempts < 1, b.Probes < 1:
		return errors.New("attempts.breaker: min_attempts and probes are at least 1")
	}
	for i, h := range a.Hedge {
		switch {
		case len(h.Methods) == 0:
			return fmt.Errorf("attempts.hedge[%d] names no methods: write full methods or patterns, such as acme.logs.v1.Logs/*", i)
		case h.Delay == 0:
			return fmt.Errorf("attempts.hedge[%d] has no delay: say how long the first attempt is waited for, such as 50ms", i)
		case h.Quantile < 0 || h.Quantile >= 1:
			return fmt.Errorf("attempts.hedge[%d].quantile %v is not below 1: write 0.95 for the time that 95 of 100 calls keep", i, h.Quantile)
		}
		if err := checkMethodPatterns(h.Methods); err != nil {
			return fmt.Errorf("attempts.hedge[%d]: %w", i, err)
		}
	}
	return checkFailover(backends)
}

// checkFailover wants each failover to be a later backend, which owns nothing that both bring, with targets and no failover of its own.
func checkFailover(backends []Backend) error {
	named, at := map[string]Backend{}, map[string]int{}
	for i, b := range backends {
		named[b.Name], at[b.Name] = b, i
	}
	for i, b := range backends {
		second, known := named[b.Failover]
		switch {
		case b.Failover == "":
		case b.Failover == b.Name:
			return fmt.Errorf("backend %q fails over to itself: name another backend", b.Name)
		case !known:
			return fmt.Errorf("backend %q fails over to %q, which is no backend here: add it, or correct the name", b.Name, b.Failover)
		case second.Failover != "":
			return fmt.Errorf("backend %q fails over to %q, which fails over itself: a call goes to two backends at most", b.Name, b.Failover)
		case at[b.Failover] < i:
			return fmt.Errorf("backend %q fails over to %q, which stands before it and so owns what both bring: list it after", b.Name, b.Failover)
		case len(second.Targets) == 0:
			return fmt.Errorf("backend %q fails over to %q, which has no targets", b.Name, b.Failover)
		}
	}
	return nil
}

// options returns what the interceptors of attempts need.
func (c *Config) attemptOptions() interceptors.AttemptOptions {
	r, b := c.Attempts.Retry, c.Attempts.Breaker
	o := interceptors.AttemptOptions{
		Retry: interceptors.RetryOptions{MaxAttempts: r.MaxAttempts, BaseDelay: time.Duration(r.BaseDelay), MaxDelay: time.Duration(r.MaxDelay), MaxWait: time.Duration(r.MaxWait),
			MaxBytes: r.MaxRequestBytes, BudgetRatio: r.Budget.Ratio, BudgetBurst: r.Budget.Burst, BudgetPerSecond: r.Budget.PerSecond},
		Breaker: interceptors.BreakerOptions{Off: b.Off, Rate: b.FailureRate, MinAttempts: b.MinAttempts, Window: time.Duration(b.Window), Open: time.Duration(b.Open), Probes: b.Probes,
			SlowAfter: time.Duration(b.SlowAfter)},
	}
	if hedges := c.Attempts.Hedge; len(hedges) > 0 {
		o.Hedge.Rule = func(m *catalog.Method) *interceptors.HedgeRule {
			for _, h := range hedges {
				if matchesMethod(h.Methods, m.FullMethod) {
					return &interceptors.HedgeRule{Delay: time.Duration(h.Delay), Quantile: h.Quantile}
				}
			}
			return nil
		}
	}
	return o
}

// checkMethodPatterns refuses what names no methods.
func checkMethodPatterns(patterns []string) error {
	for _, p := range patterns {
		if _, err := catalog.ParsePattern(p); err != nil {
			return err
		}
	}
	return nil
}

// matchesMethod says whether one of the patterns, as rules of policy have them, names a full method. It is asked once per method and snapshot.
func matchesMethod(patterns []string, fullMethod string) bool {
	return slices.ContainsFunc(patterns, func(text string) bool {
		p, err := catalog.ParsePattern(text)
		return err == nil && p.Match(fullMethod)
	})
}
