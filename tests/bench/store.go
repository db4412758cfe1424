package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	_ "modernc.org/sqlite" // the driver

	"github.com/toolway/toolway/internal/store"
	"github.com/toolway/toolway/tests/internal/run"
)

// engine is one way to keep keys and events so that what is acknowledged is on disk.
type engine interface {
	put(key string, value []byte) error
	get(key string) error
	add(value []byte) error
	// replay reads all events in order and says how many there are.
	replay() (int, error)
	close() error
}

// stores compares the same work on our store, bbolt and SQLite, each of which syncs every write: writers at a time do n operations of each kind.
func stores(n, writers int, doc *document) error {
	t := &table{title: fmt.Sprintf("Store: %d operations of 256 bytes by %d at a time, every write synced; µs each, all told", n, writers), head: []string{"", "put", "get", "append", "replay"}}
	for _, of := range []struct {
		name string
		open func(dir string) (engine, error)
	}{{"JetStream, embedded", openStore}, {"bbolt, Batch", openBolt}, {"SQLite, WAL, FULL", openSQLite}} {
		dir, err := os.MkdirTemp("", "toolway-bench-")
		if err != nil {
			return err
		}
		e, err := of.open(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
		took, err := work(e, n, writers)
		err = errors.Join(err, e.close(), os.RemoveAll(dir))
		if err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
		row := []string{of.name}
		for _, µs := range took {
			row = append(row, fmt.Sprintf("%.1f", µs))
		}
		t.add(row...)
	}
	return doc.putTables("store", t)
}

func work(e engine, n, writers int) (took [4]float64, err error) {
	value := make([]byte, 256)
	for i, do := range []func(i int) error{
		func(i int) error { return e.put(fmt.Sprintf("k%d", i), value) },
		func(i int) error { return e.get(fmt.Sprintf("k%d", i)) },
		func(int) error { return e.add(value) },
	} {
		begun := time.Now()
		if err := side(n, writers, do); err != nil {
			return took, err
		}
		took[i] = float64(time.Since(begun).Microseconds()) / float64(n)
	}
	begun := time.Now()
	have, err := e.replay()
	if err == nil && have != n {
		err = fmt.Errorf("%d events were replayed, want %d", have, n)
	}
	took[3] = float64(time.Since(begun).Microseconds()) / float64(n)
	return took, err
}

// side does n things, some at a time.
func side(n, writers int, do func(i int) error) error {
	var group sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		group.Go(func() {
			for i := w; i < n && errs[w] == nil; i += writers {
				errs[w] = do(i)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

type ours struct {
	store *store.Store
	kv    *store.KV
	log   *store.Log
}

func openStore(dir string) (engine, error) {
	ctx, cancel := context.WithTimeout(context.Background(), run.Patience)
	defer cancel()
	s, err := store.Open(ctx, store.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	kv, err := s.KV(ctx, store.KVConfig{Name: "bench"})
	if err != nil {
		return nil, err
	}
	log, err := s.Log(ctx, store.LogConfig{Name: "bench"})
	return &ours{s, kv, log}, err
}

func (o *ours) put(key string, value []byte) error {
	_, err := o.kv.Create(context.Background(), key, value, 0)
	return err
}

func (o *ours) get(key string) error {
	_, err := o.kv.Get(context.Background(), key)
	return err
}

func (o *ours) add(value []byte) error {
	_, err := o.log.Append(context.Background(), "x", value, "")
	return err
}

func (o *ours) replay() (n int, err error) {
	_, err = o.log.Read(context.Background(), ">", 0, func(store.Event) error { n++; return nil })
	return n, err
}

func (o *ours) close() error {
	o.store.Close()
	return nil
}

type bolt struct{ db *bbolt.DB }

var keys, events = []byte("keys"), []byte("events")

func openBolt(dir string) (engine, error) {
	db, err := bbolt.Open(filepath.Join(dir, "bolt"), 0o600, nil)
	if err != nil {
		return nil, err
	}
	return &bolt{db}, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(keys)
		_, err2 := tx.CreateBucket(events)
		return errors.Join(err, err2)
	})
}

func (b *bolt) put(key string, value []byte) error {
	return b.db.Batch(func(tx *bbolt.Tx) error { return tx.Bucket(keys).Put([]byte(key), value) })
}

func (b *bolt) get(key string) error {
	return b.db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket(keys).Get([]byte(key)) == nil {
			return os.ErrNotExist
		}
		return nil
	})
}

func (b *bolt) add(value []byte) error {
	return b.db.Batch(func(tx *bbolt.Tx) error {
		at, err := tx.Bucket(events).NextSequence()
		if err != nil {
			return err
		}
		return tx.Bucket(events).Put(binary.BigEndian.AppendUint64(nil, at), value)
	})
}

func (b *bolt) replay() (n int, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(events).ForEach(func(_, _ []byte) error { n++; return nil })
	})
	return n, err
}

func (b *bolt) close() error { return b.db.Close() }

type sqlite struct{ db *sql.DB }

func openSQLite(dir string) (engine, error) {
	db, err := sql.Open("sqlite", filepath.Join(dir, "sqlite")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(60000)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // it has one writer at a time anyway
	_, err = db.ExecContext(context.Background(), "CREATE TABLE keys (k TEXT PRIMARY KEY, v BLOB); CREATE TABLE events (n INTEGER PRIMARY KEY AUTOINCREMENT, v BLOB)")
	return &sqlite{db}, err
}

func (s *sqlite) put(key string, value []byte) error {
	_, err := s.db.ExecContext(context.Background(), "INSERT INTO keys VALUES (?, ?)", key, value)
	return err
}

func (s *sqlite) get(key string) error {
	var v []byte
	return s.db.QueryRowContext(context.Background(), "SELECT v FROM keys WHERE k = ?", key).Scan(&v)
}

func (s *sqlite) add(value []byte) error {
	_, err := s.db.ExecContext(context.Background(), "INSERT INTO events (v) VALUES (?)", value)
	return err
}

func (s *sqlite) replay() (n int, err error) {
	rows, err := s.db.QueryContext(context.Background(), "SELECT v FROM events ORDER BY n")
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }() // rows.Err has what counts
	for rows.Next() {
		var v []byte
		if err := rows.Scan(&v); err != nil {
			return n, err
		}
		n++
	}
	return n, rows.Err()
}

func (s *sqlite) close() error { return s.db.Close() }
