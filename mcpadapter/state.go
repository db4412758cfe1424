package mcpadapter

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// stateLifetime is how long a person may take to answer.
const stateLifetime = time.Hour

// stateContext separates the keys made of Config.StateKey from any others that it may serve for.
const stateContext = "toolway mcp requestState v1"

// sealer turns what a call leaves behind for the next round into the requestState of 2026-07-28, which the client can neither read nor change.
type sealer struct{ aead cipher.AEAD }

// newSealer returns a sealer for a secret, or for a random one if it is empty: then only this process can open what it sealed.
func newSealer(secret []byte) (*sealer, error) {
	if len(secret) == 0 {
		secret = make([]byte, 32)
		if _, err := rand.Read(secret); err != nil {
			return nil, err
		}
	}
	key, err := hkdf.Key(sha256.New, secret, nil, stateContext, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &sealer{aead}, err
}

// roundState is what is sealed.
type roundState struct {
	// Expires is in seconds since 1970.
	Expires int64 `json:"x"`
	// Principal and Request are hashes of who called what: the state is good for nothing else.
	Principal [sha256.Size]byte `json:"p"`
	Request   [sha256.Size]byte `json:"r"`
	// Backend is the state of the method that asked.
	Backend []byte `json:"b,omitempty"`
	// Question is the id of the chain's question, and Answer what the person said to it in an earlier round.
	Question string      `json:"q,omitempty"`
	Answer   call.Answer `json:"a,omitempty"`
}

func (s *sealer) seal(state roundState) (string, error) {
	plain, err := json.Marshal(state)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, nil)), nil
}

// The reasons why a requestState is refused.
var (
	errForeignState = errors.New("params.requestState is not one that this server gave, or was changed; make the call again without it")
	errStateExpired = errors.New("params.requestState has expired; make the call again without it")
	errOtherRequest = errors.New("params.requestState belongs to another call; repeat the call that was answered with it, with the same arguments")
)

func (s *sealer) open(text string, now time.Time) (*roundState, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, errForeignState
	}
	plain, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, errForeignState
	}
	state := &roundState{}
	if err := json.Unmarshal(plain, state); err != nil {
		return nil, errForeignState
	}
	if now.Unix() > state.Expires {
		return nil, errStateExpired
	}
	return state, nil
}

// principalHash identifies a caller; nobody has a hash too.
func principalHash(p *identity.Principal) [sha256.Size]byte {
	if p == nil {
		return sha256.Sum256(nil)
	}
	return sha256.Sum256(fmt.Appendf(nil, "%q %q", p.ID, p.Tenant))
}

// requestHash identifies a call: the method and what its requests mean, however they are written.
func requestHash(m *catalog.Method, arguments json.RawMessage) ([sha256.Size]byte, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%q", m.FullMethod)
	next, err := Requests(m, arguments)
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	var canonical []byte
	for {
		f, err := next()
		if errors.Is(err, io.EOF) {
			return [sha256.Size]byte(h.Sum(nil)), nil
		}
		if err != nil {
			return [sha256.Size]byte{}, err
		}
		if canonical, err = m.Request().AppendCanonical(canonical[:0], f.Bytes()); err != nil {
			return [sha256.Size]byte{}, err
		}
		fmt.Fprintf(h, " %d ", len(canonical))
		h.Write(canonical)
	}
}
