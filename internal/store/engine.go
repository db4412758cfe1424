package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
)

// layout is the version of what is on disk. A change of it needs a step in migrate.
const layout = 1

// engine is a JetStream server in this process. It listens on no port.
type engine struct {
	conf Config
	lock *flock.Flock

	// fault is why a stream has given up writing since the server was started; nil: none has.
	fault atomic.Pointer[string]

	mu     sync.Mutex
	server *server.Server // nil while it cannot be started
}

func openEngine(c Config) (*engine, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w; choose another directory", err)
	}
	e := &engine{conf: c, lock: flock.New(filepath.Join(c.Dir, "lock"))}
	held, err := e.lock.TryLock()
	switch {
	case err != nil:
		return nil, fmt.Errorf("lock the store in %q: %w", c.Dir, err)
	case !held:
		return nil, fmt.Errorf("the store in %q is used by another process%s: stop that one, or choose another directory", c.Dir, holder(c.Dir))
	}
	// For whoever finds it locked; a pid that cannot be written is no reason not to start.
	_ = os.WriteFile(filepath.Join(c.Dir, "pid"), []byte(strconv.Itoa(os.Getpid())), 0o600)
	if err := migrate(c.Dir); err != nil {
		_ = e.lock.Unlock()
		return nil, err
	}
	if e.server, err = e.start(); err != nil {
		_ = e.lock.Unlock()
		return nil, err
	}
	return e, nil
}

func holder(dir string) string {
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil || len(pid) == 0 || len(pid) > 20 {
		return ""
	}
	return " (pid " + strings.TrimSpace(string(pid)) + ")"
}

// migrate brings the directory to this version's layout. A newer one is left alone.
func migrate(dir string) error {
	file := filepath.Join(dir, "layout.json")
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		raw, err := json.Marshal(map[string]int{"version": layout})
		if err != nil {
			return err
		}
		return writeSynced(file, raw)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	var have struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &have); err != nil || have.Version < 1 {
		return fmt.Errorf("store: %q is not what this program writes there (%q): restore it, or choose another directory", file, raw[:min(len(raw), 100)])
	}
	if have.Version > layout {
		return fmt.Errorf("store: the directory %q has layout %d, and this version knows up to %d: run the newer version, or choose another directory", dir, have.Version, layout)
	}
	return nil
}

func writeSynced(file string, raw []byte) error {
	f, err := os.OpenFile(file+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// startTimeout bounds the reading of what is on disk.
const startTimeout = time.Minute

func (e *engine) start() (*server.Server, error) {
	srv, err := server.NewServer(&server.Options{
		ServerName: "toolway", DontListen: true, NoSigs: true,
		JetStream: true, StoreDir: e.conf.Dir, SyncAlways: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: e.conf.MaxBytes,
		MaxPayload: 8 << 20, MaxPending: 64 << 20,
	})
	if err != nil {
		return nil, fmt.Errorf("store in %q: %w", e.conf.Dir, err)
	}
	e.fault.Store(nil)
	srv.SetLoggerV2(&engineLog{e.conf.Logger, func(why string) { e.fault.Store(&why) }}, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(startTimeout) || !srv.JetStreamEnabled() {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, fmt.Errorf("store in %q: the engine does not start; the log says why", e.conf.Dir)
	}
	return srv, nil
}

// InProcessConn gives the client a connection to whatever server runs now.
func (e *engine) InProcessConn() (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server == nil {
		return nil, errors.New("the engine is down")
	}
	return e.server.InProcessConn()
}

// revive restarts a server that has switched its JetStream off, or of which a stream has given up, once the disk takes writes again: both do so for
// good when a write fails.
func (e *engine) revive() error {
	e.mu.Lock()
	srv := e.server
	e.mu.Unlock()
	fault := e.fault.Load()
	if srv != nil && srv.JetStreamEnabled() && fault == nil {
		return nil
	}
	if err := e.writable(); err != nil {
		return err
	}
	e.conf.Logger.Warn("the store's engine is started anew: a write had failed, and the disk takes writes again")
	if srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
	fresh, err := e.start()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.server = fresh
	return err
}

// enough is how much the disk has to take for the engine to go on.
const enough = 4 << 20

// low says that the disk is all but full, or "". The engine sees that by a write that fails, which may be a call's.
func (e *engine) low() string {
	if left, known := free(e.conf.Dir); known && left < enough {
		return fmt.Sprintf("the disk of %q has less than %d MiB left; make room", e.conf.Dir, enough>>20)
	}
	return ""
}

// writable tries whether the disk takes as much as the engine needs to go on.
func (e *engine) writable() error {
	probe := filepath.Join(e.conf.Dir, "probe")
	defer func() { _ = os.Remove(probe) }()
	if err := writeSynced(probe, make([]byte, enough)); err != nil {
		_ = os.Remove(probe + ".new") // what there was room for
		return fmt.Errorf("the disk of %q does not take writes: %w; make room", e.conf.Dir, err)
	}
	return nil
}

func (e *engine) close() {
	e.mu.Lock()
	srv := e.server
	e.server = nil
	e.mu.Unlock()
	if srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
	_ = os.Remove(filepath.Join(e.conf.Dir, "pid"))
	_ = e.lock.Unlock() // the process ends anyway
}
