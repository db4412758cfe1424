package workloads

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"time"
)

const (
	// ownerPatience is how long a new owner waits for the last one's session to end.
	ownerPatience = 3 * time.Second
	// ownerPoll is how often an owner looks whether it is one yet.
	ownerPoll = 2 * time.Second
	// ownerTimeout ends a look.
	ownerTimeout = 5 * time.Second
	// ownerGhost is how long the session of an owner that was cut off may seem to be somebody else's: longer than its keepalive.
	ownerGhost = 15 * time.Second
)

// ErrOwned says that another process supervises what this database tells of.
var ErrOwned = errors.New("another service supervises the workloads of this database; stop it, or give this one a database of its own")

// Own makes this process the only one that supervises the workloads of the database, for drivers whose place is this machine: others that ask get [ErrOwned]. The context that
// it returns ends with ErrOwned as its cause when another process has taken over, as may happen while this one cannot reach the database. release gives it up. With SQLite it is for
// the driver to see to it that there is one process.
//
// It rests on an advisory lock of a session (PostgreSQL, chapter 13.3), so poolers that share sessions must not stand before the database.
func (s *Store) Own(ctx context.Context) (owned context.Context, release func(), err error) {
	if !s.sessions {
		return ctx, func() {}, nil
	}
	var session *sql.Conn
	for end := time.Now().Add(ownerPatience); session == nil; {
		if session, err = s.lock(ctx); err == nil {
			break
		}
		if !errors.Is(err, ErrOwned) || time.Now().After(end) || ctx.Err() != nil {
			return nil, nil, err
		}
		sleep(ctx, 50*time.Millisecond, nil)
	}
	owned, cancel := context.WithCancelCause(ctx)
	holding, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.keep(holding, session, func() { cancel(ErrOwned) })
	}()
	return owned, func() {
		stop()
		<-done
		cancel(nil)
	}, nil
}

// keep looks after the lock until ctx ends, and takes it again where the session was lost. It calls lost if another process has it.
func (s *Store) keep(ctx context.Context, session *sql.Conn, lost func()) {
	var owned time.Time // since when it seems to be somebody else's
	for {
		sleep(ctx, ownerPoll, nil)
		if ctx.Err() != nil {
			break
		}
		if session != nil && ping(ctx, session) == nil {
			continue
		}
		unlock(session)
		var err error
		switch session, err = s.lock(ctx); {
		case err == nil || !errors.Is(err, ErrOwned):
			owned = time.Time{}
		case owned.IsZero():
			owned = time.Now()
		case time.Since(owned) > ownerGhost:
			lost()
		}
	}
	unlock(session)
}

func ping(ctx context.Context, session *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	return session.PingContext(ctx)
}

// lock returns a session that has the lock, or ErrOwned.
func (s *Store) lock(ctx context.Context) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	session, err := s.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("lock the database: %w", reach(err))
	}
	key := fnv.New64a()
	_, _ = key.Write([]byte(s.id))
	var locked bool
	// The server is to notice soon that this machine is gone.
	_, err = session.ExecContext(ctx, `SELECT set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '2', false), set_config('tcp_keepalives_count', '3', false)`)
	if err == nil {
		err = session.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, int64(key.Sum64())).Scan(&locked)
	}
	if err == nil && locked {
		return session, nil
	}
	unlock(session)
	if err != nil {
		return nil, fmt.Errorf("lock the database: %w", reach(err))
	}
	return nil, ErrOwned
}

// unlock ends a session, and does not give it back to the pool.
func unlock(session *sql.Conn) {
	if session != nil {
		_ = session.Raw(func(any) error { return sqldriver.ErrBadConn })
	}
}
