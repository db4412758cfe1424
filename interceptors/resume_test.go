package interceptors_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
)

const feedProto = `
syntax = "proto3";
package feed.v1;
import "toolway/v1/options.proto";
service Feed {
  rpc Watch(WatchRequest) returns (stream Event) {
    option (toolway.v1.method) = {stream: {cursor_field: "from.after", event_id_field: "meta.seq"}};
  }
  rpc Plain(WatchRequest) returns (stream Event);
}
message WatchRequest { message From { uint64 after = 1; } From from = 1; }
message Event { message Meta { uint64 seq = 1; } string text = 1; Meta meta = 2; }
`

// broken makes a call whose backend sends messages and breaks, and returns the status.
func broken(t *testing.T, method string, messages []string, err error) *status.Status {
	t.Helper()
	m := contract(t, feedProto).Method("/feed.v1.Feed/" + method)
	final := func(_ any, s grpc.ServerStream) error {
		for _, json := range messages {
			if err := s.SendMsg(call.NewFrame(nil, fromJSON(t, m.Response(), json))); err != nil {
				return err
			}
		}
		return err
	}
	_, got := run(t.Context(), call.New(m, call.GRPC), nil, final, interceptors.Default(interceptors.Options{Logger: discard()})...)
	return status.Convert(got)
}

// onlyInfo returns the only ErrorInfo of a status, or nil.
func onlyInfo(t *testing.T, st *status.Status) *errdetails.ErrorInfo {
	t.Helper()
	var found *errdetails.ErrorInfo
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			if found != nil {
				t.Errorf("two ErrorInfo in %v", st)
			}
			found = info
		}
	}
	return found
}

func TestResumeCursor(t *testing.T) {
	with := func(code codes.Code, details ...protoadapt.MessageV1) error {
		st, err := status.New(code, "gone").WithDetails(details...)
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	event := func(seq int) string { return fmt.Sprintf(`{"text":"t","meta":{"seq":%d}}`, seq) }
	own := map[string]string{"cursor": "9", "cursor_field": "from.after", "messages": "2"}
	for _, c := range []struct {
		name, method   string
		messages       []string
		err            error
		reason, domain string
		metadata       map[string]string
	}{
		{"broken", "Watch", []string{event(7), event(9)}, with(codes.Unavailable), "STREAM_BROKEN", "toolway", own},
		{"other details stay", "Watch", []string{event(7), event(9)}, with(codes.Unavailable, &errdetails.RetryInfo{RetryDelay: durationpb.New(1)}), "STREAM_BROKEN", "toolway", own},
		{"last one without", "Watch", []string{event(7), event(9), `{"text":"x"}`}, with(codes.Unavailable), "STREAM_BROKEN", "toolway", own},
		{"shut down", "Watch", []string{event(7), event(9)}, call.Error(codes.Unavailable, "DRAINING", "the mesh stops"), "DRAINING", "toolway", own},
		{"a cause of the backend's", "Watch", []string{event(7), event(9)}, with(codes.Aborted, &errdetails.ErrorInfo{Reason: "MOVED", Domain: "feed", Metadata: map[string]string{"to": "b"}}),
			"MOVED", "feed", map[string]string{"to": "b", "cursor": "9", "cursor_field": "from.after", "messages": "2"}},
		{"a cursor of the backend's", "Watch", []string{event(7)}, with(codes.Aborted, &errdetails.ErrorInfo{Reason: "MOVED", Domain: "feed", Metadata: map[string]string{"cursor": "8"}}),
			"MOVED", "feed", map[string]string{"cursor": "8", "cursor_field": "from.after"}},
		{"past retention", "Watch", []string{event(7)}, with(codes.OutOfRange), "", "", nil},
		{"resync", "Watch", []string{event(7)}, with(codes.FailedPrecondition, &errdetails.ErrorInfo{Reason: "RESYNC_REQUIRED", Domain: "feed"}), "RESYNC_REQUIRED", "feed", nil},
		{"nothing came", "Watch", nil, with(codes.Unavailable), "", "", nil},
		{"nothing has a cursor", "Watch", []string{`{"text":"x"}`}, with(codes.Unavailable), "", "", nil},
		{"no contract", "Plain", []string{event(7)}, with(codes.Unavailable), "", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := broken(t, c.method, c.messages, c.err)
			if want := status.Code(c.err); want != codes.Unknown && st.Code() != want {
				t.Errorf("code %v, want %v", st.Code(), want)
			}
			info := onlyInfo(t, st)
			if info.GetReason() != c.reason || info.GetDomain() != c.domain || !maps.Equal(info.GetMetadata(), c.metadata) {
				t.Errorf("ErrorInfo %v, want %s %s %v", info, c.domain, c.reason, c.metadata)
			}
			if was := status.Convert(c.err).Details(); len(was) > 0 && onlyInfo(t, status.Convert(c.err)) == nil && len(st.Details()) <= len(was) && c.reason != "" {
				t.Errorf("details %v, want those of %v too", st.Details(), c.err)
			}
		})
	}
	if st := broken(t, "Watch", []string{event(7)}, nil); st.Code() != codes.OK {
		t.Errorf("a stream that ends well: %v", st)
	}
}

// A caller who takes no more is told nothing: the door knows its own error again.
func TestResumeOfCallerWhoIsGone(t *testing.T) {
	m := contract(t, feedProto).Method("/feed.v1.Feed/Watch")
	gone := status.Error(codes.Canceled, "full")
	n := 0
	s := call.NewStream(context.Background(), call.New(m, call.MCP), call.One(call.NewFrame(nil, nil)), func(*call.Frame) error {
		if n++; n > 1 {
			return gone
		}
		return nil
	}, nil)
	err := interceptors.Chain(func(_ any, s grpc.ServerStream) error {
		for {
			if err := s.SendMsg(call.NewFrame(nil, fromJSON(t, m.Response(), `{"meta":{"seq":1}}`))); err != nil {
				return err
			}
		}
	}, interceptors.Resume(interceptors.Options{}))(s)
	if !errors.Is(err, gone) || len(status.Convert(err).Details()) > 0 {
		t.Errorf("%v, want the door's own error", err)
	}
}
