// Package pgtest runs a real PostgreSQL server for tests: that of the machine's package postgresql, on a Unix socket of its own.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const patience = 60 * time.Second

// Server is a running server. Close ends it.
type Server struct {
	dir     string
	cmd     *exec.Cmd
	output  bytes.Buffer
	done    chan struct{}
	created atomic.Int64
}

// Start makes a cluster in a temporary directory and starts it. As PostgreSQL refuses to run as root, root runs it as postgres or nobody.
func Start() (_ *Server, err error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	credential, err := other()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pg-") // short: the socket's path has at most 107 bytes
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, done: make(chan struct{})}
	if credential != nil {
		if err := os.Chown(dir, int(credential.Uid), int(credential.Gid)); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	data := filepath.Join(dir, "data")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
	initdb.Dir, initdb.SysProcAttr = dir, &syscall.SysProcAttr{Credential: credential}
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w\n%s", err, out), os.RemoveAll(dir))
	}
	// What survives a power cut is PostgreSQL's affair; tests want to be quick.
	s.cmd = exec.CommandContext(context.Background(), filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=100")
	s.cmd.Dir, s.cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: credential, Setpgid: true}
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait()
	}()
	for end := time.Now().Add(patience); ; {
		conn, err := pgx.Connect(ctx, s.url("postgres"))
		if err == nil {
			return s, conn.Close(ctx)
		}
		select {
		case <-s.done:
			return nil, errors.Join(fmt.Errorf("postgres ended: %s", s.output.String()), os.RemoveAll(dir))
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("postgres does not answer: %w", err), s.Close())
		}
	}
}

// Database makes a new, empty database and returns its URL.
func (s *Server) Database(ctx context.Context) (string, error) {
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return "", err
	}
	name := "test" + strconv.FormatInt(s.created.Add(1), 10)
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name)
	return s.url(name), errors.Join(err, conn.Close(ctx))
}

func (s *Server) url(database string) string {
	return fmt.Sprintf("host=%s user=test dbname=%s sslmode=disable", s.dir, database)
}

// Close ends the server at once and removes its files.
func (s *Server) Close() error {
	err := s.cmd.Process.Signal(syscall.SIGQUIT)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-s.done
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Output is what the server has written; call it after Close.
func (s *Server) Output() string { return s.output.String() }

// binaries finds the directory of initdb and postgres: in PATH, or where Debian has it, the newest version.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if _, err := exec.LookPath("postgres"); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("PostgreSQL is not on this machine: install the package postgresql, or put initdb and postgres in PATH")
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4]) // 0, the oldest, if it is no number
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

// other is whom root runs the server as; nil if we are not root.
func other() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody")
}
