package logs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"google.golang.org/protobuf/types/known/timestamppb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/internal/token"
)

// Position is a place in the order in which followers see entries. What its parts mean is the engine's affair: the embedded
// one follows the order of arrival (Sequence) of entries not before Time; a server's follows (Time, Sequence, Hash).
type Position struct {
	// Store is the store that the position belongs to.
	Store uint32
	// Time is in nanoseconds since 1970.
	Time int64
	// Sequence is an entry's order of arrival.
	Sequence uint64
	// Hash is an entry's content hash.
	Hash uint64
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
func (p Position) String() string {
	b := binary.BigEndian.AppendUint32(nil, p.Store)
	b = binary.BigEndian.AppendUint64(b, uint64(p.Time))
	b = binary.BigEndian.AppendUint64(b, p.Sequence)
	b = binary.BigEndian.AppendUint64(b, p.Hash)
	return token.Encode(cursorLayout, b)
}

// parseCursor reads what [Position.String] wrote.
func parseCursor(s string) (Position, error) {
	b, err := token.Decode(cursorLayout, s)
	if err != nil || len(b) != 4+8+8+8 {
		return Position{}, errCursor
	}
	return Position{
		Store:    binary.BigEndian.Uint32(b),
		Time:     int64(binary.BigEndian.Uint64(b[4:])),
		Sequence: binary.BigEndian.Uint64(b[12:]),
		Hash:     binary.BigEndian.Uint64(b[20:]),
	}, nil
}

// pageToken freezes the range of a search and holds the last entry that was returned.
type pageToken struct {
	request    uint64 // fingerprint of the request it continues
	start, end int64
	last       key
}

func (t pageToken) String() string {
	var b []byte
	for _, v := range []uint64{t.request, uint64(t.start), uint64(t.end), uint64(t.last.time), t.last.seq, t.last.hash} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return token.Encode(pageTokenLayout, b)
}

func parsePageToken(s string) (pageToken, error) {
	b, err := token.Decode(pageTokenLayout, s)
	if err != nil || len(b) != 6*8 {
		return pageToken{}, errPageToken
	}
	v := func(i int) uint64 { return binary.BigEndian.Uint64(b[i*8:]) }
	return pageToken{request: v(0), start: int64(v(1)), end: int64(v(2)), last: key{int64(v(3)), v(4), v(5)}}, nil
}

// fingerprint identifies a search, but for its paging.
func fingerprint(req *logsv1.SearchLogsRequest, and string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%q %s %s %d %s", req.GetQuery(), instant(req.GetStartTime()), instant(req.GetEndTime()), direction(req.GetOrder()), and)
	return h.Sum64()
}

// direction folds the two spellings of the default order into one.
func direction(o logsv1.Order) logsv1.Order {
	if o == logsv1.Order_ORDER_UNSPECIFIED {
		return logsv1.Order_ORDER_NEWEST_FIRST
	}
	return o
}

// instant is the same text for the same time; a message's own String is not.
func instant(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return stamp(t.AsTime())
}
