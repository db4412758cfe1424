package interceptors

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// methodFacts is what a method's calls need to be recorded, made once.
type methodFacts struct {
	record       audit.Record // what all of their records say
	request      *transcode.Message
	scrub        *scrub
	kind         catalog.Kind
	operation    bool // it answers with a google.longrunning.Operation
	maxArguments int
}

func auditFacts(m *catalog.Method, maxArguments int) *methodFacts {
	return &methodFacts{record: methodRecord(m), request: m.Request(), scrub: newScrub(m.Desc.Input(), m.Sensitive(toolschema.Input)), kind: m.Kind(),
		operation: m.Desc.Output().FullName() == "google.longrunning.Operation", maxArguments: maxArguments}
}

// audited is the stream of a call that is recorded: it hashes what passes. RecvMsg and SendMsg may run on two goroutines; they share no
// field.
type audited struct {
	grpc.ServerStream
	facts *methodFacts

	// Of the requests.
	requests int64
	seen     *seen // nil: nobody has looked yet

	// Of the replies.
	results     int64
	resultBytes int64
	resultSum   [sha256.Size]byte
	resultHash  digest // of a stream, or of a reply in several buffers
	sideEffect  string
}

// seen is what is recorded of the requests themselves.
type seen struct {
	hash      [sha256.Size]byte // of the only one
	stream    digest
	arguments []byte // JSON
	cut       transcode.Cut
}

func (s *seen) sum() []byte {
	if s.stream.hash != nil {
		return s.stream.hash.Sum(nil)
	}
	return s.hash[:]
}

// sideEffectHeader is how a backend names what a call has set off.
const sideEffectHeader = "side-effect-id"

// SetHeader looks for the id of a side effect.
func (s *audited) SetHeader(md metadata.MD) error {
	s.noteHeader(md)
	return s.ServerStream.SetHeader(md)
}

// SendHeader looks for the id of a side effect.
func (s *audited) SendHeader(md metadata.MD) error {
	s.noteHeader(md)
	return s.ServerStream.SendHeader(md)
}

func (s *audited) noteHeader(md metadata.MD) {
	if vs := md[sideEffectHeader]; len(vs) > 0 {
		s.sideEffect = vs[0]
	}
}

// RecvMsg hashes the messages of a request stream. A single request is looked at when the call is over, unless nobody keeps it until then.
func (s *audited) RecvMsg(m any) error {
	f, isFrame := m.(*call.Frame)
	if !s.facts.kind.Client {
		if !isFrame { // what is decoded straight into a message is kept nowhere but behind a peek, whose error RecvMsg tells too
			_, _ = call.Request(s.ServerStream)
		}
		err := s.ServerStream.RecvMsg(m)
		if err == nil {
			s.requests = 1
			if isFrame && call.FromContext(s.Context()).Received() == nil {
				s.captureNow(f)
			}
		}
		return err
	}
	if !isFrame {
		return s.recvMessage(m)
	}
	err := s.ServerStream.RecvMsg(f)
	if err == nil {
		s.stream(f)
	}
	return err
}

// recvMessage receives a message of a request stream that is decoded by whoever asks.
func (s *audited) recvMessage(m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return s.ServerStream.RecvMsg(m)
	}
	var f call.Frame
	if err := s.ServerStream.RecvMsg(&f); err != nil {
		return err
	}
	defer f.Release()
	s.stream(&f)
	if err := proto.Unmarshal(f.Bytes(), msg); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// scratch holds what a record is made in: the buffers that a request passes through, and the record.
