package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/catalog"
)

// Limits protect the mesh and its backends from too many calls; docs/policy.md has the rules.
type Limits struct {
	// InFlight bounds all calls under way. Default 10,000; -1: no bound.
	InFlight int `yaml:"in_flight"`
	// Principal and Tenant are the rates of each caller and each tenant. Default: none.
	Principal Rate `yaml:"principal"`
	Tenant    Rate `yaml:"tenant"`
	// Backend bounds the calls under way at each backend. Default: half of InFlight, without a queue.
	Backend Bound `yaml:"backend"`
	// Methods are bounds of single methods, for all callers together; of several that cover a method the last that says something counts.
	Methods []MethodLimits `yaml:"methods"`
	// Shed sheds load by priority when backends get slower. Default: off.
	Shed Shed `yaml:"shed"`
}

// Rate is a token bucket.
type Rate struct {
	// PerSecond is how many tokens come in each second; a call takes its method's cost. 0: no limit.
	PerSecond float64 `yaml:"per_second"`
	// Burst is how many tokens there can be. Default: those of a second.
	Burst int `yaml:"burst"`
}

// Bound bounds calls under way.
type Bound struct {
	// Max is how many may be under way; -1: no bound.
	Max int `yaml:"max"`
	// Queue is how many may wait, for at most Wait. Defaults 0 and, with a queue, 100ms.
	Queue int      `yaml:"queue"`
	Wait  Duration `yaml:"wait"`
	// Share is the part of Max that one authenticated caller may have. Default 0.8; 1: all of it.
	Share float64 `yaml:"share"`
}

// MethodLimits are the bounds of the methods that patterns cover, each of its own.
type MethodLimits struct {
	Methods []string `yaml:"methods"`
	Rate    Rate     `yaml:"rate"`
	Bound   Bound    `yaml:"bound"`
}

// Shed sheds load.
type Shed struct {
	On bool `yaml:"on"`
	// Min, Initial and Max bound how many unary calls a backend gets at a time. Defaults 8, 64 and 2,000.
	Min     int `yaml:"min"`
	Initial int `yaml:"initial"`
	Max     int `yaml:"max"`
	// Wait is the longest that a call waits for its turn. Default 250ms.
	Wait Duration `yaml:"wait"`
}

// normalise fills in defaults and refuses contradictions.
func (l *Limits) normalise() error {
	l.InFlight = cmp.Or(l.InFlight, 10_000)
	if l.Backend.Max == 0 && l.InFlight > 0 {
		l.Backend.Max = max(1, l.InFlight/2)
	}
	if l.InFlight < -1 {
		return fmt.Errorf("limits.in_flight %d: write -1 for no bound", l.InFlight)
	}
	for name, r := range map[string]Rate{"principal": l.Principal, "tenant": l.Tenant} {
		if err := r.check(); err != nil {
			return fmt.Errorf("limits.%s: %w", name, err)
		}
	}
	if err := l.Backend.normalise(); err != nil {
		return fmt.Errorf("limits.backend: %w", err)
	}
	for i := range l.Methods {
		m := &l.Methods[i]
		if len(m.Methods) == 0 {
			return fmt.Errorf("limits.methods[%d] names no methods: write full methods or patterns, such as acme.logs.v1.Logs/*", i)
		}
		if m.Rate == (Rate{}) && m.Bound == (Bound{}) {
			return fmt.Errorf("limits.methods[%d] limits nothing: give it a rate or a bound, or remove it", i)
		}
		err := errors.Join(checkMethodPatterns(m.Methods), m.Rate.check())
		if m.Bound != (Bound{}) {
			err = errors.Join(err, m.Bound.normalise())
		}
		if err != nil {
			return fmt.Errorf("limits.methods[%d]: %w", i, err)
		}
	}
	s := &l.Shed
	switch {
	case s.Min < 0 || s.Initial < 0 || s.Max < 0:
		return errors.New("limits.shed: a bound cannot be negative; leave it out for the default")
	case !s.On && *s != (Shed{}):
		return errors.New("limits.shed has bounds but is off: set on: true, or drop them")
	case s.Max > 0 && (s.Min > s.Max || s.Initial > s.Max), s.Initial > 0 && s.Min > s.Initial:
		return fmt.Errorf("limits.shed: min %d, initial %d and max %d do not rise", s.Min, s.Initial, s.Max)
	}
	return nil
}

func (r Rate) check() error {
	switch {
	case r.PerSecond < 0, r.Burst < 0:
		return errors.New("a rate cannot be negative; leave it out for none")
	case r.PerSecond == 0 && r.Burst > 0:
		return fmt.Errorf("burst %d without per_second: say how fast the bucket fills", r.Burst)
	}
	return nil
}

func (b *Bound) normalise() error {
	b.Share = cmp.Or(b.Share, 0.8)
	if b.Queue > 0 {
		b.Wait = cmp.Or(b.Wait, Duration(100*time.Millisecond))
	}
	switch {
	case b.Max < -1:
		return fmt.Errorf("max %d: write -1 for no bound", b.Max)
	case b.Max <= 0 && b.Queue > 0:
		return errors.New("a queue without max: nothing would ever wait")
	case b.Queue < 0:
		return fmt.Errorf("queue %d cannot be negative", b.Queue)
	case b.Queue == 0 && b.Wait > 0:
		return errors.New("wait without queue: say how many calls may wait")
	case b.Share < 0 || b.Share > 1:
		return fmt.Errorf("share %v is not between 0 and 1: it is the part of max that one caller may have", b.Share)
	}
	return nil
}

func (r Rate) limit() interceptors.RateLimit {
	return interceptors.RateLimit{PerSecond: r.PerSecond, Burst: r.Burst}
}

func (b Bound) bulkhead() interceptors.Bulkhead {
	return interceptors.Bulkhead{Max: b.Max, Queue: b.Queue, Wait: time.Duration(b.Wait), Share: b.Share}
}

// options returns what the interceptors need.
func (l *Limits) options() interceptors.LimitOptions {
	o := interceptors.LimitOptions{
		InFlight: l.InFlight, Principal: l.Principal.limit(), Tenant: l.Tenant.limit(), Backend: l.Backend.bulkhead(),
		Shed: interceptors.ShedOptions{On: l.Shed.On, Min: l.Shed.Min, Initial: l.Shed.Initial, Max: l.Shed.Max, Wait: time.Duration(l.Shed.Wait)},
	}
	methods := l.Methods
	if len(methods) == 0 {
		return o
	}
	o.Method = func(m *catalog.Method) (found interceptors.RateLimit) {
		for _, of := range methods {
			if of.Rate != (Rate{}) && matchesMethod(of.Methods, m.FullMethod) {
				found = of.Rate.limit()
			}
		}
		return found
	}
	o.MethodBulkhead = func(m *catalog.Method) (found interceptors.Bulkhead) {
		for _, of := range methods {
			if of.Bound != (Bound{}) && matchesMethod(of.Methods, m.FullMethod) {
				found = of.Bound.bulkhead()
			}
		}
		return found
	}
	return o
}
