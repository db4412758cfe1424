package object_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolway/toolway/internal/object"
)

var ann, bob = object.Owner{Tenant: "acme", Principal: "ann"}, object.Owner{Tenant: "acme", Principal: "bob"}

func TestObjectBelongsToItsOwner(t *testing.T) {
	m := object.NewMemory(object.Limits{})
	info, err := m.Put(t.Context(), ann, "application/json", []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(`{"a":1}`))
	if info.Size != 7 || info.SHA256 != hex.EncodeToString(sum[:]) || len(info.ID) != 26 || info.MediaType != "application/json" {
		t.Errorf("info = %+v", info)
	}
	got, data, err := m.Get(t.Context(), ann, info.ID)
	if err != nil || got != info || string(data) != `{"a":1}` {
		t.Errorf("Get by the owner = %+v %q %v", got, data, err)
	}
	for _, other := range []object.Owner{bob, {Tenant: "other", Principal: "ann"}, {}} {
		if _, _, err := m.Get(t.Context(), other, info.ID); !errors.Is(err, object.ErrNotFound) {
			t.Errorf("Get by %+v: %v, want %v", other, err, object.ErrNotFound)
		}
	}
	if _, _, err := m.Get(t.Context(), ann, "AAAAAAAAAAAAAAAAAAAAAAAAAA"); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("Get of a made-up id: %v", err)
	}
	if again, err := m.Put(t.Context(), ann, "application/json", []byte(`{"a":1}`)); err != nil || again.ID == info.ID {
		t.Errorf("the same bytes again have the id %q, %v, want another one", again.ID, err)
	}
}

func TestObjectExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := object.NewMemory(object.Limits{TTL: time.Minute})
		info, err := m.Put(t.Context(), ann, "text/plain", []byte("x"))
		if err != nil || !info.Expires.Equal(time.Now().Add(time.Minute)) {
			t.Fatalf("%+v, %v", info, err)
		}
		time.Sleep(time.Minute - time.Nanosecond)
		if _, _, err := m.Get(t.Context(), ann, info.ID); err != nil {
			t.Errorf("just before the end: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if _, _, err := m.Get(t.Context(), ann, info.ID); !errors.Is(err, object.ErrNotFound) {
			t.Errorf("at the end: %v, want %v", err, object.ErrNotFound)
		}
	})
}

func TestObjectsAreBounded(t *testing.T) {
	m := object.NewMemory(object.Limits{MaxBytes: 10_000, MaxObjectBytes: 4_000})
	if _, err := m.Put(t.Context(), ann, "text/plain", make([]byte, 4_001)); !errors.Is(err, object.ErrTooLarge) {
		t.Errorf("one too large: %v, want %v", err, object.ErrTooLarge)
	}
	var ids []string
	for range 3 {
		info, err := m.Put(t.Context(), ann, "text/plain", bytes.Repeat([]byte("x"), 4_000))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID)
	}
	if _, _, err := m.Get(t.Context(), ann, ids[0]); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("the oldest: %v, want it gone to make room", err)
	}
	for _, id := range ids[1:] {
		if _, _, err := m.Get(t.Context(), ann, id); err != nil {
			t.Errorf("a newer one: %v", err)
		}
	}
}
