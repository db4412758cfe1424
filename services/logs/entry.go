package logs

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
)

// Names that VictoriaLogs gives a meaning to, and the one that this service adds.
const (
	fieldTime     = "_time"
	fieldMessage  = "_msg"
	fieldStream   = "_stream"
	fieldStreamID = "_stream_id"
	fieldSequence = "ingest_seq"
)

// Limits of one entry. VictoriaLogs drops larger names and entries silently, so they are refused before.
const (
	maxFields     = 256
	maxFieldName  = 128
	maxEntryBytes = 256 << 10
	maxAhead      = 24 * time.Hour
)

// Entry is one log entry as engines hold it.
type Entry struct {
	// Time is when it happened, to the nanosecond.
	Time time.Time
	// Message is the line of text.
	Message string
	// Fields is everything else.
	Fields map[string]string
	// Sequence is the order of arrival: microseconds of arrival, moved forward to be unique in one process. 0 means that the
	// entry did not come through this service.
	Sequence uint64
}

// size is what the entry counts against limits: its text.
func (e Entry) size() int {
	n := len(e.Message)
	for name, value := range e.Fields {
		n += len(name) + len(value)
	}
	return n
}

// hash tells entries of one time apart that have no sequence.
func (e Entry) hash() uint64 {
	h := fnv.New64a()
	write := func(s string) {
		_, _ = h.Write(strconv.AppendQuote(nil, s))
	}
	write(e.Message)
	for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
		write(name)
		write(e.Fields[name])
	}
	return h.Sum64()
}

// key is the entry's place in the total order that pages are cut from: time, then arrival, then content.
type key struct {
	time int64
	seq  uint64
	hash uint64
}

func (e Entry) key() key { return key{e.Time.UnixNano(), e.Sequence, e.hash()} }

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.time, other.time), cmp.Compare(k.seq, other.seq), cmp.Compare(k.hash, other.hash))
}

// set stores one field as VictoriaLogs returned it. An empty value is the same as no field there.
func (e *Entry) set(name, value string) error {
	switch name {
	case fieldTime:
		t, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return fmt.Errorf("read an entry's time %q: %w", value, err)
		}
		e.Time = t
	case fieldMessage:
		e.Message = value
	case fieldStream, fieldStreamID:
	case fieldSequence:
		// An entry of foreign origin may hold anything here; then it has no sequence.
		e.Sequence, _ = strconv.ParseUint(value, 10, 53)
	default:
		if value != "" {
			e.Fields[name] = value
		}
	}
	return nil
}

func (e Entry) proto() *logsv1.LogEntry {
	return &logsv1.LogEntry{Time: timestamppb.New(e.Time), Message: e.Message, Fields: e.Fields}
}

// parseEntry checks an entry that a caller sent. now stands in for a missing time; a time before now-retention or more than
// a day ahead is refused, since the engine would drop it.
func parseEntry(p *logsv1.LogEntry, now time.Time, retention time.Duration) (Entry, error) {
	e := Entry{Time: now, Message: p.GetMessage(), Fields: p.GetFields()}
	if p.GetMessage() == "" {
		return Entry{}, rejected(malformed, "message is empty; say what happened")
	}
	if p.Time != nil {
		if err := p.Time.CheckValid(); err != nil {
			return Entry{}, rejected(malformed, "time is not a valid timestamp: %v", err)
		}
		e.Time = p.Time.AsTime()
	}
	if oldest := now.Add(-retention); retention > 0 && e.Time.Before(oldest) {
		return Entry{}, rejected(tooOld, "time %s is older than the retention; the oldest that is kept is %s", stamp(e.Time), stamp(oldest))
	}
	if e.Time.After(now.Add(maxAhead)) {
		return Entry{}, rejected(tooNew, "time %s is more than %s ahead; check the producer's clock and unit", stamp(e.Time), maxAhead)
	}
	if len(e.Fields) > maxFields {
		return Entry{}, rejected(tooLarge, "%d fields are more than %d", len(e.Fields), maxFields)
	}
	for name := range e.Fields {
		switch name {
		case "", fieldTime, fieldMessage, fieldStream, fieldStreamID, fieldSequence:
			return Entry{}, rejected(malformed, "field name %q belongs to the store; use another", name)
		}
		if len(name) > maxFieldName {
			return Entry{}, rejected(tooLarge, "field name %.32q… has %d bytes; at most %d are kept", name, len(name), maxFieldName)
		}
	}
	if n := e.size(); n > maxEntryBytes {
		return Entry{}, rejected(tooLarge, "entry has %d bytes; at most %d are kept", n, maxEntryBytes)
	}
	return e, nil
}

// The kinds of reasons to reject an entry.
const (
	malformed = logsv1.RejectionCode_REJECTION_CODE_MALFORMED
	tooLarge  = logsv1.RejectionCode_REJECTION_CODE_TOO_LARGE
	tooOld    = logsv1.RejectionCode_REJECTION_CODE_TOO_OLD
	tooNew    = logsv1.RejectionCode_REJECTION_CODE_TOO_NEW
)

// rejection is why an entry is not stored.
type rejection struct {
	code logsv1.RejectionCode
	text string
}

func (r *rejection) Error() string { return r.text }

func rejected(code logsv1.RejectionCode, format string, args ...any) error {
	return &rejection{code, fmt.Sprintf(format, args...)}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
