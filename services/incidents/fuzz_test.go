package incidents_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/incidents"
)

// A trace id that is taken is one that W3C Trace Context allows.
func FuzzTraceparent(f *testing.F) {
	for s, want := range map[string]bool{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      true,
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more": true,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more": false,
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":      false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":      false,
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331":         false,
		"": false,
	} {
		if _, _, ok := incidents.ParseTraceparent(s); ok != want {
			f.Errorf("traceparent %q: %t, want %t", s, ok, want)
		}
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, flags, ok := incidents.ParseTraceparent(s)
		if ok && (len(id) != 32 || len(flags) != 2 || strings.Trim(id+flags, "0123456789abcdef") != "" || strings.Trim(id, "0") == "") {
			t.Errorf("traceparent %q: id %q, flags %q", s, id, flags)
		}
	})
}

// Whatever a tool answers, what is kept of it is within bounds, is JSON of the same kind, and is whole if it is said to be.
func FuzzFit(f *testing.F) {
	f.Add([]byte{}, 100)
	f.Add([]byte("\x0a\x08\x12\x06hello\xc3"), 300)
	f.Fuzz(func(t *testing.T, wire []byte, limit int) {
		limit = 200 + (limit&0x7fffffff)%4096
		var reply logsv1.SearchLogsResponse
		if proto.Unmarshal(wire, &reply) != nil {
			t.Skip("no reply")
		}
		for range 50 {
			reply.Entries = append(reply.Entries, &logsv1.LogEntry{Message: strings.ToValidUTF8(string(wire), ""), Fields: map[string]string{"a": strings.Repeat("é", 100)}})
		}
		before := proto.CloneOf(&reply)
		b, cut, err := incidents.Fit(&reply, limit)
		if !proto.Equal(before, &reply) {
			t.Error("the reply was changed")
		}
		if err != nil {
			return // a reply that has no JSON form, such as a time that is none
		}
		var back logsv1.SearchLogsResponse
		if err := protojson.Unmarshal(b, &back); err != nil || len(b) > limit {
			t.Errorf("%d bytes of at most %d: %v", len(b), limit, err)
		}
		before.ProtoReflect().SetUnknown(nil)
		if !cut && len(back.Entries) != len(before.Entries) {
			t.Error("it is not whole")
		}
	})
}

func FuzzClip(f *testing.F) {
	f.Add("äöü", 3)
	f.Add("\xff\xfe", 1)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = 3 + (limit&0x7fffffff)%100
		got := incidents.Clip(s, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Errorf("Clip(%q, %d) = %q", s, limit, got)
		}
	})
}
