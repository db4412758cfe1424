package interceptors

import (
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/transcode"
)

// The metadata of the google.rpc.ErrorInfo of a stream that broke. Backends that say themselves where to go on use the same keys.
const (
	// cursorKey is the cursor of the last message that was passed on and has one.
	cursorKey = "cursor"
	// cursorFieldKey is the path of the request field that takes it.
	cursorFieldKey = "cursor_field"
	// messagesKey is how many messages were passed on up to that one: these may be kept, later ones come again.
	messagesKey = "messages"
)

// maxCursorBytes is the length of a cursor beyond which it is not put into a status, which travels in a header.
const maxCursorBytes = 4096

// Resume tells the caller of a server stream that breaks which messages may be kept, and where to go on: in the ErrorInfo of the status,
// where the contract says which field of a message is its cursor. Of each message it reads that field alone. A cursor that the backend
// gives itself stays.
func Resume(Options) Policy {
	return inHalves("resume", func(m *catalog.Method) *halves {
		if m.Policy.EventIDField == "" || !m.Kind().Server {
			return nil
		}
		id, err := transcode.NewScalar(m.Desc.Output(), m.Policy.EventIDField)
		if err != nil {
			return nil // the catalog has checked it
		}
		field := m.Policy.CursorField
		return &halves{
			enter: func(_ *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
				return &passedOn{ServerStream: stream, id: id}, nil
			},
			leave: func(_ *call.Call, inner grpc.ServerStream, err error) error {
				s, ok := inner.(*passedOn)
				if !ok || err == nil || s.failed || s.kept == 0 || len(s.cursor) > maxCursorBytes {
					return err
				}
				return s.broken(err, field)
			},
		}
	})
}

// passedOn remembers the cursor of the last message.
type passedOn struct {
	grpc.ServerStream
	id             *transcode.Scalar
	cursor, spare  []byte
	messages, kept int
	failed         bool
}

// SendMsg passes one message on.
func (s *passedOn) SendMsg(m any) error {
	// Whoever takes the message may change it, such as a door that cuts it.
	cursor, ok := s.cursorOf(m)
	if err := s.ServerStream.SendMsg(m); err != nil {
		s.failed = true
		return err
	}
	s.messages++
	if ok {
		s.cursor, s.spare, s.kept = cursor, s.cursor, s.messages
	}
	return nil
}

func (s *passedOn) cursorOf(m any) ([]byte, bool) {
	var wire []byte
	switch m := m.(type) {
	case *call.Frame:
		wire = m.Bytes()
	case proto.Message:
		var err error
		if wire, err = proto.Marshal(m); err != nil {
			return nil, false
		}
	}
	cursor, ok := s.id.AppendText(s.spare[:0], wire)
	return cursor, ok && len(cursor) > 0
}

// broken adds the cursor to the status.
func (s *passedOn) broken(err error, field string) error {
	st := status.Convert(err)
	if st.Code() == codes.OK || call.Resync(st, true) {
		return err
	}
	add := map[string]string{cursorKey: string(s.cursor), messagesKey: strconv.Itoa(s.kept)}
	if field != "" {
		add[cursorFieldKey] = field
	}
	p := st.Proto() // a copy
	for i, d := range p.GetDetails() {
		var info errdetails.ErrorInfo
		if !d.MessageIs(&info) || d.UnmarshalTo(&info) != nil {
			continue
		}
		if info.GetMetadata()[cursorKey] != "" {
			add = map[string]string{cursorFieldKey: field}
		}
		if with := withMetadata(&info, add); with != nil {
			p.Details[i] = with
			return status.FromProto(p).Err()
		}
		return err
	}
	if with := withMetadata(&errdetails.ErrorInfo{Reason: "STREAM_BROKEN", Domain: call.Domain}, add); with != nil {
		p.Details = append(p.Details, with)
	}
	return status.FromProto(p).Err()
}

// withMetadata adds what is not there yet.
func withMetadata(info *errdetails.ErrorInfo, add map[string]string) *anypb.Any {
	if info.Metadata == nil {
		info.Metadata = make(map[string]string, len(add))
	}
	for k, v := range add {
		if info.Metadata[k] == "" && v != "" {
			info.Metadata[k] = v
		}
	}
	out, err := anypb.New(info)
	if err != nil {
		return nil
	}
	return out
}
