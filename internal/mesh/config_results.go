package mesh

import (
	"errors"
	"fmt"
	"time"

	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/mcpadapter"
)

// Results bounds what agents are shown, and says what becomes of the rest.
type Results struct {
	// MaxBytes bounds the JSON of one reply over MCP. Default 8 MiB.
	MaxBytes int `yaml:"max_bytes"`
	// MaxItems bounds the elements of each list and map in a reply, MaxDepth its nesting; the contract's own come first. Default: no bound.
	MaxItems int `yaml:"max_items"`
	MaxDepth int `yaml:"max_depth"`
	// Invisible is "strip", which takes out characters that people do not see but models read, or "keep". Default strip.
	Invisible string `yaml:"invisible"`
	// Objects keeps what was too large, for whoever called.
	Objects Objects `yaml:"objects"`
}

// Objects bounds the store of results that were too large.
type Objects struct {
	// Off keeps nothing.
	Off bool `yaml:"off"`
	// MaxBytes bounds all objects together, MaxObjectBytes one of them. Default 64 MiB and 16 MiB.
	MaxBytes       int `yaml:"max_bytes"`
	MaxObjectBytes int `yaml:"max_object_bytes"`
	// TTL is how long an object is kept. Default 15m.
	TTL Duration `yaml:"ttl"`
}

func (r *Results) normalise() error {
	o := &r.Objects
	switch {
	case r.MaxBytes < 0 || r.MaxItems < 0 || r.MaxDepth < 0:
		return errors.New("results.max_bytes, max_items and max_depth: a limit cannot be negative; leave it out for the default")
	case o.MaxBytes < 0 || o.MaxObjectBytes < 0:
		return errors.New("results.objects.max_bytes and max_object_bytes: a limit cannot be negative; leave it out for the default")
	case o.Off && (o.MaxBytes > 0 || o.MaxObjectBytes > 0 || o.TTL > 0):
		return errors.New("results.objects.off is set beside other keys of objects: drop the one or the others")
	case o.MaxBytes > 0 && o.MaxObjectBytes > o.MaxBytes:
		return errors.New("results.objects.max_object_bytes is above results.objects.max_bytes: lower the one or raise the other")
	}
	switch r.Invisible {
	case "":
		r.Invisible = "strip"
	case "strip", "keep":
	default:
		return fmt.Errorf("results.invisible %q: want strip or keep", r.Invisible)
	}
	if r.MaxBytes == 0 {
		r.MaxBytes = 8 << 20
	}
	return nil
}

// store returns the store of results that are too large, or nil.
func (r *Results) store() *object.Memory {
	if r.Objects.Off {
		return nil
	}
	return object.NewMemory(object.Limits{MaxBytes: r.Objects.MaxBytes, MaxObjectBytes: r.Objects.MaxObjectBytes, TTL: time.Duration(r.Objects.TTL)})
}

// shape puts the bounds into the configuration of the MCP door.
func (r *Results) shape(conf *mcpadapter.Config, store objectStore) {
	conf.MaxResultBytes, conf.MaxResultItems, conf.MaxResultDepth = r.MaxBytes, r.MaxItems, r.MaxDepth
	conf.KeepInvisible = r.Invisible == "keep"
	if store != nil {
		conf.Objects = store
	}
}
