package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// marks are the last sequences that the streams of an embedded engine are known to have had on disk. The engine opens files that were cut short, or
// whose end is damaged, as if what is missing had never been: a stream that ends before its mark has lost records, which must not go unnoticed,
// since a lost idempotency key lets a call run twice.
type marks struct {
	file  string
	known map[string]end
}

// end is how far a stream goes.
type end struct {
	Last uint64 `json:"last"`
	// Until is how long the last record stays if nothing is written after it, of a table of keys; nil: it may go at any time. The engine gives a
	// stream that was cut short its old end, but not its records.
	Until *time.Time `json:"until,omitempty"`
	there bool
}

// openMarks reads the marks in a directory.
func openMarks(dir string) (*marks, error) {
	m := &marks{file: filepath.Join(dir, "marks.json"), known: map[string]end{}}
	raw, err := os.ReadFile(m.file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &m.known)
	}
	if err != nil {
		return nil, fmt.Errorf("store: read %q, which says how far the records went: %w; restore it, or remove it to go on with what is there", m.file, err)
	}
	return m, nil
}

// check compares the streams with their marks.
func (m *marks) check(have map[string]end) error {
	for name, then := range m.known {
		now := have[name]
		gone := now.Last == then.Last && !now.there && then.Until != nil && time.Now().Before(*then.Until)
		if now.Last < then.Last || gone {
			return fmt.Errorf("store: %q in %q has lost records, the one of number %d for one: its files were damaged or removed; restore a backup, or remove %q to go on without them: "+
				"calls whose keys are lost may be executed again", name, filepath.Dir(m.file), then.Last, m.file)
		}
	}
	return nil
}

// keep writes the marks, if they have changed.
func (m *marks) keep(have map[string]end) error {
	if maps.EqualFunc(have, m.known, func(a, b end) bool { return a.Last == b.Last }) {
		return nil
	}
	raw, err := json.Marshal(have)
	if err == nil {
		err = writeSynced(m.file, raw)
	}
	if err == nil {
		m.known = have
	}
	return err
}

// ends returns how far each stream goes.
func (s *Store) ends(ctx context.Context) (map[string]end, error) {
	ctx, cancel := context.WithTimeout(ctx, s.conf.Timeout)
	defer cancel()
	out := map[string]end{}
	list := s.js.ListStreams(ctx)
	for i := range list.Info() {
		e := end{Last: i.State.LastSeq}
		if i.Config.MaxMsgsPerSubject == 1 && i.Config.AllowMsgTTL && e.Last > 0 {
			if err := s.last(ctx, i.Config.Name, &e); err != nil {
				return nil, err
			}
		}
		out[i.Config.Name] = e
	}
	return out, classify(list.Err())
}

// forever is when a record without a time to live is given up.
var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// last says whether a table's last record is there, and until when.
func (s *Store) last(ctx context.Context, name string, e *end) error {
	st, err := s.js.Stream(ctx, name)
	if err != nil {
		return classify(err)
	}
	m, err := st.GetMsg(ctx, e.Last)
	if errors.Is(classify(err), ErrNotFound) {
		return nil
	}
	if err != nil {
		return classify(err)
	}
	until := forever
	if ttl := m.Header.Get(jetstream.MsgTTLHeader); ttl != "" {
		d, err := time.ParseDuration(ttl)
		if err != nil {
			return nil //nolint:nilerr // "never" and the like: it is not relied on
		}
		until = m.Time.Add(d - time.Second)
	}
	e.there, e.Until = true, &until
	return nil
}

// mark keeps how far the streams go. That it fails loses nothing: it is done again.
func (s *Store) mark(ctx context.Context) {
	if s.marks == nil || s.engine.fault.Load() != nil {
		return
	}
	have, err := s.ends(ctx)
	if err != nil {
		return
	}
	if err := s.marks.check(have); err != nil { // the engine has come upon damage, and dropped what comes after it
		why := err.Error()
		s.damaged.Store(&why)
		s.note(why)
		return
	}
	if err := s.marks.keep(have); err != nil {
		s.log.Debug("keep how far the store goes", "error", err)
	}
}
