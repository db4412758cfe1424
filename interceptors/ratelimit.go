package interceptors

import (
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// RateLimit is a token bucket. The zero value limits nothing.
type RateLimit struct {
	// PerSecond is how many tokens come in each second. A call takes its method's cost, 1 by default.
	PerSecond float64
	// Burst is how many tokens the bucket holds. Default: those of one second, at least 1. A cost above it counts as it.
	Burst int
}

func (l RateLimit) burst() int {
	if l.Burst > 0 {
		return l.Burst
	}
	return max(1, int(l.PerSecond))
}

// RateLimits refuses calls above the rates of their principal, their tenant or their method: RESOURCE_EXHAUSTED with RATE_LIMITED, which limit it
// was, and RetryInfo. Calls without a principal share one bucket. Buckets are this instance's own: with several instances each grants the whole rate.
func RateLimits(o Options) Policy {
	l := o.Limits
	r := &rateLimiter{refused: map[string]*refusal{}}
	for _, limit := range []string{"principal", "tenant", "method"} {
		r.refused[limit] = newRefusal(o, codes.ResourceExhausted, "RATE_LIMITED", limit, "nothing was done; wait, then call again")
	}
	if l.Principal.PerSecond > 0 {
		r.principals = newBuckets(l.Principal)
	}
	if l.Tenant.PerSecond > 0 {
		r.tenants = newBuckets(l.Tenant)
	}
	return inHalves("rate limit", func(m *catalog.Method) *halves {
		if m.Service != nil && m.Service.Infrastructure {
			return nil
		}
		var own *rate.Limiter
		if l.Method != nil {
			own = r.method(m.FullMethod, l.Method(m))
		}
		if own == nil && r.principals == nil && r.tenants == nil {
			return nil
		}
		cost := max(1, m.Policy.Cost)
		return &halves{enter: func(c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
			if err := r.take(c, own, cost); err != nil {
				return nil, err
			}
			return stream, nil
		}}
	})
}

type rateLimiter struct {
	principals, tenants *buckets
	refused             map[string]*refusal
	methods             sync.Map // full method → *methodBucket: they outlive snapshots
}

type methodBucket struct {
	limit  RateLimit
	bucket *rate.Limiter
}

func (r *rateLimiter) method(name string, l RateLimit) *rate.Limiter {
	if l.PerSecond <= 0 {
		return nil
	}
	if v, ok := r.methods.Load(name); ok && v.(*methodBucket).limit == l {
		return v.(*methodBucket).bucket
	}
	b := &methodBucket{l, rate.NewLimiter(rate.Limit(l.PerSecond), l.burst())}
	r.methods.Store(name, b)
	return b.bucket
}

// take looks at all buckets before it takes from any, so that a refusal costs the caller nothing. Two calls that look at once may let one more through
// to a refusal that has cost a token: a bucket errs by a call, never a limit.
func (r *rateLimiter) take(c *call.Call, own *rate.Limiter, cost int) error {
	now := time.Now()
	var limiters [3]*rate.Limiter
	names := [...]string{"principal", "tenant", "method"}
	if r.principals != nil {
		id := ""
		if c.Principal != nil {
			id = c.Principal.ID
		}
		limiters[0] = r.principals.of(id)
	}
	if r.tenants != nil && c.Principal != nil && c.Principal.Tenant != "" {
		limiters[1] = r.tenants.of(c.Principal.Tenant)
	}
	limiters[2] = own
	for i, l := range limiters {
		if l == nil {
			continue
		}
		if want := float64(min(cost, l.Burst())); l.TokensAt(now) < want {
			return r.refuse(c, names[i], l, want, now)
		}
	}
	for i, l := range limiters {
		if l == nil {
			continue
		}
		if n := min(cost, l.Burst()); !l.AllowN(now, n) {
			return r.refuse(c, names[i], l, float64(n), now)
		}
	}
	return nil
}

func (r *rateLimiter) refuse(c *call.Call, name string, l *rate.Limiter, want float64, now time.Time) error {
	wait := max(seconds((want-l.TokensAt(now))/float64(l.Limit())), time.Millisecond)
	text := fmt.Sprintf("the %s's limit of %v calls a second (%d at once) is used up", name, float64(l.Limit()), l.Burst())
	c.Decide("rate limit", "refused", text)
	return r.refused[name].err(text, wait, "limit", name)
}

// buckets are the token buckets of one kind, by key, with a bound: those that are used stay, of the others the oldest go, which by then are full again
// or belong to one of more callers than anyone expects.
type buckets struct {
	limit  RateLimit
	seed   maphash.Seed
	shards [16]bucketShard
}

type bucketShard struct {
	mu     sync.Mutex
	recent map[string]*rate.Limiter // at most bucketsPerShard, then it becomes older
	older  map[string]*rate.Limiter
}

const bucketsPerShard = 2048

func newBuckets(l RateLimit) *buckets { return &buckets{limit: l, seed: maphash.MakeSeed()} }

func (b *buckets) of(key string) *rate.Limiter {
	s := &b.shards[maphash.String(b.seed, key)%uint64(len(b.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.recent[key]; l != nil {
		return l
	}
	l := s.older[key]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(b.limit.PerSecond), b.limit.burst())
	}
	if s.recent == nil || len(s.recent) >= bucketsPerShard {
		s.older, s.recent = s.recent, map[string]*rate.Limiter{}
	}
	s.recent[key] = l
	return l
}
