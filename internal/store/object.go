package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ObjectsConfig says what a store of objects holds.
type ObjectsConfig struct {
	// Name is [a-zA-Z0-9_-]+, unique in the store.
	Name string
	// MaxBytes bounds all objects together. One that does not fit is ErrFull. Default 1 GiB.
	MaxBytes int64
	// MaxObjectBytes bounds one. Default 64 MiB.
	MaxObjectBytes int64
	// TTL is how long an object is kept. Default 24 hours.
	TTL time.Duration
}

// Objects holds large values by name. They are hashed when they are stored, and checked when they are read. It is safe for concurrent use.
type Objects struct {
	store  *Store
	bucket jetstream.ObjectStore
	max    int64
	ttl    time.Duration
}

// Object is what is known of a stored object.
type Object struct {
	Name    string
	Size    int64
	Digest  string // "SHA-256=" and the hash in URL-safe base64
	Meta    map[string]string
	Expires time.Time
}

// Objects opens a store of objects, and makes it if it is not there.
func (s *Store) Objects(ctx context.Context, c ObjectsConfig) (*Objects, error) {
	if !legalName(c.Name) {
		return nil, fmt.Errorf("store: objects %q: want letters, digits, _ and -", c.Name)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 1 << 30
	}
	if c.MaxObjectBytes == 0 {
		c.MaxObjectBytes = 64 << 20
	}
	if c.TTL == 0 {
		c.TTL = 24 * time.Hour
	}
	var b jetstream.ObjectStore
	err := s.insist(ctx, s.name("obj", c.Name), func(ctx context.Context) (err error) {
		b, err = s.bucket(ctx, jetstream.ObjectStoreConfig{
			Bucket: s.name("obj", c.Name), TTL: c.TTL, MaxBytes: c.MaxBytes, Storage: jetstream.FileStorage, Replicas: s.conf.Replicas,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store %q: %w", c.Name, err)
	}
	return &Objects{store: s, bucket: b, max: c.MaxObjectBytes, ttl: c.TTL}, nil
}

// bucket opens an object store of the engine, makes it or brings it to the configuration, and has the leader answer what is asked of it: as it is
// made, any replica may, and one that lags does not know yet what was just stored.
func (s *Store) bucket(ctx context.Context, c jetstream.ObjectStoreConfig) (jetstream.ObjectStore, error) {
	if _, err := s.js.ObjectStore(ctx, c.Bucket); errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err := s.js.CreateOrUpdateObjectStore(ctx, c); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	st, err := s.js.Stream(ctx, "OBJ_"+c.Bucket)
	if err != nil {
		return nil, err
	}
	if have := st.CachedInfo().Config; have.AllowDirect || have.MaxAge != c.TTL || have.MaxBytes != c.MaxBytes || have.Replicas != c.Replicas {
		have.AllowDirect, have.MaxAge, have.MaxBytes, have.Replicas = false, c.TTL, c.MaxBytes, c.Replicas
		if st, err = s.js.UpdateStream(ctx, have); err != nil {
			return nil, err
		}
	}
	if err := s.led(ctx, st); err != nil {
		return nil, err
	}
	return s.js.ObjectStore(ctx, c.Bucket)
}

// Put stores what r gives under a name, which replaces an object that is there. It returns ErrFull, and stores nothing, if that is too much.
func (o *Objects) Put(ctx context.Context, name string, meta map[string]string, r io.Reader) (Object, error) {
	limited := &limitedReader{r: r, left: o.max}
	info, err := o.bucket.Put(ctx, jetstream.ObjectMeta{Name: name, Metadata: meta}, limited)
	switch {
	case limited.left < 0:
		return Object{}, fmt.Errorf("store: object %q: %w: at most %d bytes", name, ErrFull, o.max)
	case err != nil:
		return Object{}, classify(err)
	}
	return o.object(info), nil
}

// limitedReader fails when there is more than is left.
type limitedReader struct {
	r    io.Reader
	left int64
}

var errTooLarge = errors.New("too large")

// Read reads on.
func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

func (o *Objects) object(i *jetstream.ObjectInfo) Object {
	return Object{Name: i.Name, Size: int64(i.Size), Digest: i.Digest, Meta: i.Metadata, Expires: i.ModTime.Add(o.ttl)}
}

// Get returns an object and its content, or ErrNotFound. Content that is not what was stored is ErrUnavailable, after it has been read again
// for as long as a request may take: a replica that lags may give the first part of an object that was just stored.
func (o *Objects) Get(ctx context.Context, name string) (Object, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, o.store.conf.Timeout)
	defer cancel()
	for {
		object, data, err := o.read(ctx, name)
		if !errors.Is(err, jetstream.ErrDigestMismatch) {
			return object, data, classify(err)
		}
		select {
		case <-ctx.Done():
			return Object{}, nil, classify(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (o *Objects) read(ctx context.Context, name string) (Object, []byte, error) {
	res, err := o.bucket.Get(ctx, name)
	if err != nil {
		return Object{}, nil, err
	}
	defer res.Close()
	info, err := res.Info()
	if err != nil {
		return Object{}, nil, err
	}
	data, err := io.ReadAll(res)
	if err != nil {
		return Object{}, nil, err
	}
	return o.object(info), data, nil
}

// Delete removes an object. That it is not there is no error.
func (o *Objects) Delete(ctx context.Context, name string) error {
	if err := o.bucket.Delete(ctx, name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return classify(err)
	}
	return nil
}
