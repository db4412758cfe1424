// Package process is the driver of package workloads that supervises processes of this machine.
//
// Each replica is a process group of its own. One that ends without being asked to is started again, after a pause that doubles. One that shall end gets SIGTERM, and SIGKILL
// after a grace; what is left of its group gets SIGKILL too. On Linux replicas outlive a supervisor that is killed, and the next one finds them: each has in its environment whose it is
// and which restart it comes from. A lock sees to it that there is one supervisor at a time, and that the next one does not look before what the last one was about to start is there.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/toolway/toolway/services/workloads"
)

// marker is the environment variable by which replicas are found again.
const marker = "WORKLOADS_REPLICA"

// lockPatience is how long a new supervisor waits for the last one's lock: a child that is between fork and exec holds it a moment longer.
const lockPatience = 3 * time.Second

// Options configures [Open].
type Options struct {
	// Owner tells the replicas of one supervisor from those of others on the machine: the store's ID. Required.
	Owner string
	// Lock is the path of a file that is locked while the driver is open. Required.
	Lock string
	// Backoff is the pause before a replica that ended is started again; it doubles up to BackoffMost, and is the first again after a replica has run for BackoffMost. Default: 500 ms, 30 s.
	Backoff, BackoffMost time.Duration
	// Logger hears of starts and ends. Default: nobody.
	Logger *slog.Logger
}

// Driver supervises processes. It implements [workloads.Driver]; nothing is started before the first Apply of a workload.
type Driver struct {
	options Options
	lock    *os.File
	changed chan struct{}
	byName  map[string]*supervisor
	names   []string
	running sync.WaitGroup
	closing chan struct{}
}

var _ workloads.Driver = (*Driver)(nil)

// Open makes a driver of workloads. It takes over the replicas that an earlier one with the same owner left running, and stops those of workloads that are not in the list, or are of another program by now.
func Open(ctx context.Context, list []Workload, options Options) (*Driver, error) {
	if options.Owner == "" || options.Lock == "" {
		return nil, errors.New("process driver: Owner and Lock are required")
	}
	if options.Backoff <= 0 {
		options.Backoff = 500 * time.Millisecond
	}
	if options.BackoffMost <= 0 {
		options.BackoffMost = 30 * time.Second
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	list = slices.Clone(list)
	if err := checkAll(list); err != nil {
		return nil, err
	}
	lock, err := acquire(ctx, options.Lock)
	if err != nil {
		return nil, err
	}
	d := &Driver{options: options, lock: lock, changed: make(chan struct{}, 1), byName: map[string]*supervisor{}, closing: make(chan struct{})}
	for i := range list {
		w := &list[i]
		d.byName[w.Name] = &supervisor{driver: d, workload: w, hash: w.hash()}
		d.names = append(d.names, w.Name)
	}
	slices.Sort(d.names)
	if err := d.adopt(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// acquire locks a file, for as long as it is open.
func acquire(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	for end := time.Now().Add(lockPatience); ; {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("lock %q: %w; is another process using it?", path, err), f.Close())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// adopt takes over what runs already.
func (d *Driver) adopt() error {
	found, err := survivors(d.options.Owner)
	if err != nil {
		return fmt.Errorf("look for replicas that run already: %w", err)
	}
	slices.SortFunc(found, func(a, b survivor) int { return int(b.restart - a.restart) }) // the youngest first
	for _, f := range found {
		s := d.byName[f.name]
		if f.leader && s != nil && s.hash == f.hash && s.take(f) {
			d.options.Logger.Info("replica taken over", "workload", f.name, "replica", f.index, "pid", f.pid)
			continue
		}
		d.options.Logger.Info("replica that is not wanted any more is stopped", "workload", f.name, "replica", f.index, "pid", f.pid)
		grace := defaultGrace
		if s != nil {
			grace = time.Duration(s.workload.Grace)
		}
		if !f.leader {
			// Its replica is gone, and with it whoever would have stopped it.
			killGroup(f.group, syscall.SIGKILL)
			continue
		}
		d.running.Go(func() { stop(f.follow(), grace) })
	}
	return nil
}

// Changed implements [workloads.Driver].
func (d *Driver) Changed() <-chan struct{} { return d.changed }

func (d *Driver) notify() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// Observe implements [workloads.Driver].
func (d *Driver) Observe(_ context.Context, name string) ([]workloads.Observed, error) {
	if name != "" {
		if s := d.byName[name]; s != nil {
			return []workloads.Observed{s.observe()}, nil
		}
		return nil, nil
	}
	out := make([]workloads.Observed, 0, len(d.names))
	for _, n := range d.names {
		out = append(out, d.byName[n].observe())
	}
	return out, nil
}

// Apply implements [workloads.Driver].
func (d *Driver) Apply(_ context.Context, w workloads.Wanted) (string, error) {
	s := d.byName[w.Name]
	if s == nil {
		return "", workloads.ErrGone
	}
	s.apply(w.Replicas, w.Restart)
	return s.revision(), nil
}

// Close stops all replicas, waits for them and releases the lock.
func (d *Driver) Close() error {
	close(d.closing)
	for _, s := range d.byName {
		s.close()
	}
	d.running.Wait()
	return d.lock.Close()
}

// mark is the value of [marker].
func mark(owner, name string, index int, restart int64, hash string) string {
	return strings.Join([]string{owner, name, strconv.Itoa(index), strconv.FormatInt(restart, 10), hash}, "/")
}

// survivor is a process that has a marker.
type survivor struct {
	pid, group int
	started    time.Time
	identity   string // tells it from a later process with the same pid
	leader     bool   // of its group, as replicas are
	name       string
	index      int
	restart    int64
	hash       string
}

// parseMark reads what mark wrote; ok is false for that of another owner.
func parseMark(value, owner string) (s survivor, ok bool) {
	parts := strings.Split(value, "/")
	if len(parts) != 5 || parts[0] != owner {
		return s, false
	}
	index, err := strconv.Atoi(parts[2])
	restart, err2 := strconv.ParseInt(parts[3], 10, 64)
	return survivor{name: parts[1], index: index, restart: restart, hash: parts[4]}, err == nil && err2 == nil && index >= 0
}
