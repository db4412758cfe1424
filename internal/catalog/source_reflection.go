package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// Conn is what a source needs of a connection; *grpc.ClientConn has it.
type Conn interface {
	grpc.ClientConnInterface
	GetState() connectivity.State
	WaitForStateChange(ctx context.Context, last connectivity.State) bool
	Connect()
}

// diagnosis is what a connection may have besides: why it is not ready, in words for the operator, with the address. It must not block for long.
type diagnosis interface{ Why() string }

// ReflectionOptions say how a server is read. The zero value is the default.
type ReflectionOptions struct {
	// Interval between reads while the connection is up; jittered by a fifth. Default 30 s.
	Interval time.Duration
	// Grace is how long a lost connection counts as Flapping before it is Down. Default 5 s.
	Grace time.Duration
	// Timeout of one read. Default 30 s.
	Timeout time.Duration
	// MaxBytes of all descriptors of one read. Default 64 MiB.
	MaxBytes int
	// MaxFiles of one read. Default 4,096.
	MaxFiles int
}

func (o ReflectionOptions) withDefaults() ReflectionOptions {
	o.Interval = cmp.Or(o.Interval, 30*time.Second)
	o.Grace = cmp.Or(o.Grace, 5*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.MaxBytes = cmp.Or(o.MaxBytes, 64<<20)
	o.MaxFiles = cmp.Or(o.MaxFiles, 4096)
	return o
}

const codeNoReflection = "reflection-missing"

// Reflection returns a source that reads a server's descriptors by gRPC server reflection, v1 or else v1alpha, whenever the connection comes
// up and at an interval, and that watches the connection: it keeps it connected, and the backend's State follows it. A contract once read stays while
// the server cannot be read.
func Reflection(conn Conn, o ReflectionOptions) Source {
	return &reflection{conn: conn, opts: o.withDefaults(), reads: true}
}

// Connection returns a source that only watches the connection, for backends whose descriptors come from elsewhere and whose server has no
// reflection.
func Connection(conn Conn, o ReflectionOptions) Source {
	return &reflection{conn: conn, opts: o.withDefaults()}
}

type reflection struct {
	conn  Conn
	opts  ReflectionOptions
	reads bool

	now      report
	reading  *reading // the last one that was taken
	disputed int      // reads since servers behind the address last disagreed, counted down
	absent   map[string]int
	failures int
}

func (s *reflection) start() (report, error) {
	s.now = report{watched: true, state: Flapping}
	return s.now, nil
}

// run is the only goroutine that touches s; the watcher and the reader talk to it over channels, and it waits for both.
func (s *reflection) run(ctx context.Context, emit func(report)) {
	states := make(chan connectivity.State)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.watch(ctx, states)
	}()
	defer func() { <-watched }()

	results := make(chan result, 1)
	running, again := false, false
	read := func() {
		if !s.reads {
			return
		}
		if again = running; running {
			return
		}
		running = true
		go func() { results <- s.readTwice(ctx) }()
	}
	defer func() {
		if running {
			<-results
		}
	}()

	next, grace := stopped(), time.NewTimer(s.opts.Grace)
	defer next.Stop()
	defer grace.Stop()
	up := false
	for {
		select {
		case <-ctx.Done():
			return
		case st := <-states:
			was := up
			up = st == connectivity.Ready
			switch {
			case up && !was:
				grace.Stop()
				s.connected()
				read()
				emit(s.now)
			case !up && was:
				grace.Reset(s.opts.Grace)
				s.now.state = Flapping
				emit(s.now)
			case st == connectivity.TransientFailure && !s.now.settled:
				s.unreachable()
				emit(s.now)
			}
		case <-grace.C:
			if !up {
				s.now.state = Down
				s.unreachable()
				emit(s.now)
			}
		case r := <-results:
			running = false
			next.Reset(s.take(r))
			emit(s.now)
			if again && up {
				read()
			}
		case <-next.C:
			if up {
				read()
			}
		}
	}
}

func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// watch sends every state of the connection and keeps it from idling.
func (s *reflection) watch(ctx context.Context, states chan<- connectivity.State) {
	for {
		st := s.conn.GetState()
		if st == connectivity.Idle {
			s.conn.Connect()
		}
		select {
		case states <- st:
		case <-ctx.Done():
			return
		}
		if st == connectivity.Shutdown {
			<-ctx.Done()
			return
		}
		if !s.conn.WaitForStateChange(ctx, st) {
			return
		}
	}
}

func (s *reflection) connected() {
	s.now.state = Up
	s.failures = 0
	s.now.findings = slices.DeleteFunc(slices.Clone(s.now.findings), func(f Finding) bool { return f.Code == "backend-unreachable" })
	s.now.settled = s.now.settled || !s.reads
}

