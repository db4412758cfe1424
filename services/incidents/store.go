package incidents

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
)

// schema is made at the first start. user_version tells a later one from it.
const (
	schemaVersion = 1
	schema        = `
CREATE TABLE diagnoses (
  id        TEXT PRIMARY KEY,
  tenant    TEXT NOT NULL,
  incident  TEXT NOT NULL,
  request   TEXT NOT NULL,           -- request_id
  created   INTEGER NOT NULL,        -- nanoseconds since 1970, as all times here
  ended     INTEGER,                 -- NULL while it runs
  last      INTEGER NOT NULL,        -- id of its last event
  record    TEXT NOT NULL,           -- the rest, as JSON
  diagnosis BLOB NOT NULL,           -- agentops.incidents.v1.Diagnosis
  UNIQUE (tenant, incident, request)
) STRICT;
CREATE INDEX diagnoses_created ON diagnoses (tenant, created DESC, id DESC);
CREATE INDEX diagnoses_ended ON diagnoses (ended);
CREATE TABLE steps (
  diagnosis TEXT NOT NULL REFERENCES diagnoses (id) ON DELETE CASCADE,
  number    INTEGER NOT NULL,
  round     INTEGER NOT NULL,        -- which of the planner's decisions it is of
  started   INTEGER NOT NULL,        -- 1 once its call may have been made
  step      TEXT NOT NULL,
  result    TEXT,                    -- NULL until it has ended
  PRIMARY KEY (diagnosis, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE events (
  diagnosis TEXT NOT NULL REFERENCES diagnoses (id) ON DELETE CASCADE,
  id        INTEGER NOT NULL,
  event     BLOB NOT NULL,           -- agentops.incidents.v1.DiagnosisEvent
  PRIMARY KEY (diagnosis, id)
) STRICT, WITHOUT ROWID;`
)

// errUnknown says that there is no such diagnosis.
var errUnknown = errors.New("no such diagnosis")

// record is a diagnosis with what only the service knows of it.
type record struct {
	*incidentsv1.Diagnosis `json:"-"`

	id        string
	tenant    string
	requestID string
	last      int64 // id of the last event

	Trace     trace         `json:"trace"`
	Remediate bool          `json:"remediate,omitempty"`
	Duration  time.Duration `json:"duration"`            // as asked for, to tell another request from a repeated one
	Cancelled bool          `json:"cancelled,omitempty"` // its end was asked for
	Rounds    int           `json:"rounds,omitempty"`    // how often the planner has answered
	Progress  int           `json:"progress,omitempty"`  // tool_progress events so far
}

func (r *record) ended() bool { return r.GetEndTime() != nil }

// stepRow is a step as it is kept.
type stepRow struct {
	Step
	number  int
	round   int
	started bool
}

// store keeps diagnoses, steps and events in one SQLite file. What a method has written is on disk when it returns.
type store struct {
	db *sql.DB

	mu      sync.Mutex
	waiting map[string]*waiter // by diagnosis
}

// openStore opens the store in dir, which is made if it is not there. Only one process can have it open.
func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	path := filepath.Join(dir, "incidents.db")
	// The lock of one connection keeps a second process out; without it two would run the same diagnoses.
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=locking_mode(exclusive)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(1)")
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	s := &store{db: db, waiting: make(map[string]*waiter)}
	if err := s.migrate(context.Background()); err != nil {
		_ = db.Close()
		var failure *sqlite.Error
		if errors.As(err, &failure) && failure.Code()&0xff == sqlite3.SQLITE_BUSY {
			return nil, fmt.Errorf("open %q: another process has it open; stop it, or give another directory with --data", path)
		}
		return nil, fmt.Errorf("open %q: %w", path, err)
	}
	return s, nil
}

func (s *store) migrate(ctx context.Context) error {
	return s.tx(ctx, func(tx *sql.Tx) error {
		var version int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
			return err
		}
		switch version {
		case schemaVersion:
			return nil
		case 0:
			_, err := tx.ExecContext(ctx, schema+fmt.Sprintf("PRAGMA user_version = %d;", schemaVersion))
			return err
		}
		return fmt.Errorf("its schema is version %d, this program knows %d; run the program that wrote it", version, schemaVersion)
	})
}

func (s *store) close() error { return s.db.Close() }

