// Package audit keeps records of calls: in a file, in memory, in the log.
package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"google.golang.org/protobuf/reflect/protoregistry"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/transcode"
)

// Sink keeps records. It may be called concurrently.
type Sink interface {
	// Record keeps r. It does not change r and keeps a copy, since the bytes are used again once it has returned. ctx is the call's, which may be over: what waits
	// does so without it. An error means that the record is not kept.
	Record(ctx context.Context, r Record) error
}

// Tee returns a sink that gives every record to all of sinks, even if one fails.
func Tee(sinks ...Sink) Sink {
	if len(sinks) == 1 {
		return sinks[0]
	}
	return tee(sinks)
}

type tee []Sink

// Record gives r to every sink.
func (t tee) Record(ctx context.Context, r Record) error {
	var failed error
	for _, s := range t {
		failed = errors.Join(failed, s.Record(ctx, r))
	}
	return failed
}

// record writes and reads records as ProtoJSON: the mesh's own transcoder makes no intermediate message and is fast.
var record = transcode.NewSet(protoregistry.GlobalTypes).Message((*toolwayv1.AuditRecord)(nil).ProtoReflect().Descriptor())

// pooled is the largest buffer that is kept for the next record.
const pooled = 64 << 10

// AppendJSON appends the record as one line of ProtoJSON, the newline aside.
func (r Record) AppendJSON(dst []byte) ([]byte, error) {
	return record.AppendJSON(dst, r, transcode.WriteOptions{})
}

// AppendJSON appends r as Record.AppendJSON does.
func AppendJSON(dst []byte, r *toolwayv1.AuditRecord) ([]byte, error) {
	rec, err := Encode(r)
	if err != nil {
		return dst, err
	}
	return rec.AppendJSON(dst)
}

// maxLine bounds one line that is read.
const maxLine = 1 << 20

// Read returns the records of a file of JSON lines, in its order. Fields that this version does not know are left out. After an error, which
// names the line, it goes on with the next one: a crash may have cut a line short. A read error of r itself ends it.
func Read(r io.Reader) iter.Seq2[*toolwayv1.AuditRecord, error] {
	return func(yield func(*toolwayv1.AuditRecord, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 64<<10), maxLine)
		for n := 1; lines.Scan(); n++ {
			line := bytes.TrimSpace(lines.Bytes())
			if len(line) == 0 {
				continue
			}
			rec, err := ParseJSON(line)
			if err != nil {
				err = fmt.Errorf("line %d: %w", n, err)
			}
			if !yield(rec, err) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// ParseJSON reads one record as Record.AppendJSON writes it.
func ParseJSON(line []byte) (*toolwayv1.AuditRecord, error) {
	wire, err := record.AppendWire(nil, line, transcode.ReadOptions{DiscardUnknown: true})
	if err != nil {
		return nil, fmt.Errorf("no audit record: %w", err)
	}
	return Record(wire).Decode()
}
