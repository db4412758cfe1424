package verify

import "github.com/toolway/toolway/internal/transcode"

// Codec is what a test may put something faulty in place of.
type Codec = codec

// WithCodec returns o with every codec wrapped.
func (o Options) WithCodec(wrap func(*transcode.Message) Codec) Options {
	o.codec = wrap
	return o
}

// Matching exposes the generator of texts for patterns.
var Matching = matching

// Instances returns every instance that is made of a schema: those that cover it, the deepest and n random ones.
func Instances(schema []byte, anyTypes []string, seed uint64, n int) ([]string, error) {
	t, err := parse(schema, anyTypes)
	if err != nil {
		return nil, err
	}
	var out []string
	m := newMaker(t, seed)
	m.systematic(most, func(v value) bool {
		out = append(out, v.String())
		return true
	})
	if v, ok := m.deepest(); ok {
		out = append(out, v.String())
	}
	for range n {
		if v, ok := m.any(); ok {
			out = append(out, v.String())
		}
	}
	return out, nil
}
