package workloads

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // database/sql's "pgx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"modernc.org/sqlite" // and database/sql's "sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Store keeps what is wanted of each workload, the actions and the outbox, in SQLite or PostgreSQL. Both take the same migrations and statements. Its methods may be
// called concurrently. What is wrong with the connection is [ErrUnreachable].
type Store struct {
	db       *sql.DB
	id       string
	sessions bool // PostgreSQL's, which other processes may have too

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something was committed here
}

// OpenSQLite opens the database workloads.db in a directory, which is made if it is not there. A commit is on disk when it returns. One process at a time should use it.
func OpenSQLite(ctx context.Context, dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	path := filepath.Join(dir, "workloads.db")
	query := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: query.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", path, err)
	}
	return open(ctx, db, goose.DialectSQLite3)
}

// OpenPostgres connects to a PostgreSQL database by URL, postgres://user:password@host:5432/name, or keyword/value string. Several services may share one, if their driver's place is the same.
func OpenPostgres(ctx context.Context, databaseURL string) (*Store, error) {
	db, err := sql.Open("pgx", databaseURL)
	if err != nil {
		return nil, errors.New("--database-url cannot be read; use one like postgres://user@host:5432/database")
	}
	db.SetMaxOpenConns(16)
	db.SetConnMaxIdleTime(time.Minute)
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return open(ctx, db, goose.DialectPostgres, goose.WithSessionLocker(locker))
}

func open(ctx context.Context, db *sql.DB, dialect goose.Dialect, options ...goose.ProviderOption) (*Store, error) {
	s := &Store{db: db, sessions: dialect == goose.DialectPostgres, changed: make(chan struct{})}
	if err := s.prepare(ctx, dialect, options); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *Store) prepare(ctx context.Context, dialect goose.Dialect, options []goose.ProviderOption) error {
	if err := s.db.PingContext(ctx); err != nil {
		return fmt.Errorf("database: %w", reach(err))
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(dialect, s.db, files, append(options, goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database: %w", reach(err))
	}
	if _, err := s.db.ExecContext(ctx, `INSERT INTO head (id, store, seq, pruned) VALUES (1, $1, 0, 0) ON CONFLICT (id) DO NOTHING`, strings.ToLower(rand.Text())); err != nil {
		return fmt.Errorf("name the database: %w", reach(err))
	}
	if err := s.db.QueryRowContext(ctx, `SELECT store FROM head WHERE id = 1`).Scan(&s.id); err != nil {
		return fmt.Errorf("read the database's name: %w", reach(err))
	}
	return nil
}

// ID names the database: random, made with it.
func (s *Store) ID() string { return s.id }

// Close releases the database.
func (s *Store) Close() error { return s.db.Close() }

// Changed returns a channel that is closed at the next commit of this process.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// tx is a transaction that writes.
type tx struct {
	*sql.Tx
	store *Store
	now   time.Time
}

// write runs f in a transaction, one at a time in the whole database, and commits unless f returns an error. After an error of the commit itself it is not known whether it took place.
func (s *Store) write(ctx context.Context, f func(*tx) error) error {
	t, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return reach(err)
	}
	defer func() { _ = t.Rollback() }() // after a commit it does nothing
	if _, err := t.ExecContext(ctx, `UPDATE head SET seq = seq WHERE id = 1`); err != nil {
		return reach(err)
	}
	if err := f(&tx{Tx: t, store: s, now: time.Now().UTC().Truncate(time.Microsecond)}); err != nil {
		return reach(err)
	}
	if err := t.Commit(); err != nil {
		return reach(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// reach marks errors that say that the database is out of reach: of the network, of a server that starts, stops or has no connection to spare, or of a disk
// that is full or fails.
func reach(err error) error {
	var network net.Error
	var file *sqlite.Error
	var server *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case err == nil, errors.Is(err, ErrUnreachable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &server):
		// Classes 08 (connection), 53 (resources) and 57P (shutdown) of PostgreSQL, appendix A.
		if strings.HasPrefix(server.Code, "08") || strings.HasPrefix(server.Code, "53") || strings.HasPrefix(server.Code, "57P") {
			return fmt.Errorf("database %w: %w", ErrUnreachable, err)
		}
		return err
	case errors.As(err, &file):
		switch file.Code() & 0xff {
		case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY: // the disk, which others may mend
			return fmt.Errorf("database %w: %w", ErrUnreachable, err)
		}
	case errors.As(err, &network), errors.As(err, &connect), pgconn.SafeToRetry(err), errors.Is(err, sql.ErrConnDone), strings.Contains(err.Error(), "unexpected EOF"), strings.Contains(err.Error(), "conn closed"):
		return fmt.Errorf("database %w: %w", ErrUnreachable, err)
	}
	return err
}
