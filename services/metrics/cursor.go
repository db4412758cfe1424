package metrics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/toolway/toolway/services/internal/token"
)

// cursor is the instant of the last answer that a watch has sent, in Unix milliseconds.
type cursor int64

// The layouts of tokens.
const (
	cursorLayout    = 'w'
	pageTokenLayout = 's'
)

// maxTokenBytes bounds a page token, which holds the labels of a series.
const maxTokenBytes = 64 << 10

var (
	errCursor    = errors.New("not a cursor of this service; use one from a message or an error as it is")
	errPageToken = errors.New("not a page token of this service; use next_page_token as it is")
)

// String is opaque to callers and safe in URLs.
func (c cursor) String() string {
	return token.Encode(cursorLayout, binary.BigEndian.AppendUint64(nil, uint64(c)))
}

// parseCursor reads what [cursor.String] wrote.
func parseCursor(s string) (cursor, error) {
	b, err := token.Decode(cursorLayout, s)
	if err != nil || len(b) != 8 {
		return 0, errCursor
	}
	c := cursor(binary.BigEndian.Uint64(b))
	if at := c.time(); at.Before(earliest) || at.After(latest) {
		return 0, errCursor
	}
	return c, nil
}

// pageToken freezes the range of a listing and holds the last series that was returned.
type pageToken struct {
	request    uint64 // of the selector and the start time that it continues
	start, end int64  // Unix milliseconds
	last       labels.Labels
}

func (t pageToken) String() string {
	var b []byte
	for _, v := range []uint64{t.request, uint64(t.start), uint64(t.end)} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	t.last.Range(func(l labels.Label) {
		for _, text := range []string{l.Name, l.Value} {
			b = binary.AppendUvarint(b, uint64(len(text)))
			b = append(b, text...)
		}
	})
	return token.Encode(pageTokenLayout, b)
}

func parsePageToken(s string) (pageToken, error) {
	if len(s) > maxTokenBytes {
		return pageToken{}, errPageToken
	}
	b, err := token.Decode(pageTokenLayout, s)
	if err != nil || len(b) < 3*8 {
		return pageToken{}, errPageToken
	}
	v := func(i int) uint64 { return binary.BigEndian.Uint64(b[i*8:]) }
	t := pageToken{request: v(0), start: int64(v(1)), end: int64(v(2))}
	var texts []string
	for rest := b[3*8:]; len(rest) > 0; {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > uint64(len(rest)-size) {
			return pageToken{}, errPageToken
		}
		texts = append(texts, string(rest[size:size+int(n)]))
		rest = rest[size+int(n):]
	}
	if len(texts)%2 != 0 {
		return pageToken{}, errPageToken
	}
	t.last = labels.FromStrings(texts...)
	return t, nil
}

// fingerprint identifies a listing, but for its paging.
func fingerprint(selector, start string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%q %s", selector, start)
	return h.Sum64()
}
