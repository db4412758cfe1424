package task

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/store"
	"github.com/toolway/toolway/internal/transcode"
)

// answer gathers what comes of a call, up to a bound.
type answer struct {
	max      int
	blob     []byte
	messages int64
	bytes    int64
	cut      bool
}

func (a *answer) add(wire []byte) {
	a.messages++
	a.bytes += int64(len(wire))
	if a.cut = a.cut || len(a.blob)+len(wire) > a.max; !a.cut {
		a.blob = protowire.AppendBytes(a.blob, wire)
	}
}

// keep keeps the answer and notes in the record where. What is too large for the task's own answer goes to the results, as JSON.
func (t *Tasks) keep(ctx context.Context, r *record, m *catalog.Method, p *identity.Principal, a *answer) error {
	r.Size, r.Cut = a.bytes, a.cut
	if a.cut && !m.Kind().Server {
		return nil
	}
	if len(a.blob) <= t.conf.MaxInlineBytes {
		return t.put(ctx, key("o", r.owner, r.ID), a.blob, r.keep(r.Created))
	}
	if t.conf.Results == nil {
		r.Cut = true
		return nil
	}
	body, err := asJSON(m, split(a.blob))
	if err != nil {
		t.log.Warn("the answer of a task cannot be shown as JSON, and is not kept", "task", r.ID, "method", r.Method, "error", err)
		r.Cut = true
		return nil
	}
	tenant, principal := who(p)
	until := time.Now().Add(r.TTL + writeFor) // the task ends within that
	info, err := t.conf.Results.Keep(ctx, object.Owner{Tenant: tenant, Principal: principal}, "application/json", body, until)
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return err
	case err != nil:
		t.log.Warn("the answer of a task is too large for the results, and is not kept", "task", r.ID, "method", r.Method, "bytes", len(body), "error", err)
		r.Cut = true
		return nil
	}
	r.URI = "toolway://objects/" + info.ID
	return nil
}

func asJSON(m *catalog.Method, messages [][]byte) (json.RawMessage, error) {
	var out []byte
	var err error
	stream := m.Kind().Server
	if stream {
		out = append(out, '[')
	}
	for i, wire := range messages {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = m.Response().AppendJSON(out, wire, transcode.WriteOptions{OpaqueAny: true}); err != nil {
			return nil, call.Error(codes.Internal, "REPLY_NOT_SHOWN", "the answer cannot be shown as JSON: "+err.Error(), "hint", "get the task with as_protobuf")
		}
	}
	if stream {
		out = append(out, ']')
	}
	return out, nil
}

func marshalStatus(st *status.Status) []byte {
	wire, err := proto.Marshal(st.Proto())
	if err != nil || len(wire) > maxStatus {
		wire, _ = proto.Marshal(&spb.Status{Code: st.Proto().GetCode(), Message: cut(st.Message(), 4<<10)})
	}
	return wire
}

// maxStatus bounds the status that is kept: its details are left out beyond.
const maxStatus = 64 << 10