// tx runs f in a transaction.
func (s *store) tx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// start keeps a new diagnosis with its first event, unless the tenant has one of the same incident and request: then it returns that one. At most limit
// diagnoses run at a time; errTooMany says that so many do.
func (s *store) start(ctx context.Context, r *record, first *incidentsv1.DiagnosisEvent, limit int) (_ *record, created bool, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		old, err := scanRecord(tx.QueryRowContext(ctx, selectRecord+" WHERE tenant = ? AND incident = ? AND request = ?", r.tenant, r.Incident, r.requestID))
		if err == nil {
			r = old
			return nil
		}
		if !errors.Is(err, errUnknown) {
			return err
		}
		var running int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM diagnoses WHERE ended IS NULL").Scan(&running); err != nil {
			return err
		}
		if running >= limit {
			return errTooMany
		}
		created = true
		c := &change{record: r}
		c.event(first)
		kept, diagnosis, err := r.columns()
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO diagnoses (id, tenant, incident, request, created, last, record, diagnosis) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			r.id, r.tenant, r.Incident, r.requestID, r.CreateTime.AsTime().UnixNano(), r.last, kept, diagnosis); err != nil {
			return err
		}
		return c.write(ctx, tx)
	})
	return r, created, err
}

// errTooMany says that as many diagnoses run as may.
var errTooMany = errors.New("too many diagnoses")

const selectRecord = "SELECT id, tenant, request, last, record, diagnosis FROM diagnoses"

// get returns a diagnosis of a tenant.
func (s *store) get(ctx context.Context, tenant, id string) (*record, error) {
	return scanRecord(s.db.QueryRowContext(ctx, selectRecord+" WHERE id = ? AND tenant = ?", id, tenant))
}

// find returns a diagnosis, whoever's it is.
func (s *store) find(ctx context.Context, id string) (*record, error) {
	return scanRecord(s.db.QueryRowContext(ctx, selectRecord+" WHERE id = ?", id))
}

