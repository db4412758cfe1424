package mesh

import (
	"errors"
	"time"

	"github.com/toolway/toolway/interceptors"
)

// Cache is the cache of replies to methods whose contract, or the operator, allows reuse.
type Cache struct {
	// Off keeps nothing.
	Off bool `yaml:"off"`
	// MaxBytes bounds all replies together. Default 64 MiB.
	MaxBytes int `yaml:"max_bytes"`
	// MaxReplyBytes bounds one reply; a larger one is not kept. Default a sixteenth of MaxBytes.
	MaxReplyBytes int `yaml:"max_reply_bytes"`
	// Stale is for how long after its time a reply may still answer while the backend is down. Default 0: never.
	Stale Duration `yaml:"stale"`
}

func (c *Cache) normalise() error {
	switch {
	case c.MaxBytes < 0 || c.MaxReplyBytes < 0:
		return errors.New("cache.max_bytes and cache.max_reply_bytes: a limit cannot be negative; leave it out for the default, or set cache.off")
	case c.Off && (c.MaxBytes > 0 || c.MaxReplyBytes > 0 || c.Stale > 0):
		return errors.New("cache.off is set beside other keys of cache: drop the one or the others")
	}
	if c.Off {
		return nil
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 64 << 20
	}
	if c.MaxReplyBytes == 0 {
		c.MaxReplyBytes = c.MaxBytes / 16
	}
	if c.MaxReplyBytes > c.MaxBytes {
		return errors.New("cache.max_reply_bytes is above cache.max_bytes: lower the one or raise the other")
	}
	return nil
}

func (c *Cache) options() interceptors.CacheOptions {
	o := interceptors.CacheOptions{MaxBytes: c.MaxBytes, MaxReplyBytes: c.MaxReplyBytes, Stale: time.Duration(c.Stale)}
	if c.Off {
		o.MaxBytes = -1
	}
	return o
}
