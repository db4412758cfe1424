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

// OpenObjects opens the objects in s. Zero limits are 1 GiB, 16 MiB and 15 minutes.
func OpenObjects(ctx context.Context, s *store.Store, l object.Limits) (*Objects, error) {
	if l.MaxBytes <= 0 {
		l.MaxBytes = 1 << 30
	}
	if l.MaxObjectBytes <= 0 {
		l.MaxObjectBytes = min(16<<20, l.MaxBytes)
	}
	if l.TTL <= 0 {
		l.TTL = 15 * time.Minute
	}
	o, err := s.Objects(ctx, store.ObjectsConfig{Name: "results", MaxBytes: int64(l.MaxBytes), MaxObjectBytes: int64(l.MaxObjectBytes), TTL: l.TTL})
	if err != nil {
		return nil, err
	}
	return &Objects{objects: o, limits: l}, nil
}

// Put keeps data for owner. The error is object.ErrTooLarge, also when there is no room.
func (o *Objects) Put(ctx context.Context, owner object.Owner, mediaType string, data []byte) (object.Info, error) {
	sum := sha256.Sum256(data)
	info := object.Info{ID: rand.Text(), MediaType: mediaType, Size: len(data), SHA256: hex.EncodeToString(sum[:])}
	stored, err := o.objects.Put(ctx, info.ID, map[string]string{"tenant": owner.Tenant, "principal": owner.Principal, "type": mediaType, "sha256": info.SHA256}, bytes.NewReader(data))
	if errors.Is(err, store.ErrFull) {
		return object.Info{}, fmt.Errorf("%w: it has %d bytes: %w", object.ErrTooLarge, len(data), err)
	}
	if err != nil {
		return object.Info{}, err
	}
	info.Expires = stored.Expires
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
	if stored.Meta["tenant"] != owner.Tenant || stored.Meta["principal"] != owner.Principal || !time.Now().Before(stored.Expires) {
		return object.Info{}, nil, object.ErrNotFound
	}
	return object.Info{ID: id, MediaType: stored.Meta["type"], Size: len(data), SHA256: stored.Meta["sha256"], Expires: stored.Expires}, data, nil
}