func (s *reflection) unreachable() {
	s.now.settled = true
	if slices.ContainsFunc(s.now.findings, func(f Finding) bool { return f.Code == "backend-unreachable" }) {
		return
	}
	why := "check its address and that it runs"
	if d, ok := s.conn.(diagnosis); ok {
		if text := d.Why(); text != "" {
			why = text
		}
	}
	s.now.findings = append(slices.Clone(s.now.findings), Finding{
		Code: "backend-unreachable", Severity: SeverityError, Subject: "connection",
		Message: "the backend does not answer; its tools come back when it does; " + why,
	})
}

type result struct {
	first, second *reading
	err           error
}

// confirmations is how often a change is read again before it is believed.
const confirmations = 3

// readTwice reads, and reads again when the first read differs from what is known, to tell a change from servers that disagree: second is the first
// of the further reads that differs from first, or the last one. Each takes a different number of streams, so that a balancer that goes round
// cannot lead all of them to one server.
func (s *reflection) readTwice(ctx context.Context) result {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	first, err := readServer(ctx, s.conn, s.opts, 0)
	if err != nil || s.reading == nil || first.hash == s.reading.hash {
		return result{first: first, err: err}
	}
	var second *reading
	for i := range confirmations {
		second, err = readServer(ctx, s.conn, s.opts, 1+i)
		if err != nil || second.hash != first.hash {
			break
		}
	}
	return result{first, second, err}
}

// take takes over what was read and returns when to read again.
func (s *reflection) take(r result) time.Duration {
	s.now.settled = true
	if r.err != nil {
		s.failures++
		s.now.findings = []Finding{readFinding(r.err, s.now.files != nil)}
		backoff := time.Second << min(s.failures-1, 5)
		return jitter(min(backoff, s.opts.Interval))
	}
	s.failures = 0
	s.now.findings = r.first.findings
	if s.disputed > 0 {
		s.disputed--
	}
	if r.first.disputed || r.second != nil && r.second.hash != r.first.hash {
		s.disputed = 3
	}
	switch {
	case s.reading == nil, r.second != nil && s.disputed == 0:
		s.adopt(r.first)
	case r.second != nil:
		s.merge(r.first, r.second)
	}
	return jitter(s.opts.Interval)
}

func (s *reflection) adopt(r *reading) {
	s.reading, s.absent = r, map[string]int{}
	s.now.files, s.now.only = r.files, r.services
	s.now.rev++
}

// merge keeps what is known and adds the services that are new in either read. A service goes when it was absent three times in a row.
func (s *reflection) merge(rs ...*reading) {
	merged := *s.reading
	for _, r := range rs {
		for _, svc := range r.services {
			if !slices.Contains(merged.services, svc) {
				merged.services = append(slices.Clone(merged.services), svc)
				merged.files = r.addTo(merged.files)
			}
		}
		merged.findings = append(slices.Clone(merged.findings), r.findings...)
	}
	merged.services = slices.DeleteFunc(slices.Clone(merged.services), func(svc string) bool {
		if slices.ContainsFunc(rs, func(r *reading) bool { return slices.Contains(r.services, svc) }) {
			delete(s.absent, svc)
			return false
		}
		s.absent[svc]++
		return s.absent[svc] >= 3
	})
	slices.Sort(merged.services)
	merged.hash = hashReading(merged.services, merged.files)
	absent := s.absent
	if merged.hash != s.reading.hash {
		s.adopt(&merged)
		s.absent = absent
	}
	known := slices.ContainsFunc(s.now.findings, func(f Finding) bool { return f.Code == "reflection-mismatch" })
	if !known && rs[0].hash != rs[1].hash {
		s.now.findings = append(slices.Clone(s.now.findings), mismatch(rs[0].services, rs[1].services))
	}
}

func mismatch(a, b []string) Finding {
	what := fmt.Sprintf("one lists %s, another %s", strings.Join(a, ", "), strings.Join(b, ", "))
	if slices.Equal(a, b) {
		what = "they list the same services with different definitions"
	}
	return Finding{
		Code: "reflection-mismatch", Severity: SeverityWarning, Subject: "server reflection",
		Message: fmt.Sprintf("servers behind the backend's address disagree: %s; all that was seen stays listed until they agree; give servers that differ their own backend", cut(what, 4096)),
	}
}

func readFinding(err error, known bool) Finding {
	if errors.Is(err, errNoReflection) {
		return Finding{Code: codeNoReflection, Severity: SeverityError, Subject: "server reflection", Message: "the server has no reflection (neither v1 nor v1alpha); give its descriptors with --descriptors NAME=FILE, or register reflection in the server"}
	}
	stays := "none is known yet"
	if known {
		stays = "the contract read before stays"
	}
	return Finding{Code: "reflection-failed", Severity: SeverityError, Subject: "server reflection", Message: fmt.Sprintf("read descriptors by reflection: %v; %s; check the server, or give its descriptors with --descriptors NAME=FILE", err, stays)}
}

func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
