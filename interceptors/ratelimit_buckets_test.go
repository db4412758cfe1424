package interceptors

import (
	"fmt"
	"testing"
	"time"
)

// TestBuckets has more callers than there are buckets: whoever goes on calling keeps its own, and the number stays bounded.
func TestBuckets(t *testing.T) {
	b := newBuckets(RateLimit{PerSecond: 0.001, Burst: 1})
	now := time.Now()
	if !b.of("noisy").AllowN(now, 1) {
		t.Fatal("a new bucket is empty")
	}
	for i := range 200_000 {
		b.of(fmt.Sprintf("p%d", i))
		if i%1000 == 0 && b.of("noisy").AllowN(now, 1) {
			t.Fatalf("after %d other callers the bucket is full again", i)
		}
	}
	n := 0
	for i := range b.shards {
		n += len(b.shards[i].recent) + len(b.shards[i].older)
	}
	if limit := len(b.shards) * 2 * bucketsPerShard; n > limit {
		t.Errorf("%d buckets, want at most %d", n, limit)
	}
}