// list returns up to limit diagnoses of a tenant, the newest first, after the one that was created then with that id; of one incident, unless it is "".
func (s *store) list(ctx context.Context, tenant, incident string, created int64, id string, limit int) ([]*record, error) {
	rows, err := s.db.QueryContext(ctx, selectRecord+" WHERE tenant = ? AND (? = '' OR incident = ?) AND (created, id) < (?, ?) ORDER BY created DESC, id DESC LIMIT ?",
		tenant, incident, incident, created, id, limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err tells
	var out []*record
	for rows.Next() {
		r, err := scanRecord(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// running returns the ids of all diagnoses that have not ended.
func (s *store) running(ctx context.Context) ([]string, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT id FROM diagnoses WHERE ended IS NULL ORDER BY created")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err tells
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// load returns a diagnosis with its steps.
func (s *store) load(ctx context.Context, id string) (r *record, steps []*stepRow, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		r, steps, err = load(ctx, tx, id)
		return err
	})
	return r, steps, err
}

func load(ctx context.Context, tx *sql.Tx, id string) (*record, []*stepRow, error) {
	r, err := scanRecord(tx.QueryRowContext(ctx, selectRecord+" WHERE id = ?", id))
	if err != nil {
		return nil, nil, err
	}
	rows, err := tx.QueryContext(ctx, "SELECT number, round, started, step, result FROM steps WHERE diagnosis = ? ORDER BY number", id)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err tells
	var steps []*stepRow
	for rows.Next() {
		step := &stepRow{}
		var plan string
		var result sql.NullString
		if err := rows.Scan(&step.number, &step.round, &step.started, &plan, &result); err != nil {
			return nil, nil, err
		}
		if err := json.Unmarshal([]byte(plan), &step.Step); err != nil {
			return nil, nil, fmt.Errorf("step %d of %q: %w", step.number, id, err)
		}
		if result.Valid {
			if err := json.Unmarshal([]byte(result.String), &step.Result); err != nil {
				return nil, nil, fmt.Errorf("result of step %d of %q: %w", step.number, id, err)
			}
		}
		steps = append(steps, step)
	}
	return r, steps, rows.Err()
}

// update changes a diagnosis in one transaction: f gets it as it is, and what f does to it is kept unless f fails. An error of f is returned as it is. A
// diagnosis that has ended is not changed: f is not called. It is not broken off when ctx ends: what is to be recorded has happened.
func (s *store) update(ctx context.Context, id string, f func(*change) error) (*record, error) {
	ctx = context.WithoutCancel(ctx)
	var r *record
	err := s.tx(ctx, func(tx *sql.Tx) error {
		var steps []*stepRow
		var err error
		if r, steps, err = load(ctx, tx, id); err != nil || r.ended() {
			return err
		}
		c := &change{record: r, steps: steps}
		if err := f(c); err != nil {
			return err
		}
		return c.write(ctx, tx)
	})
	if err != nil {
		return nil, err
	}
	s.notify(id)
	return r, nil
}

// change is what is done to a diagnosis in one transaction.
type change struct {
	*record

	steps   []*stepRow
	touched []*stepRow
	events  []*incidentsv1.DiagnosisEvent
}

// event adds an event.
func (c *change) event(e *incidentsv1.DiagnosisEvent) {
	c.last++
	e.EventId, e.TaskId = eventID(c.id, c.last), c.Name
	c.events = append(c.events, e)
}

// touch has a step, new or changed, written.
func (c *change) touch(step *stepRow) { c.touched = append(c.touched, step) }

// step returns the step with a number, which counts from 1.
func (c *change) step(number int) *stepRow { return c.steps[number-1] }

func (c *change) write(ctx context.Context, tx *sql.Tx) error {
	kept, diagnosis, err := c.columns()
	if err != nil {
		return err
	}
	var ended any
	if c.ended() {
		ended = c.EndTime.AsTime().UnixNano()
	}
	if _, err := tx.ExecContext(ctx, "UPDATE diagnoses SET ended = ?, last = ?, record = ?, diagnosis = ? WHERE id = ?", ended, c.last, kept, diagnosis, c.id); err != nil {
		return err
	}
	for _, step := range c.touched {
		plan, err := json.Marshal(step.Step)
		if err != nil {
			return err
		}
		var result any
		if step.Result != nil {
			b, err := json.Marshal(step.Result)
			if err != nil {
				return err
			}
			result = string(b)
		}
		if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO steps (diagnosis, number, round, started, step, result) VALUES (?, ?, ?, ?, ?, ?)",
			c.id, step.number, step.round, step.started, string(plan), result); err != nil {
			return err
		}
	}
	first := c.last - int64(len(c.events)) + 1
	for i, e := range c.events {
		b, err := proto.Marshal(e)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO events (diagnosis, id, event) VALUES (?, ?, ?)", c.id, first+int64(i), b); err != nil {
			return err
		}
	}
	return nil
}

// events returns up to limit events of a diagnosis after one.
func (s *store) events(ctx context.Context, id string, after int64, limit int) ([]*incidentsv1.DiagnosisEvent, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT event FROM events WHERE diagnosis = ? AND id > ? ORDER BY id LIMIT ?", id, after, limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err tells
	var out []*incidentsv1.DiagnosisEvent
	for rows.Next() {
		var b []byte
		if err := rows.Scan(&b); err != nil {
			return nil, err
		}
		e := &incidentsv1.DiagnosisEvent{}
		if err := proto.Unmarshal(b, e); err != nil {
			return nil, fmt.Errorf("event of %q: %w", id, err)
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

// prune forgets diagnoses that ended before a time.
func (s *store) prune(ctx context.Context, before time.Time) (int64, error) {
	result, err := s.db.ExecContext(ctx, "DELETE FROM diagnoses WHERE ended < ?", before.UnixNano())
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// waiter is a channel that several wait on.
type waiter struct {
	changed chan struct{}
	n       int
}

// changed returns a channel that is closed at the next change of a diagnosis, and a function for whoever waits no longer. Ask before reading, and no change is
// missed.
func (s *store) changed(id string) (_ <-chan struct{}, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting[id]
	if w == nil {
		w = &waiter{changed: make(chan struct{})}
		s.waiting[id] = w
	}
	w.n++
	return w.changed, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.n--; w.n == 0 && s.waiting[id] == w {
			delete(s.waiting, id)
		}
	}
}

func (s *store) notify(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waiting[id]; w != nil {
		close(w.changed)
		delete(s.waiting, id)
	}
}

// columns are the parts of a record that have no column of their own.
func (r *record) columns() (kept string, diagnosis []byte, err error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", nil, err
	}
	diagnosis, err = proto.Marshal(r.Diagnosis)
	return string(b), diagnosis, err
}

func scanRecord(row interface{ Scan(...any) error }) (*record, error) {
	r := &record{Diagnosis: &incidentsv1.Diagnosis{}}
	var kept string
	var diagnosis []byte
	if err := row.Scan(&r.id, &r.tenant, &r.requestID, &r.last, &kept, &diagnosis); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return nil, errUnknown
		}
		return nil, err
	}
	if err := json.Unmarshal([]byte(kept), r); err != nil {
		return nil, fmt.Errorf("record of %q: %w", r.id, err)
	}
	if err := proto.Unmarshal(diagnosis, r.Diagnosis); err != nil {
		return nil, fmt.Errorf("diagnosis %q: %w", r.id, err)
	}
	return r, nil
}
