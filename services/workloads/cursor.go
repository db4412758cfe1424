package workloads

import (
	"encoding/binary"
	"errors"
	"hash/fnv"

	"github.com/toolway/toolway/services/internal/token"
)

// position is a place in the outbox of one store. While the snapshot at the start of a stream is sent, it also says which workload's was the last.
type position struct {
	store uint32
	seq   int64
	// after is the workload whose snapshot was sent last; "" once they all were.
	after string
}

// The layouts of tokens.
const (
	cursorLayout    = 'c'
	pageTokenLayout = 'p'
)

var (
	errCursor    = errors.New("not a cursor of this service; use one from a message or an error as it is")
	errPageToken = errors.New("not a page token of this service; use next_page_token as it is")
)

// String is the cursor: opaque to callers, safe in URLs.
func (p position) String() string {
	b := binary.BigEndian.AppendUint32(nil, p.store)
	b = binary.BigEndian.AppendUint64(b, uint64(p.seq))
	return token.Encode(cursorLayout, append(b, p.after...))
}

// parseCursor reads what [position.String] wrote.
func parseCursor(s string) (position, error) {
	b, err := token.Decode(cursorLayout, s)
	if err != nil || len(b) < 4+8 {
		return position{}, errCursor
	}
	p := position{store: binary.BigEndian.Uint32(b), seq: int64(binary.BigEndian.Uint64(b[4:])), after: string(b[12:])}
	if p.seq < 0 || p.after != "" && checkName(p.after) != nil {
		return position{}, errCursor
	}
	return p, nil
}

// storeNumber is the short form of a store's identity that is in cursors.
func storeNumber(id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return h.Sum32()
}

func pageToken(last string) string {
	return token.Encode(pageTokenLayout, []byte(last))
}

func parsePageToken(s string) (last string, err error) {
	b, err := token.Decode(pageTokenLayout, s)
	if err != nil || checkName(string(b)) != nil {
		return "", errPageToken
	}
	return string(b), nil
}
