package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

const (
	// probeEvery is how often a replica that is not ready is asked, and probeReadyEvery one that is.
	probeEvery, probeReadyEvery = 100 * time.Millisecond, 2 * time.Second
	probeTimeout                = time.Second
)

// slot is the place of one replica: its loop starts a process, watches it and stops it.
type slot struct {
	supervisor *supervisor
	index      int
	woken      chan struct{} // has a value when what is wanted may have changed
	found      *survivor     // runs already
	begun      bool          // guarded by the supervisor's mutex, as all below

	running  bool
	ready    bool
	restart  int64 // that the process comes from
	started  time.Time
	failures int // ends in a row
}

func newSlot(s *supervisor, index int) *slot {
	return &slot{supervisor: s, index: index, woken: make(chan struct{}, 1)}
}

func (s *slot) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// child is a process that runs, started by us or found.
type child struct {
	pid  int
	done chan struct{} // closed when it has ended
	how  string        // it ended; read after done
}

// run sees to the replica until the driver closes.
func (s *slot) run() {
	options := &s.supervisor.driver.options
	log := options.Logger.With("workload", s.supervisor.workload.Name, "replica", s.index)
	backoff := options.Backoff
	found := s.found
	for {
		restart, ok := s.supervisor.wanted(s.index)
		if !ok && found == nil {
			select {
			case <-s.woken:
				continue
			case <-s.supervisor.driver.closing:
				return
			}
		}
		var c *child
		started := time.Now()
		if found != nil {
			c, restart, started = found.follow(), found.restart, found.started
			found = nil
		} else {
			var err error
			if c, err = s.start(restart); err != nil {
				log.Warn("replica does not start", "error", err, "retry_in", backoff)
				s.failed(err.Error())
				backoff = s.pause(backoff)
				continue
			}
			log.Info("replica started", "pid", c.pid, "restart", restart)
		}
		s.supervisor.set(func() { s.running, s.ready, s.restart, s.started = true, false, restart, started })
		asked := s.watch(c, restart)
		if asked {
			stop(c, time.Duration(s.supervisor.workload.Grace))
		}
		killGroup(c.pid, syscall.SIGKILL) // what is left of it
		s.supervisor.set(func() { s.running, s.ready = false, false })
		if asked {
			log.Info("replica stopped", "pid", c.pid, "how", c.how)
			backoff = options.Backoff
			s.supervisor.set(func() { s.failures = 0 })
			continue
		}
		if time.Since(started) >= options.BackoffMost {
			backoff = options.Backoff
			s.supervisor.set(func() { s.failures = 0 })
		}
		log.Warn("replica ended", "pid", c.pid, "how", c.how, "retry_in", backoff)
		s.failed(c.how)
		backoff = s.pause(backoff)
	}
}

func (s *slot) failed(how string) {
	s.supervisor.set(func() { s.failures++ })
	s.supervisor.ended(s, how)
}

// pause waits before the next start, and returns the pause after that. What is wanted may change meanwhile: a restart does not wait.
func (s *slot) pause(d time.Duration) time.Duration {
	timer := time.NewTimer(d)
	defer timer.Stop()
	before, _ := s.supervisor.wanted(s.index)
	for {
		select {
		case <-timer.C:
			return min(2*d, s.supervisor.driver.options.BackoffMost)
		case <-s.supervisor.driver.closing:
			return d
		case <-s.woken:
			if restart, ok := s.supervisor.wanted(s.index); !ok || restart != before {
				return s.supervisor.driver.options.Backoff
			}
		}
	}
}

