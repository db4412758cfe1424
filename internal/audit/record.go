package audit

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
)

// Record is what is kept of a call: a toolway.v1.AuditRecord in protobuf's encoding. Most records are never read, and these bytes point to nothing: to keep
// them costs a copy, and the collector nothing.
type Record []byte

// Encode returns the record of a message.
func Encode(r *toolwayv1.AuditRecord) (Record, error) {
	wire, err := proto.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the record of call %q: %w", r.GetCallId(), err)
	}
	return wire, nil
}

// Decode returns the record as a message of its own.
func (r Record) Decode() (*toolwayv1.AuditRecord, error) {
	m := &toolwayv1.AuditRecord{}
	if err := proto.Unmarshal(r, m); err != nil {
		return nil, fmt.Errorf("decode the record of call %q: %w", r.callID(), err)
	}
	return m, nil
}

// CallID returns the id of the call, without decoding the rest.
func (r Record) CallID() string { return string(r.callID()) }

// callIDField is the number of AuditRecord.call_id.
const callIDField = 1

// callID looks for the field, which stands first in what proto.Marshal and the mesh itself encode.
func (r Record) callID() []byte {
	for wire := r; len(wire) > 0; {
		number, typ, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return nil
		}
		if number == callIDField && typ == protowire.BytesType {
			id, _ := protowire.ConsumeBytes(wire[n:])
			return id
		}
		m := protowire.ConsumeFieldValue(number, typ, wire[n:])
		if m < 0 {
			return nil
		}
		wire = wire[n+m:]
	}
	return nil
}
