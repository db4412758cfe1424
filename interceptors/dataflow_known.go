package interceptors

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"hash/maphash"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// knownValues remember texts by hashes alone, and for whom.
type knownValues struct {
	minBytes int
	remember time.Duration
	key      [32]byte
	seed     maphash.Seed

	mu     sync.RWMutex
	values *simplelru.LRU[valueID, *knownValue]
	// quick holds a cheap hash of each value, and how many values have it; lengths how many values have so many words. Almost every text is
	// told by them not to be known.
	quick   map[uint64]int
	lengths [maxWords + 1]int
}

// valueID is an HMAC of owner and text.
type valueID [16]byte

// knownValue is what is known of a text. It never changes.
type knownValue struct {
	quick          uint64
	words          int
	rules          uint64
	label, backend string
	until          time.Time
}

// maxWords is the longest run of words that is found within a longer text; longer values are found as whole fields, under lengths[0].
const maxWords = 8

func newKnownValues(o *DataFlowOptions) *knownValues {
	if o.MinBytes <= 0 {
		o.MinBytes = 8
	}
	if o.Remember <= 0 {
		o.Remember = time.Hour
	}
	if o.MaxValues <= 0 {
		o.MaxValues = 100_000
	}
	k := &knownValues{minBytes: o.MinBytes, remember: o.Remember, seed: maphash.MakeSeed(), quick: map[uint64]int{}}
	_, _ = rand.Read(k.key[:]) // it never fails
	k.values, _ = simplelru.NewLRU(o.MaxValues, func(_ valueID, v *knownValue) {
		k.lengths[v.words]--
		if k.quick[v.quick]--; k.quick[v.quick] == 0 {
			delete(k.quick, v.quick)
		}
	}) // only a size below 1 is an error
	return k
}

// any says whether anything is known at all.
func (k *knownValues) any() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.values.Len() > 0
}

// learn remembers a text that owner has been given.
func (k *knownValues) learn(owner string, text []byte, rules uint64, label, backend string) {
	words := wordsOf(text)
	if len(words) == 0 || size(words) < k.minBytes || string(text) == Redacted {
		return
	}
	now := time.Now()
	v := &knownValue{quick: k.hash(owner, words), words: len(words), rules: rules, label: label, backend: backend, until: now.Add(k.remember)}
	if v.words > maxWords {
		v.words = 0
	}
	id := k.id(owner, words)
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		_, oldest, ok := k.values.GetOldest()
		if !ok || now.Before(oldest.until) {
			break
		}
		k.values.RemoveOldest()
	}
	if old, ok := k.values.Peek(id); ok {
		v.rules |= old.rules
		k.values.Remove(id)
	}
	k.lengths[v.words]++
	k.quick[v.quick]++
	k.values.Add(id, v)
}

// find calls yield with each value that is known of owner and that the text is, or holds as words, until it returns false. It returns false
// if yield has.
func (k *knownValues) find(owner string, text []byte, yield func(*knownValue) bool) bool {
	words := wordsOf(text)
	if size(words) < k.minBytes {
		return true
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	now := time.Now()
	try := func(words [][]byte, sum uint64) bool {
		if k.quick[sum] == 0 {
			return true
		}
		v, ok := k.values.Peek(k.id(owner, words))
		return !ok || !now.Before(v.until) || yield(v)
	}
	if k.lengths[0] > 0 && len(words) > maxWords && !try(words, k.hash(owner, words)) {
		return false
	}
	longest := 0
	for n := 1; n <= maxWords; n++ {
		if k.lengths[n] > 0 {
			longest = n
		}
	}
	var h maphash.Hash
	h.SetSeed(k.seed)
	for i := range words {
		h.Reset()
		begin(&h, owner)
		for n := 1; n <= longest && i+n <= len(words); n++ {
			next(&h, words[i+n-1])
			if k.lengths[n] > 0 && !try(words[i:i+n], h.Sum64()) {
				return false
			}
		}
	}
	return true
}

// hash is the cheap hash.
func (k *knownValues) hash(owner string, words [][]byte) uint64 {
	var h maphash.Hash
	h.SetSeed(k.seed)
	begin(&h, owner)
	for _, w := range words {
		next(&h, w)
	}
	return h.Sum64()
}

// A maphash never fails to be written to.
func begin(h *maphash.Hash, owner string) { _, _ = h.WriteString(owner) }

func next(h *maphash.Hash, word []byte) {
	_ = h.WriteByte(' ')
	_, _ = h.Write(word)
}

func (k *knownValues) id(owner string, words [][]byte) (id valueID) {
	h := hmac.New(sha256.New, k.key[:])
	h.Write([]byte(owner))
	for _, w := range words {
		h.Write([]byte{0})
		h.Write(w)
	}
	copy(id[:], h.Sum(nil))
	return id
}

// wordsOf takes a text apart, in lower case. Marks that stand within names, addresses and numbers belong to a word, unless they end it.
func wordsOf(text []byte) [][]byte {
	var out [][]byte
	for _, w := range bytes.FieldsFunc(bytes.ToLower(text), func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !bytes.ContainsRune(within, r)
	}) {
		if w = bytes.Trim(w, string(within)); len(w) > 0 {
			out = append(out, w)
		}
	}
	return out
}

var within = []byte("@._+-/#%~'")

// size is the number of bytes of words with one space between.
func size(words [][]byte) int {
	n := len(words) - 1
	for _, w := range words {
		n += len(w)
	}
	return n
}