type scratch struct {
	canonical, clean, json []byte
	seen                   seen
	record                 recordWriter
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

const pooledScratch = 64 << 10

func (b *scratch) release() {
	if cap(b.canonical) <= pooledScratch && cap(b.clean) <= pooledScratch && cap(b.json) <= pooledScratch && cap(b.record) <= pooledScratch {
		b.seen = seen{}
		scratches.Put(b)
	}
}

// canonicalOf returns the canonical form of f; the bytes as they are, if they are malformed.
func (s *audited) canonicalOf(f *call.Frame, b *scratch) (wire []byte, ok bool) {
	wire, err := s.facts.request.AppendCanonical(b.canonical[:0], f.Bytes())
	if err != nil {
		return f.Bytes(), false
	}
	b.canonical = wire[:0]
	return wire, true
}

// capture notes the only request, in b: a record that is made at once takes it from there.
func (s *audited) capture(f *call.Frame, b *scratch) {
	wire, ok := s.canonicalOf(f, b)
	s.requests, s.seen = 1, &b.seen
	s.seen.hash = sha256.Sum256(wire)
	s.show(wire, ok, b)
}

// captureNow notes the only request, which nobody keeps until the call is over.
func (s *audited) captureNow(f *call.Frame) {
	b := scratches.Get().(*scratch)
	defer b.release()
	s.capture(f, b)
	own := b.seen
	own.arguments = bytes.Clone(own.arguments)
	s.seen = &own
}

// stream notes one message of a request stream.
func (s *audited) stream(f *call.Frame) {
	b := scratches.Get().(*scratch)
	defer b.release()
	wire, ok := s.canonicalOf(f, b)
	if s.seen == nil {
		s.seen = &seen{}
		s.show(wire, ok, b)
		s.seen.arguments = bytes.Clone(s.seen.arguments)
	}
	s.seen.stream.begin(len(wire))
	s.seen.stream.add(wire)
	s.requests++
}

// maxShown is the largest request that is shown at all: to scrub a larger one costs more than a few of its fields are worth.
const maxShown = 64 << 10

// show notes the canonical request as JSON without its secrets, which is in b.
func (s *audited) show(wire []byte, ok bool, b *scratch) {
	most := s.facts.maxArguments
	if most < 0 {
		return
	}
	if ok = ok && len(wire) <= maxShown; ok && s.facts.scrub != nil {
		wire, ok = s.facts.scrub.append(b.clean[:0], wire, 0)
		b.clean = wire[:0]
	}
	if !ok {
		s.seen.cut.More = 1
		return
	}
	json, err := s.facts.request.AppendJSON(b.json[:0], wire, transcode.WriteOptions{OpaqueAny: true, MaxBytes: most, Cut: &s.seen.cut})
	b.json = json[:0]
	if err != nil || len(json) > most { // what has no JSON, and what the writer never cuts
		s.seen.cut.More = 1
		return
	}
	s.seen.arguments = json
}

// digest is a SHA-256 of messages. The zero value is that of none.
type digest struct {
	hash   hash.Hash // nil: nothing yet
	length [binary.MaxVarintLen64]byte
}

// begin adds the length of the message that follows, as a varint.
func (d *digest) begin(size int) { d.add(binary.AppendUvarint(d.length[:0], uint64(size))) } //nolint:gosec // lengths

func (d *digest) add(b []byte) {
	if d.hash == nil {
		d.hash = sha256.New()
	}
	d.hash.Write(b)
}

// SendMsg hashes what was sent.
func (s *audited) SendMsg(m any) error {
	f, ok := m.(*call.Frame)
	if !ok {
		msg, ok := m.(proto.Message)
		if !ok {
			return s.ServerStream.SendMsg(m)
		}
		wire, err := proto.Marshal(msg)
		if err != nil {
			return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
		}
		f = call.NewFrame(nil, wire)
	}
	if err := s.ServerStream.SendMsg(f); err != nil {
		return err
	}
	s.sent(f)
	return nil
}

func (s *audited) sent(f *call.Frame) {
	s.results++
	size := f.Len()
	s.resultBytes += int64(size)
	parts := f.Buffers()
	if s.facts.operation && s.sideEffect == "" {
		s.sideEffect = operationName(f.Bytes())
		parts = f.Buffers()
	}
	switch {
	case s.facts.kind.Server:
		s.resultHash.begin(size)
	case len(parts) == 0:
		s.resultSum = sha256.Sum256(nil)
	case len(parts) == 1:
		s.resultSum = sha256.Sum256(parts[0].ReadOnlyData())
		return
	}
	for _, p := range parts {
		s.resultHash.add(p.ReadOnlyData())
	}
}

// operationName is the name of a google.longrunning.Operation, its field 1.
func operationName(wire []byte) string {
	name := ""
	for len(wire) > 0 {
		number, typ, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return ""
		}
		if number == 1 && typ == protowire.BytesType {
			v, m := protowire.ConsumeBytes(wire[n:])
			if m < 0 {
				return ""
			}
			name = string(v)
		}
		m := protowire.ConsumeFieldValue(number, typ, wire[n:])
		if m < 0 {
			return ""
		}
		wire = wire[n+m:]
	}
	return name
}
