package workloads

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/fnv"
)

// position is a place in the outbox of one store. While the snapshot at the start of a stream is sent, it also says which workload's was the last.
type position struct {
	store uint32
	seq   int64
	// after is the workload whose snapshot was sent last; "" once they all were.
	after string
}

// The first byte of each encoding, so that a cursor is never taken for a page token and a later layout can be told apart.
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
	b := []byte{cursorLayout}
	b = binary.BigEndian.AppendUint32(b, p.store)
	b = binary.BigEndian.AppendUint64(b, uint64(p.seq))
	return base64.RawURLEncoding.EncodeToString(append(b, p.after...))
}

// parseCursor reads what [position.String] wrote.
func parseCursor(s string) (position, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 13 || b[0] != cursorLayout {
		return position{}, errCursor
	}
	p := position{store: binary.BigEndian.Uint32(b[1:]), seq: int64(binary.BigEndian.Uint64(b[5:])), after: string(b[13:])}
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
	return base64.RawURLEncoding.EncodeToString(append([]byte{pageTokenLayout}, last...))
}

func parsePageToken(s string) (last string, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 2 || b[0] != pageTokenLayout || checkName(string(b[1:])) != nil {
		return "", errPageToken
	}
	return string(b[1:]), nil
}
