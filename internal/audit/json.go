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
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/transcode"
)

// Sink keeps records. It may be called concurrently.
type Sink interface {
	// Record keeps r, which from then on nobody changes. An error means that it is not kept.
	Record(ctx context.Context, r *toolwayv1.AuditRecord) error
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
func (t tee) Record(ctx context.Context, r *toolwayv1.AuditRecord) error {
	var failed error
	for _, s := range t {
		failed = errors.Join(failed, s.Record(ctx, r))
	}
	return failed
}

// record writes and reads records as ProtoJSON: the mesh's own transcoder makes no intermediate message and is fast.
var record = transcode.NewSet(protoregistry.GlobalTypes).Message((*toolwayv1.AuditRecord)(nil).ProtoReflect().Descriptor())

var buffers = sync.Pool{New: func() any { return new([2][]byte) }}

// pooled is the largest buffer that is kept for the next record.
const pooled = 64 << 10

// AppendJSON appends r as one line of ProtoJSON, the newline aside.
func AppendJSON(dst []byte, r *toolwayv1.AuditRecord) ([]byte, error) {
	b := buffers.Get().(*[2][]byte)
	defer buffers.Put(b)
	wire, err := proto.MarshalOptions{}.MarshalAppend(b[0][:0], r)
	if err != nil {
		return dst, fmt.Errorf("encode the record of call %q: %w", r.GetCallId(), err)
	}
	if cap(wire) <= pooled {
		b[0] = wire[:0]
	}
	return record.AppendJSON(dst, wire, transcode.WriteOptions{})
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

// ParseJSON reads one record as AppendJSON writes it.
func ParseJSON(line []byte) (*toolwayv1.AuditRecord, error) {
	wire, err := record.AppendWire(nil, line, transcode.ReadOptions{DiscardUnknown: true})
	if err != nil {
		return nil, fmt.Errorf("no audit record: %w", err)
	}
	rec := &toolwayv1.AuditRecord{}
	if err := proto.Unmarshal(wire, rec); err != nil {
		return nil, fmt.Errorf("no audit record: %w", err)
	}
	return rec, nil
}
