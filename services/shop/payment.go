package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// connectionWait is how long a charge waits for inventory, a free connection included.
const connectionWait = 250 * time.Millisecond

// payment takes money. It asks inventory what an item costs, over a bounded number of connections.
type payment struct {
	life      context.Context
	inventory string
	client    *http.Client
	most      int
	logger    *slog.Logger
	inUse     atomic.Int64

	mu    sync.Mutex
	share float64 // of charges that lose their connection; 0: no fault
	debt  float64 // how much of a connection is due to be lost
}

func newPayment(life context.Context, c Config, logger *slog.Logger, r prometheus.Registerer) *payment {
	p := &payment{life: life, inventory: c.Inventory, most: c.Connections, logger: logger,
		client: &http.Client{Transport: &http.Transport{MaxConnsPerHost: c.Connections, MaxIdleConnsPerHost: c.Connections}}}
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "connections_in_use", Help: "Connections to inventory that are in use."}, func() float64 { return float64(p.inUse.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "connections_max", Help: "Connections to inventory that there may be."}, func() float64 { return float64(p.most) }),
	)
	return p
}

// switchFault switches the fault on or off: {"leak": 0.25} loses the connection of every fourth charge, {"leak": 0} of none any more. What is lost stays lost.
func (p *payment) switchFault(w http.ResponseWriter, r *http.Request) {
	var fault struct {
		Leak *float64 `json:"leak"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&fault); err != nil || fault.Leak == nil || !(*fault.Leak >= 0 && *fault.Leak <= 1) {
		fail(w, http.StatusBadRequest, errors.New(`want {"leak": SHARE} with a share of charges from 0 to 1`))
		return
	}
	p.mu.Lock()
	p.share = *fault.Leak
	p.mu.Unlock()
	// The log says nothing of it: whoever diagnoses has to find out.
	fmt.Fprintf(w, "the fault is switched to %v\n", *fault.Leak)
}

// loses says whether a charge loses its connection.
func (p *payment) loses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.debt += p.share; p.debt < 1 {
		return false
	}
	p.debt--
	return true
}

func (p *payment) charge(w http.ResponseWriter, r *http.Request) {
	item := r.URL.Query().Get("item")
	begun := time.Now()
	price, err := p.price(r, item)
	if err != nil {
		p.logger.Error("charge failed: "+err.Error(), "item", item, "duration_ms", time.Since(begun).Milliseconds(), "trace_id", traceID(r))
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	fmt.Fprintf(w, "%d cents taken\n", price)
}

// price asks inventory.
func (p *payment) price(r *http.Request, item string) (int, error) {
	ctx, cancel := context.WithCancel(p.life)
	late := time.AfterFunc(connectionWait, cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.inventory+"/items/"+url.PathEscape(item), http.NoBody)
	if err != nil {
		cancel()
		return 0, err
	}
	forward(req, r)
	resp, err := p.client.Do(req)
	if err != nil {
		cancel()
		if !late.Stop() && p.inUse.Load() >= int64(p.most) {
			return 0, fmt.Errorf("no free connection to inventory after %s: all %d are in use", connectionWait, p.most)
		}
		return 0, fmt.Errorf("inventory: %w", err)
	}
	late.Stop()
	p.inUse.Add(1)
	price, err := readPrice(resp)
	if p.loses() {
		// The fault: the answer is neither read to its end nor closed, so the connection never comes back.
		return price, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	p.inUse.Add(-1)
	cancel()
	return price, err
}

// readPrice reads no more than the price, which comes first.
func readPrice(resp *http.Response) (price int, err error) {
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("inventory answered %s", resp.Status)
	}
	head := make([]byte, len(`{"price":12345678`))
	if _, err := io.ReadFull(resp.Body, head); err != nil {
		return 0, fmt.Errorf("inventory: %w", err)
	}
	if _, err := fmt.Sscanf(string(head), `{"price":%d`, &price); err != nil {
		return 0, fmt.Errorf("inventory: no price in %q", head)
	}
	return price, nil
}