// start starts a process in a group of its own.
func (s *slot) start(restart int64) (*child, error) {
	w := s.supervisor.workload
	expand := w.expander(s.index)
	args := make([]string, len(w.Command))
	for i, a := range w.Command {
		args[i] = expand.Replace(a)
	}
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...) // it is ended by signals, not by a context
	cmd.Dir = expand.Replace(w.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "WORKLOAD_NAME="+w.Name, "WORKLOAD_REPLICA="+strconv.Itoa(s.index))
	if w.Port != 0 {
		cmd.Env = append(cmd.Env, "PORT="+strconv.Itoa(w.Port+s.index))
	}
	for key, value := range w.Env {
		cmd.Env = append(cmd.Env, key+"="+expand.Replace(value))
	}
	cmd.Env = append(cmd.Env, marker+"="+mark(s.supervisor.driver.options.Owner, w.Name, s.index, restart, s.supervisor.hash))
	// Files, not pipes: a replica that outlives this process must be able to write.
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if w.Output != "" {
		out, err := os.OpenFile(expand.Replace(w.Output), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return nil, err
		}
		defer out.Close()
		cmd.Stdout, cmd.Stderr = out, out
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{pid: cmd.Process.Pid, done: make(chan struct{})}
	s.supervisor.driver.running.Go(func() {
		c.how = ending(cmd.Wait())
		close(c.done)
	})
	return c, nil
}

// ending says how a process ended.
func ending(err error) string {
	var exit *exec.ExitError
	if err == nil {
		return "exit status 0"
	}
	if errors.As(err, &exit) {
		return exit.String()
	}
	return err.Error()
}

// watch returns when the process has ended, false, or shall end, true; it sees to readiness meanwhile.
func (s *slot) watch(c *child, restart int64) (asked bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	probes := make(chan bool)
	s.supervisor.driver.running.Go(func() { s.probe(ctx, probes) })
	defer func() {
		cancel()
		for range probes { // until it has ended
		}
	}()
	for {
		if wanted, ok := s.supervisor.wanted(s.index); !ok || wanted > restart {
			return true
		}
		select {
		case <-c.done:
			return false
		case <-s.woken:
		case <-s.supervisor.driver.closing:
			return true
		case ready, ok := <-probes:
			if ok {
				s.supervisor.set(func() { s.ready = ready })
			}
		}
	}
}

// probe tells whenever readiness changes, until ctx ends, and closes out.
func (s *slot) probe(ctx context.Context, out chan<- bool) {
	defer close(out)
	w := s.supervisor.workload
	ask := probeOf(w, s.index)
	if ask == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(w.Ready.After)):
			select {
			case out <- true:
			case <-ctx.Done():
			}
			<-ctx.Done()
		}
		return
	}
	ready := false
	for {
		if now := ask(ctx); now != ready {
			ready = now
			select {
			case out <- ready:
			case <-ctx.Done():
				return
			}
		}
		wait := probeEvery
		if ready {
			wait = probeReadyEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// probeOf is what asks a replica whether it is ready; nil if that is a matter of time.
func probeOf(w *Workload, index int) func(context.Context) bool {
	expand := w.expander(index)
	switch {
	case w.Ready.TCP != "":
		addr := expand.Replace(w.Ready.TCP)
		dialer := &net.Dialer{Timeout: probeTimeout}
		return func(ctx context.Context) bool {
			conn, err := dialer.DialContext(ctx, "tcp", addr)
			if err != nil {
				return false
			}
			return conn.Close() == nil
		}
	case w.Ready.HTTP != "":
		url := expand.Replace(w.Ready.HTTP)
		client := &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
		return func(ctx context.Context) bool {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
			if err != nil {
				return false
			}
			resp, err := client.Do(req)
			if err != nil {
				return false
			}
			return resp.Body.Close() == nil && resp.StatusCode >= 200 && resp.StatusCode < 400
		}
	}
	return nil
}

// stop asks a process and its group to end, makes them after a grace, and waits for the process.
func stop(c *child, grace time.Duration) {
	select {
	case <-c.done:
		return
	default:
	}
	killGroup(c.pid, syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.done:
		return
	case <-timer.C:
	}
	killGroup(c.pid, syscall.SIGKILL)
	<-c.done
}

// killGroup signals a process group; one that is not there is none of our business.
func killGroup(group int, signal syscall.Signal) {
	if group > 1 {
		_ = syscall.Kill(-group, signal)
	}
}

// String describes a survivor in logs.
func (f *survivor) String() string { return fmt.Sprintf("%s/%d (pid %d)", f.name, f.index, f.pid) }
