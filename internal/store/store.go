// Package store keeps the mesh's durable state: logs of events, keys with compare-and-set, objects and a work queue. Its one engine is NATS
// JetStream, in this process (file store, synced at every write) or as a cluster. No other package knows NATS.
//
// What is acknowledged is there after a crash of the process; after a loss of power, as far as the disk keeps what was synced. Reads that
// others decide by are answered by the leader, never by a replica that may lag.
package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrNotFound says that there is no such key, object or event.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that somebody else has written first.
	ErrConflict = errors.New("changed by somebody else")
	// ErrFull says that a bound of the store is reached. Nothing is forgotten to make room.
	ErrFull = errors.New("the store is full")
	// ErrUnavailable says that the store does not answer: the cluster has no leader, the disk is full, the connection is lost. Whether a write
	// took effect is not known.
	ErrUnavailable = errors.New("the store is not available")
	// ErrExpired says that what was asked for is past the retention.
	ErrExpired = errors.New("past the retention")
)

// Config says where the state is. Dir or URL is required.
type Config struct {
	// Dir is the directory of the embedded engine. It is made if it is not there, and locked: only one process uses it.
	Dir string
	// URL is that of an external cluster, such as nats://a:4222,b:4222, instead of Dir.
	URL string
	// Credentials is a file with NATS credentials for URL. Default: none.
	Credentials string
	// CA, Cert and Key are PEM files for TLS towards URL. Default: the system's roots, no certificate of our own.
	CA, Cert, Key string
	// Replicas is how many copies a cluster keeps, 1 to 5. Default 1.
	Replicas int
	// Prefix begins the names of all that this mesh keeps, so that several can share a cluster: [a-zA-Z0-9_-]+. Default "toolway".
	Prefix string
	// MaxBytes bounds the disk that the embedded engine takes. Default 10 GiB.
	MaxBytes int64
	// Timeout bounds one request to the engine. Default 5 seconds.
	Timeout time.Duration
	// Wait bounds the waiting for the engine while the store is opened, and then for each part that is opened in it. Default 30 seconds.
	Wait time.Duration
	// Logger gets what the engine says and changes of its state. Default slog.Default().
	Logger *slog.Logger
}

// Store is an open store. It is safe for concurrent use.
type Store struct {
	conf   Config
	log    *slog.Logger
	engine *engine // nil with an external cluster
	marks  *marks  // nil with an external cluster
	// damaged is why no key is written any more, until the operator has looked; nil: all is well.
	damaged atomic.Pointer[string]
	conn    *nats.Conn
	js      jetstream.JetStream
	// instance is different for each opening of an embedded store.
	instance string

	state   atomic.Pointer[string] // why it is not available; nil if it is
	closing sync.Once
	closed  chan struct{}
	running sync.WaitGroup
}

// Open opens the store, and waits for it as long as Config.Wait and ctx allow. It makes or migrates what is not there as this version wants it.
// Errors say which directory or cluster, and the mend.
//
// Each part that is opened in the store may take as long again: a cluster that has just begun chooses a leader for each. What is waited for longer than some
// seconds is logged.
func Open(ctx context.Context, c Config) (_ *Store, err error) {
	if err := c.normalise(); err != nil {
		return nil, err
	}
	s := &Store{conf: c, log: c.Logger, closed: make(chan struct{})}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if c.Dir != "" {
		if s.engine, err = openEngine(c); err != nil {
			return nil, err
		}
		s.instance = rand.Text()
	}
	if s.conn, err = s.connect(); err != nil {
		return nil, err
	}
	if s.js, err = jetstream.New(s.conn, jetstream.WithDefaultTimeout(c.Timeout)); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := s.insist(ctx, "an answer", s.ask); err != nil {
		return nil, fmt.Errorf("the store at %q: %w", s.place(), err)
	}
	if err := s.checkMarks(ctx); err != nil {
		return nil, err
	}
	s.running.Go(s.watch)
	return s, nil
}

