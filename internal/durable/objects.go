package durable

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/store"
)

// Objects keeps results that are too large for an answer, as object.Memory does, for all instances.
type Objects struct {
	objects *store.Objects
	limits  object.Limits
}

// OpenObjects opens the objects of a name in s. Zero limits are 1 GiB, 16 MiB and 15 minutes.
func OpenObjects(ctx context.Context, s *store.Store, name string, l object.Limits) (*Objects, error) {
	if l.MaxBytes <= 0 {
		l.MaxBytes = 1 << 30
	}
	if l.MaxObjectBytes <= 0 {
		l.MaxObjectBytes = min(16<<20, l.MaxBytes)
	}
	if l.TTL <= 0 {
		l.TTL = 15 * time.Minute
	}
	o, err := s.Objects(ctx, store.ObjectsConfig{Name: name, MaxBytes: int64(l.MaxBytes), MaxObjectBytes: int64(l.MaxObjectBytes), TTL: l.TTL})
	if err != nil {
		return nil, err
	}
	return &Objects{objects: o, limits: l}, nil
}

// Put keeps data for owner. The error is object.ErrTooLarge, also when there is no room.
func (o *Objects) Put(ctx context.Context, owner object.Owner, mediaType string, data []byte) (object.Info, error) {
	return o.Keep(ctx, owner, mediaType, data, time.Now().Add(o.limits.TTL))
}

// Keep is Put for a time of its own, which is not beyond that of the limits.
func (o *Objects) Keep(ctx context.Context, owner object.Owner, mediaType string, data []byte, until time.Time) (object.Info, error) {
	sum := sha256.Sum256(data)
	info := object.Info{ID: rand.Text(), MediaType: mediaType, Size: len(data), SHA256: hex.EncodeToString(sum[:])}
	meta := map[string]string{"tenant": owner.Tenant, "principal": owner.Principal, "type": mediaType, "sha256": info.SHA256, "until": until.UTC().Format(time.RFC3339Nano)}
	stored, err := o.objects.Put(ctx, info.ID, meta, bytes.NewReader(data))
	if errors.Is(err, store.ErrFull) {
		return object.Info{}, fmt.Errorf("%w: it has %d bytes: %w", object.ErrTooLarge, len(data), err)
	}
	if err != nil {
		return object.Info{}, err
	}
	info.Expires = expires(stored)
	return info, nil
}

// Get returns an object of owner. The error is object.ErrNotFound.
func (o *Objects) Get(ctx context.Context, owner object.Owner, id string) (object.Info, []byte, error) {
	stored, data, err := o.objects.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return object.Info{}, nil, object.ErrNotFound
	}
	if err != nil {
		return object.Info{}, nil, err
	}
	until := expires(stored)
	if stored.Meta["tenant"] != owner.Tenant || stored.Meta["principal"] != owner.Principal || !time.Now().Before(until) {
		return object.Info{}, nil, object.ErrNotFound
	}
	return object.Info{ID: id, MediaType: stored.Meta["type"], Size: len(data), SHA256: stored.Meta["sha256"], Expires: until}, data, nil
}

// expires is when an object is gone: the store keeps all for as long as the longest.
func expires(o store.Object) time.Time {
	if until, err := time.Parse(time.RFC3339Nano, o.Meta["until"]); err == nil && until.Before(o.Expires) {
		return until
	}
	return o.Expires
}
