package incidents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/toolway/toolway/services/internal/token"
)

// pageTokenLayout is that of page tokens.
const pageTokenLayout = 'p'

// idLength is how long the id of a diagnosis is, in hex digits.
const idLength = 32

var errPageToken = errors.New("not a page token of this service; use next_page_token as it is")

// pageToken is where a page of ListDiagnoses ended.
type pageToken struct {
	created  int64
	id       string
	incident string // that was asked for
}

func (t pageToken) String() string {
	return token.Encode(pageTokenLayout, append(binary.BigEndian.AppendUint64(nil, uint64(t.created)), t.id+t.incident...))
}

func parsePageToken(s string) (pageToken, error) {
	b, err := token.Decode(pageTokenLayout, s)
	if err != nil || len(b) < 8+idLength {
		return pageToken{}, errPageToken
	}
	return pageToken{created: int64(binary.BigEndian.Uint64(b)), id: string(b[8 : 8+idLength]), incident: string(b[8+idLength:])}, nil
}

// eventID is the id of an event, which is a cursor too: its position, and the first digits of its diagnosis, so that it is not taken for one of another.
// Position 0 is before all of them.
func eventID(diagnosis string, position int64) string {
	return fmt.Sprintf("%d-%.8s", position, diagnosis)
}

// parseCursor reads a cursor of a diagnosis: "", or the id of an event that is not after the last one, whose position is given.
func parseCursor(cursor, diagnosis string, last int64) (position int64, err error) {
	if cursor == "" {
		return 0, nil
	}
	number, _, _ := strings.Cut(cursor, "-")
	position, err = strconv.ParseInt(number, 10, 64)
	if err != nil || position < 0 || position > last || eventID(diagnosis, position) != cursor {
		return 0, invalid("cursor", fmt.Sprintf("%q is no event_id of this diagnosis; give the one of the last event that you have, as it is", clip(cursor, 80)))
	}
	return position, nil
}
