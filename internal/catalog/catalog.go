package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Catalog holds the current snapshot. It is safe for concurrent use.
type Catalog struct {
	current  atomic.Pointer[Snapshot]
	log      *slog.Logger
	debounce time.Duration
	backends []*backend
	rules    *ruleSet
	reports  chan sourced
	ready    chan struct{}
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// Config says what a catalog holds.
type Config struct {
	// Backends in the order in which they own what several of them bring.
	Backends []BackendConfig
	// Rules are the operator's, laid over what contracts say in their order: later ones win.
	Rules []Rule
	// Expose says what each door exposes. Default: everything.
	Expose Exposure
	// Judge says why the definition of a method must not be served before it has been reviewed, or "". It is asked once per definition, never
	// about the mesh's own methods. Default: everything is served.
	Judge func(*Method) string
	// Logger gets every new finding and every change. Default: nothing is logged.
	Logger *slog.Logger
	// Debounce is how long changes are collected before a new snapshot is made. Default 100 ms.
	Debounce time.Duration
}

// BackendConfig is one backend.
type BackendConfig struct {
	// Name is unique in the catalog.
	Name string
	// Sources of the backend's descriptors; at least one. The first one that has a contract leads; the others supply comments to it, and files
	// that it leaves out. Several descriptor files count as one.
	Sources []Source
	// Services are full names, or "pkg.*" for all of a package and the packages in it, that the backend may bring. Default: all.
	Services []string
	// ToolPrefix is put before the backend's tool names, with an underscore: letters, digits, _ and -, beginning with a letter, at most 24
	// characters. Default: none.
	ToolPrefix string
	// Failover is the name of a later backend with the same contract, which takes the calls that this one has not executed. Default: none.
	Failover string
}

// sourced is a report and where it comes from.
type sourced struct {
	backend *backend
	source  int
	report
}

var prefixForm = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,23}$`)

// Open reads what can be read without waiting, files and compiled-in services, and starts to follow all sources until Close. It fails when
// the configuration contradicts itself or a file cannot be read; a backend that does not answer is no error. ctx bounds nothing but the opening.
func Open(ctx context.Context, cfg Config) (*Catalog, error) {
	c := &Catalog{log: cfg.Logger, debounce: cmp.Or(cfg.Debounce, 100*time.Millisecond), reports: make(chan sourced), ready: make(chan struct{})}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if c.rules, err = newRuleSet(cfg); err != nil {
		return nil, fmt.Errorf("open the catalog: %w", err)
	}
	names := map[string]bool{}
	for _, bc := range cfg.Backends {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if names[bc.Name] || bc.Name == "" {
			return nil, fmt.Errorf("open the catalog: backend name %q is empty or used twice; give each backend its own", bc.Name)
		}
		names[bc.Name] = true
		b, err := newBackend(bc)
		if err != nil {
			return nil, fmt.Errorf("open the catalog: backend %q: %w", bc.Name, err)
		}
		c.backends = append(c.backends, b)
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	c.publish(c.build())
	c.settle()
	for _, b := range c.backends {
		for i, s := range b.sources {
			c.done.Go(func() {
				s.run(run, func(r report) {
					select {
					case c.reports <- sourced{b, i, r}:
					case <-run.Done():
					}
				})
			})
		}
	}
	c.done.Go(func() { c.follow(run) })
	return c, nil
}

// Fixed returns a catalog that never changes.
func Fixed(s *Snapshot) *Catalog {
	c := &Catalog{ready: make(chan struct{}), stop: func() {}}
	close(c.ready)
	c.current.Store(s)
	return c
}

// Snapshot returns the current snapshot; it never blocks and is never nil.
func (c *Catalog) Snapshot() *Snapshot { return c.current.Load() }

// Ready waits until every backend has brought a contract or failed to once, or ctx ends; it returns ctx's error then.
func (c *Catalog) Ready(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Watch yields the current snapshot and then each newer one, until ctx ends. A slow reader skips snapshots, never the newest.
func (c *Catalog) Watch(ctx context.Context) iter.Seq[*Snapshot] {
	return func(yield func(*Snapshot) bool) {
		for {
			s := c.Snapshot()
			if ctx.Err() != nil || !yield(s) {
				return
			}
			select {
			case <-s.Superseded():
			case <-ctx.Done():
				return
			}
		}
	}
}

// Close stops following the sources and waits for everything that Open started. The last snapshot stays.
func (c *Catalog) Close() error {
	c.stop()
	c.done.Wait()
	return nil
}

// follow collects reports and publishes a snapshot when they have been quiet, or been coming, for the debounce time.
func (c *Catalog) follow(ctx context.Context) {
	timer := time.NewTimer(c.debounce)
	timer.Stop()
	pending := false
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-c.reports:
			r.backend.reports[r.source] = r.report
			if c.unsettled() && c.allSettled() {
				pending = false
				c.publish(c.build())
				c.settle()
				continue
			}
			if !pending {
				pending = true
				timer.Reset(c.debounce)
			}
		case <-timer.C:
			if pending {
				pending = false
				c.publish(c.build())
			}
		}
	}
}

func (c *Catalog) unsettled() bool {
	select {
	case <-c.ready:
		return false
	default:
		return true
	}
}

func (c *Catalog) allSettled() bool {
	for _, b := range c.backends {
		if !b.settled() {
			return false
		}
	}
	return true
}

func (c *Catalog) settle() {
	if c.unsettled() && c.allSettled() {
		close(c.ready)
	}
}

func (c *Catalog) build() *Snapshot {
	inputs := make([]input, len(c.backends))
	for i, b := range c.backends {
		inputs[i] = b.input()
		inputs[i].rules = b.laidOver(c.rules)
	}
	return build(c.rules, inputs)
}

func (c *Catalog) publish(s *Snapshot) {
	old := c.current.Load()
	if old != nil && old.version == s.version {
		return
	}
	c.current.Store(s)
	known := map[Finding]bool{}
	if old != nil {
		for _, f := range old.findings {
			known[f] = true
		}
		close(old.superseded)
	}
	for _, f := range s.findings {
		if known[f] {
			continue
		}
		level := slog.LevelWarn
		if f.Severity == SeverityError {
			level = slog.LevelError
		}
		c.log.Log(context.Background(), level, f.Message, "backend", f.Backend, "code", f.Code, "subject", f.Subject)
	}
	c.log.Info("catalog changed", "version", s.version, "backends", len(s.backends), "services", len(s.services), "methods", len(s.methods), "tools", len(s.tools))
}

// backend is one backend's sources and what was made of their last reports. Only follow touches it once Open has returned.
type backend struct {
	cfg      BackendConfig
	prefix   string
	sources  []Source
	reports  []report
	loaded   []*contract // per source: its files alone, for those that donate
	revs     []int       // per source: the revision that loaded holds
	analysis *analysis
	made     string    // from which revisions analysis was made
	rules    *laid     // over laidOn
	laidOn   *analysis // what rules was made of
	failed   []Finding
	found    []Finding // by the loader
}

// laidOver returns the rules as they lie over the backend's contract.
func (b *backend) laidOver(rs *ruleSet) *laid {
	if b.analysis != nil && b.laidOn != b.analysis {
		b.rules, b.laidOn = rs.lay(b.analysis, b.cfg.Name), b.analysis
	}
	return b.rules
}

func newBackend(bc BackendConfig) (*backend, error) {
	if len(bc.Sources) == 0 {
		return nil, errors.New("it has no descriptor source; give it an address to reflect from or a descriptor file")
	}
	b := &backend{cfg: bc, sources: bc.Sources, reports: make([]report, len(bc.Sources)), loaded: make([]*contract, len(bc.Sources)), revs: make([]int, len(bc.Sources))}
	if p := bc.ToolPrefix; p != "" {
		if !prefixForm.MatchString(p) {
			return nil, fmt.Errorf("tool prefix %q must begin with a letter and hold at most 24 letters, digits, _ and -", p)
		}
		b.prefix = strings.TrimRight(p, "_-") + "_"
	}
	for i, s := range bc.Sources {
		r, err := s.start()
		if err != nil {
			return nil, err
		}
		b.reports[i] = r
	}
	if b.input(); len(b.failed) > 0 {
		return nil, errors.New(b.failed[0].Message)
	}
	return b, nil
}

func (b *backend) settled() bool {
	for _, r := range b.reports {
		if !r.settled {
			return false
		}
	}
	return true
}

// input makes what the builder needs. Files that have not changed are not loaded again.
func (b *backend) input() input {
	in := input{name: b.cfg.Name, services: b.cfg.Services, failover: b.cfg.Failover}
	lead := -1
	for i, r := range b.reports {
		if r.files != nil && (lead < 0 || b.reports[lead].fallback && !r.fallback) {
			lead = i
		}
		if r.watched {
			in.state = max(in.state, r.state)
		}
	}
	if lead >= 0 {
		in.trusted = b.reports[lead].trusted
		b.load(lead)
	}
	in.analysis = b.analysis
	for i, r := range b.reports {
		for _, f := range r.findings {
			if f.Code == codeNoReflection && lead >= 0 && lead != i {
				continue // the other source has the contract
			}
			in.findings = append(in.findings, f)
		}
	}
	in.findings = slices.Concat(in.findings, b.failed, b.found)
	return in
}

// load makes the contract of the leading source, helped by the others.
func (b *backend) load(lead int) {
	made := fmt.Sprint(lead)
	for _, r := range b.reports {
		made += fmt.Sprintf(" %d", r.rev)
	}
	if made == b.made {
		return
	}
	b.made, b.failed = made, nil
	var opts loadOptions
	opts.only = b.reports[lead].only
	files := b.reports[lead].files
	for i, r := range b.reports {
		if i == lead || r.files == nil || r.fallback {
			continue
		}
		if r.joins && b.reports[lead].joins {
			files = slices.Concat(files, r.files)
			continue
		}
		if b.loaded[i] == nil || b.revs[i] != r.rev {
			c, err := load(r.files, loadOptions{})
			if err != nil {
				b.fail(err)
				continue
			}
			b.loaded[i], b.revs[i] = c, r.rev
		}
		opts.donors = append(opts.donors, b.loaded[i])
	}
	c, err := load(files, opts)
	if err != nil {
		b.fail(err)
		return
	}
	b.found = c.findings
	if b.analysis == nil || b.analysis.contract.hash != c.hash {
		b.analysis = analyse(c, b.prefix)
	}
}

func (b *backend) fail(err error) {
	b.failed = append(b.failed, Finding{Code: "source-unreadable", Severity: SeverityError, Subject: b.cfg.Name, Message: fmt.Sprintf("load descriptors: %v", err)})
}
