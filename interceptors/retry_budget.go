package interceptors

import (
	"sync"
	"time"
)

// budgets are the retry budgets, one for each backend; hedges are paid from them too.
type budgets struct {
	o     RetryOptions
	mu    sync.Mutex
	names map[string]*retryBudget
}

func newBudgets(o RetryOptions) *budgets { return &budgets{o: o, names: map[string]*retryBudget{}} }

func (b *budgets) of(backend string) *retryBudget {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names[backend] == nil {
		b.names[backend] = &retryBudget{ratio: b.o.BudgetRatio, burst: float64(b.o.BudgetBurst), floor: b.o.BudgetPerSecond, tokens: float64(b.o.BudgetBurst), last: time.Now()}
	}
	return b.names[backend]
}

// retryBudget bounds what retries add to a backend's load: each success earns a share of a retry, and time earns a little, up to a bound. A
// backend that answers nothing well any more earns no retries, so that an outage is not made worse.
type retryBudget struct {
	ratio, burst, floor float64

	mu     sync.Mutex
	tokens float64
	last   time.Time
}

// earn notes a success.
func (b *retryBudget) earn() {
	b.mu.Lock()
	b.tokens = min(b.tokens+b.ratio, b.burst)
	b.mu.Unlock()
}

// spend takes one attempt from the budget, if there is one.
func (b *retryBudget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(b.tokens+b.floor*now.Sub(b.last).Seconds(), b.burst)
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
