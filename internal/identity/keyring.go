package identity

import (
	"crypto"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	defaultRotate = 24 * time.Hour
	minRotate     = time.Hour
	// publishAhead is how long a key is published before it signs, and stays published after it has: backends keep keys for as long as
	// jwks.DefaultRefresh.
	publishAhead = 15 * time.Minute
)

// keyRing is the keys of a Minter: the one that signs, before it those that have, after it at most one that will.
type keyRing struct {
	algorithm string
	rotate    time.Duration // 0: never
	file      string
	logger    *slog.Logger

	current atomic.Pointer[turn]

	mu   sync.Mutex
	keys []*signingKey // oldest first
}

// turn is the key that signs, and until when nothing has to change.
type turn struct {
	key   *signingKey
	until time.Time // zero: for good
}

func openKeyRing(c MinterConfig) (*keyRing, error) {
	r := &keyRing{algorithm: c.Algorithm, rotate: c.Rotate, file: c.File, logger: c.Logger}
	if r.logger == nil {
		r.logger = slog.Default()
	}
	if len(c.Keys) > 0 {
		if c.File != "" || c.Rotate != 0 {
			return nil, errors.New("keys of the operator's own are not rotated: drop rotate, or keys")
		}
		for _, path := range c.Keys {
			k, err := readKey(path)
			if err != nil {
				return nil, err
			}
			r.keys = append(r.keys, k)
		}
		r.current.Store(&turn{key: r.keys[0]})
		return r, nil
	}
	switch {
	case r.rotate == 0:
		r.rotate = defaultRotate
	case r.rotate < minRotate:
		return nil, fmt.Errorf("rotate %s: want at least %s, since backends have to learn of each key first", r.rotate, minRotate)
	}
	if r.file != "" {
		if err := r.load(); err != nil {
			return nil, err
		}
	}
	_, err := r.turn(time.Now())
	return r, err
}

// readKey reads a PEM file with a private key in PKCS #8 or SEC 1.
func readKey(path string) (*signingKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a signing key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("signing key %q: not PEM", path)
	}
	var private any
	if block.Type == "EC PRIVATE KEY" {
		private, err = x509.ParseECPrivateKey(block.Bytes)
	} else {
		private, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("signing key %q: %w", path, err)
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("signing key %q cannot sign", path)
	}
	k, err := newSigningKey(signer, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("signing key %q: %w", path, err)
	}
	return k, nil
}

// signer returns the key that signs now.
func (r *keyRing) signer(now time.Time) (*signingKey, error) {
	if t := r.current.Load(); t != nil && (t.until.IsZero() || now.Before(t.until)) {
		return t.key, nil
	}
	t, err := r.turn(now)
	if err != nil {
		return nil, err
	}
	return t.key, nil
}

// turn makes the keys what they should be now.
func (r *keyRing) turn(now time.Time) (*turn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.current.Load(); t != nil && (t.until.IsZero() || now.Before(t.until)) {
		return t, nil // somebody else did it
	}
	changed, before := false, slices.Clone(r.keys)
	// Keys whose credentials are over, and which nobody needs to know any more.
	for len(r.keys) > 0 && now.After(r.keys[0].made.Add(r.rotate+2*publishAhead)) {
		r.keys, changed = r.keys[1:], true
	}
	if n := len(r.keys); n == 0 || now.After(r.keys[n-1].made.Add(r.rotate-publishAhead)) {
		k, err := generate(r.algorithm, now)
		if err != nil {
			return nil, err
		}
		r.keys, changed = append(r.keys, k), true
	}
	// The newest key signs, unless backends may not know it yet and there is another.
	newest := r.keys[len(r.keys)-1]
	t := &turn{key: newest, until: newest.made.Add(r.rotate - publishAhead).Add(time.Nanosecond)}
	if n := len(r.keys); n > 1 && now.Before(newest.made.Add(publishAhead)) {
		t = &turn{key: r.keys[n-2], until: newest.made.Add(publishAhead)}
	}
	if changed {
		if err := r.save(); err != nil {
			old := r.current.Load()
			if old == nil {
				return nil, err
			}
			// Credentials go on; keys that would be lost with the process are not used.
			r.logger.Error("signing keys stay as they are for now", "error", err)
			r.keys = before
			t = &turn{key: old.key, until: now.Add(time.Minute)}
		}
	}
	r.current.Store(t)
	return t, nil
}

// public returns the public keys as a JWK set.
func (r *keyRing) public(now time.Time) ([]byte, error) {
	if _, err := r.signer(now); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, k := range r.keys {
		set.Keys = append(set.Keys, k.publicJWK())
	}
	return json.Marshal(set)
}

// storedKey is a key as the file has it.
type storedKey struct {
	Made time.Time       `json:"made"`
	Key  jose.JSONWebKey `json:"key"`
}

func (r *keyRing) load() error {
	text, err := os.ReadFile(r.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read signing keys: %w", err)
	}
	var stored []storedKey
	if err := json.Unmarshal(text, &stored); err != nil {
		return fmt.Errorf("signing keys %q: %w; remove the file to start with new keys", r.file, err)
	}
	for _, s := range stored {
		signer, ok := s.Key.Key.(crypto.Signer)
		if !ok {
			return fmt.Errorf("signing keys %q: a key is not private; remove the file to start with new keys", r.file)
		}
		k, err := newSigningKey(signer, s.Made)
		if err != nil {
			return fmt.Errorf("signing keys %q: %w", r.file, err)
		}
		r.keys = append(r.keys, k)
	}
	return nil
}

// save writes the keys, for the owner alone, all or none.
func (r *keyRing) save() error {
	if r.file == "" {
		return nil
	}
	var stored []storedKey
	for _, k := range r.keys {
		stored = append(stored, storedKey{k.made, jose.JSONWebKey{Key: k.private, KeyID: k.kid, Algorithm: string(k.alg), Use: "sig"}})
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return fmt.Errorf("keep signing keys: %w", err)
	}
	if err := writeFile(r.file, text); err != nil {
		return fmt.Errorf("keep signing keys: %w", err)
	}
	return nil
}

func writeFile(path string, text []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".keys-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the error that is returned says more
		}
	}()
	if _, err = f.Write(text); err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