// checkMarks refuses an embedded store that has lost records.
func (s *Store) checkMarks(ctx context.Context) error {
	if s.engine == nil {
		return nil
	}
	m, err := openMarks(s.conf.Dir)
	if err != nil {
		return err
	}
	for range 2 { // the engine may come upon damage by the first reading, and drop what comes after it
		have, err := s.ends(ctx)
		if err == nil {
			err = m.check(have)
		}
		if err != nil {
			return err
		}
	}
	s.marks = m
	return nil
}

func (c *Config) normalise() error {
	switch {
	case c.Dir == "" && c.URL == "":
		return errors.New("store: neither a directory nor a URL: give one of the two")
	case c.Dir != "" && c.URL != "":
		return errors.New("store: a directory and a URL: the state is in one of the two; leave the other out")
	case c.Replicas < 0 || c.Replicas > 5:
		return fmt.Errorf("store: %d replicas: want 1 to 5", c.Replicas)
	case c.Dir != "" && c.Replicas > 1:
		return fmt.Errorf("store: %d replicas of an embedded store: replicas need a cluster, by URL", c.Replicas)
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Prefix == "" {
		c.Prefix = "toolway"
	}
	if !legalName(c.Prefix) {
		return fmt.Errorf("store: prefix %q: want letters, digits, _ and -", c.Prefix)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 10 << 30
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Wait == 0 {
		c.Wait = 30 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return nil
}

func legalName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return s != ""
}

// Token makes of any text, such as a key that a client chose, something that can stand in a key or subject. Different texts give different
// tokens.
func Token(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:20])
}

func (s *Store) connect() (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name("toolway"),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(200 * time.Millisecond),
		nats.ReconnectJitter(200*time.Millisecond, 200*time.Millisecond),
		nats.RetryOnFailedConnect(true),
		nats.Timeout(s.conf.Timeout),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ReconnectBufSize(-1), // a write that cannot be sent fails at once, and is not sent later behind our back
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				s.note("the connection is lost: " + err.Error())
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { s.log.Debug("the connection to the store is back") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.log.Debug("store", "error", err) }),
	}
	if s.engine != nil {
		options = append(options, nats.InProcessServer(s.engine))
		return nats.Connect("", options...)
	}
	if s.conf.Credentials != "" {
		options = append(options, nats.UserCredentials(s.conf.Credentials))
	}
	if s.conf.CA != "" {
		options = append(options, nats.RootCAs(s.conf.CA))
	}
	if s.conf.Cert != "" {
		options = append(options, nats.ClientCert(s.conf.Cert, s.conf.Key))
	}
	conn, err := nats.Connect(s.conf.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to the store at %q: %w; is a NATS server with JetStream there?", s.place(), err)
	}
	return conn, nil
}

// place is where the state is, for people: no user or password of a URL.
func (s *Store) place() string {
	if s.conf.Dir != "" {
		return s.conf.Dir
	}
	servers := strings.Split(s.conf.URL, ",")
	for i, u := range servers {
		scheme, rest, ok := strings.Cut(u, "://")
		if at := strings.LastIndex(rest, "@"); ok && at >= 0 {
			servers[i] = scheme + "://" + rest[at+1:]
		} else if at := strings.LastIndex(u, "@"); at >= 0 {
			servers[i] = u[at+1:]
		}
	}
	return strings.Join(servers, ",")
}

func (s *Store) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.conf.Timeout)
	defer cancel()
	_, err := s.js.AccountInfo(ctx)
	return err
}

// watchEvery is how often the engine is asked whether it is well.
const watchEvery = 2 * time.Second

// watch keeps the state, and restarts an embedded engine that has given up, as it does when the disk is full.
func (s *Store) watch() {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.closed:
			return
		case <-ticker.C:
		}
		if s.engine != nil {
			if err := s.engine.revive(); err != nil {
				s.note(err.Error())
				continue
			}
		}
		if err := s.ask(context.Background()); err != nil {
			s.note(err.Error())
			continue
		}
		if s.damaged.Load() != nil {
			continue
		}
		why := ""
		if s.engine != nil {
			why = s.engine.low()
		}
		s.note(why)
		s.mark(context.Background())
	}
}

