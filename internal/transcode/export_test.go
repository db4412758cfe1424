package transcode

import "io"

// WriteJSONPieces is WriteJSON with pieces of another size.
func (m *Message) WriteJSONPieces(to io.Writer, wire []byte, o WriteOptions, piece int) error {
	_, err := m.writeJSON(to, nil, wire, o, piece)
	return err
}

// What writing costs at least, for the floor that benchmarks compare with.
var (
	AppendString    = appendString
	AppendFloat     = appendFloat
	AppendTimestamp = appendTimestamp
)
