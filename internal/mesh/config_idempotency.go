package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/catalog"
)

// Idempotency is how long and where what became of calls with idempotency keys is kept.
type Idempotency struct {
	// TTL is how long a key is remembered, from the first call with it. It must be longer than anybody retries. Default 24h.
	TTL Duration `yaml:"ttl"`
	// MaxBytes bounds all records together; when it is reached new keys are refused, none is forgotten. Default 64 MiB.
	MaxBytes int `yaml:"max_bytes"`
	// Share is the part of MaxBytes that one caller may have; callers that are nobody are one. Default 0.25; 1: all of it.
	Share float64 `yaml:"share"`
	// MaxAnswerBytes bounds the answer that is kept with a key. A larger one cannot be replayed. Default 1 MiB.
	MaxAnswerBytes int `yaml:"max_answer_bytes"`
	// Methods are patterns of the methods whose keys are kept; those of others only reach the backend. Default: all that are not read-only.
	Methods Strings `yaml:"methods"`
}

func (i *Idempotency) normalise() error {
	if i.MaxBytes < 0 || i.MaxAnswerBytes < 0 {
		return errors.New("idempotency.max_bytes and idempotency.max_answer_bytes: a limit cannot be negative; leave it out for the default")
	}
	if i.TTL == 0 {
		i.TTL = Duration(24 * time.Hour)
	}
	if i.TTL < Duration(time.Minute) {
		return fmt.Errorf("idempotency.ttl %s is shorter than anybody retries: a key that is forgotten lets a call run twice; give it a minute at least", time.Duration(i.TTL))
	}
	if i.Share < 0 || i.Share > 1 {
		return fmt.Errorf("idempotency.share %v is not between 0 and 1: it is the part of max_bytes that one caller may have", i.Share)
	}
	i.MaxBytes, i.Share = cmp.Or(i.MaxBytes, interceptors.DefaultKeyBytes), cmp.Or(i.Share, 0.25)
	if i.MaxAnswerBytes == 0 {
		i.MaxAnswerBytes = min(1<<20, i.maxCallerBytes())
	}
	if i.MaxAnswerBytes > i.maxCallerBytes() {
		return fmt.Errorf("idempotency.max_answer_bytes %d is above %d, which is all that one caller gets: lower it, or raise idempotency.max_bytes or idempotency.share", i.MaxAnswerBytes, i.maxCallerBytes())
	}
	if err := checkMethodPatterns(i.Methods); err != nil {
		return fmt.Errorf("idempotency.methods: %w", err)
	}
	return nil
}

// maxCallerBytes is what one caller may have.
func (i *Idempotency) maxCallerBytes() int { return max(int(float64(i.MaxBytes)*i.Share), 1) }

func (i *Idempotency) options(keys interceptors.KeyStore) interceptors.IdempotencyOptions {
	o := interceptors.IdempotencyOptions{Store: keys, TTL: time.Duration(i.TTL), MaxAnswerBytes: i.MaxAnswerBytes}
	if patterns := i.Methods; len(patterns) > 0 {
		o.Applies = func(m *catalog.Method) bool { return matchesMethod(patterns, m.FullMethod) }
	}
	return o
}