// note keeps why the store is not available, and logs changes.
func (s *Store) note(why string) {
	before := s.state.Load()
	switch {
	case why == "" && before != nil:
		s.state.Store(nil)
		s.log.Info("the store is available again", "store", s.place())
	case why != "" && (before == nil || *before != why):
		s.state.Store(&why)
		s.log.Error("the store is not available", "store", s.place(), "why", why)
	}
}

// Down says why the store is not available, or "" if it is, as far as it was seen in the last seconds.
func (s *Store) Down() string {
	if why := s.state.Load(); why != nil {
		return *why
	}
	return ""
}

// Instance is this store's name if its state is this process's alone, as an embedded engine's is, whose directory is locked: what bears another
// name was written by a process that is gone. Else it is "".
func (s *Store) Instance() string { return s.instance }

// Place is where the state is, for people: a directory, or the URL of a cluster, without credentials.
func (s *Store) Place() string { return s.place() }

// Close ends the connection and an embedded engine. What was acknowledged is on disk already.
func (s *Store) Close() {
	s.closing.Do(func() {
		close(s.closed)
		s.running.Wait()
		if s.marks != nil {
			s.mark(context.Background())
		}
		if s.conn != nil {
			s.conn.Close()
		}
		if s.engine != nil {
			s.engine.close()
		}
	})
}

// name is that of a stream.
func (s *Store) name(kind, name string) string { return s.conf.Prefix + "_" + kind + "_" + name }

// stream makes a stream, or brings it to the configuration.
func (s *Store) stream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	c.Storage, c.Replicas = jetstream.FileStorage, s.conf.Replicas
	c.Discard = jetstream.DiscardNew
	if c.Retention == jetstream.LimitsPolicy && c.MaxMsgsPerSubject == 0 {
		c.Discard = jetstream.DiscardOld // a log forgets its oldest events; keys and work are never forgotten to make room
	}
	var st jetstream.Stream
	err := s.insist(ctx, c.Name, func(ctx context.Context) (err error) {
		if st == nil {
			if st, err = s.js.CreateOrUpdateStream(ctx, c); errors.Is(err, jetstream.ErrStreamNotFound) {
				return fmt.Errorf("%w: another is making it: %w", ErrUnavailable, err)
			} else if err != nil {
				return err
			}
		}
		return s.led(ctx, st)
	})
	if err != nil {
		return nil, fmt.Errorf("store %q: %w", c.Name, err)
	}
	return st, nil
}

// The codes of JetStream's errors that mean something to callers (nats-server, server/errors.json).
const (
	codeWrongLastSequence  = 10071
	codeWrongLastSequence2 = 10164
	codeNoMessage          = 10037
	codeStreamFull         = 10077
	codeInsufficient       = 10023
	codeStorage            = 10047
	codeTooLarge           = 10054
)

// classify wraps what the engine says into the errors of this package.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case codeWrongLastSequence, codeWrongLastSequence2:
			return ErrConflict
		case codeNoMessage:
			return ErrNotFound
		case codeStreamFull:
			return fmt.Errorf("%w: %s", ErrFull, api.Description)
		case codeTooLarge:
			return fmt.Errorf("%w: %s", ErrFull, api.Description)
		case codeInsufficient, codeStorage:
			return fmt.Errorf("%w: %s", ErrUnavailable, api.Description)
		}
		if api.Code == 503 || api.Code == 500 {
			return fmt.Errorf("%w: %s", ErrUnavailable, api.Description)
		}
		return err
	}
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound), errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrObjectNotFound):
		return ErrNotFound
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("%w: there is no connection to it", ErrUnavailable)
	case errors.Is(err, context.Canceled):
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
