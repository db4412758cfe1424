// Package object keeps results that are too large for an answer, until whoever they belong to fetches them or their time is over.
package object

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Owner is whom an object belongs to. Nobody else can read it, or learn that it is there.
type Owner struct{ Tenant, Principal string }

// Info describes an object.
type Info struct {
	// ID cannot be guessed: 26 characters of A-Z and 2-7.
	ID string
	// MediaType is the content's, such as "application/json".
	MediaType string
	// Size is the number of bytes, SHA256 their hash in hex.
	Size   int
	SHA256 string
	// Expires is when the object is gone at the latest.
	Expires time.Time
}

// Errors of a store.
var (
	// ErrNotFound says that there is no such object for this owner, or no longer.
	ErrNotFound = errors.New("no such object; it may have expired: make the call again that returned it")
	// ErrTooLarge says that an object is larger than one may be.
	ErrTooLarge = errors.New("object is too large")
)

// Limits bound a Memory. Zero values mean the defaults.
type Limits struct {
	// MaxBytes bounds all objects together: the one that was used longest ago makes room. Default 64 MiB.
	MaxBytes int
	// MaxObjectBytes bounds one. Default 16 MiB, and never more than MaxBytes.
	MaxObjectBytes int
	// TTL is how long an object is kept. Default 15 minutes.
	TTL time.Duration
}

// Memory keeps objects in this process. It is safe for concurrent use.
type Memory struct {
	limits Limits

	mu    sync.Mutex
	items *simplelru.LRU[string, item]
	bytes int
}

type item struct {
	owner Owner
	info  Info
	data  []byte
}

// NewMemory returns an empty store.
func NewMemory(l Limits) *Memory {
	if l.MaxBytes <= 0 {
		l.MaxBytes = 64 << 20
	}
	if l.MaxObjectBytes <= 0 {
		l.MaxObjectBytes = 16 << 20
	}
	l.MaxObjectBytes = min(l.MaxObjectBytes, l.MaxBytes)
	if l.TTL <= 0 {
		l.TTL = 15 * time.Minute
	}
	m := &Memory{limits: l}
	// The number of objects is not bounded by itself: each takes at least as many bytes as its description (see cost).
	m.items, _ = simplelru.NewLRU(l.MaxBytes, func(_ string, i item) { m.bytes -= i.cost() }) // only a size below 1 is an error
	return m
}

// cost is what an item takes, roughly.
func (i item) cost() int {
	const description = 256
	return len(i.data) + len(i.info.MediaType) + len(i.owner.Tenant) + len(i.owner.Principal) + description
}

// Put keeps data, which must not be changed afterwards, for owner. The error is ErrTooLarge.
func (m *Memory) Put(_ context.Context, owner Owner, mediaType string, data []byte) (Info, error) {
	if len(data) > m.limits.MaxObjectBytes {
		return Info{}, fmt.Errorf("%w: it has %d bytes, and %d are kept", ErrTooLarge, len(data), m.limits.MaxObjectBytes)
	}
	sum := sha256.Sum256(data)
	i := item{owner: owner, data: data, info: Info{
		ID: rand.Text(), MediaType: mediaType, Size: len(data), SHA256: hex.EncodeToString(sum[:]), Expires: time.Now().Add(m.limits.TTL),
	}}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	m.items.Add(i.info.ID, i)
	m.bytes += i.cost()
	for m.bytes > m.limits.MaxBytes && m.items.Len() > 1 {
		m.items.RemoveOldest()
	}
	return i.info, nil
}

// Get returns an object of owner, borrowed: the bytes must not be changed. The error is ErrNotFound.
func (m *Memory) Get(_ context.Context, owner Owner, id string) (Info, []byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, ok := m.items.Peek(id)
	if !ok || i.owner != owner {
		return Info{}, nil, ErrNotFound
	}
	if !time.Now().Before(i.info.Expires) {
		m.items.Remove(id)
		return Info{}, nil, ErrNotFound
	}
	m.items.Get(id) // it was used now
	return i.info, i.data, nil
}

// expire drops old objects whose time is over. Objects are kept in the order of their use, so a few may stay until they are in the way.
func (m *Memory) expire() {
	now := time.Now()
	for {
		_, oldest, ok := m.items.GetOldest()
		if !ok || now.Before(oldest.info.Expires) {
			return
		}
		m.items.RemoveOldest()
	}
}
