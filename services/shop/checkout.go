package shop

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// orders takes orders: it looks whether there is the item, and has it paid.
type orders struct {
	payment, inventory string
	client             *http.Client
	logger             *slog.Logger
}

func newOrders(c Config, logger *slog.Logger) *orders {
	return &orders{payment: c.Payment, inventory: c.Inventory, logger: logger,
		client: &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
}

func (o *orders) order(w http.ResponseWriter, r *http.Request) {
	item := url.QueryEscape(r.URL.Query().Get("item"))
	for _, step := range []struct{ method, peer, url string }{
		{http.MethodGet, Inventory, o.inventory + "/items/" + item},
		{http.MethodPost, Payment, o.payment + "/charges?item=" + item},
	} {
		begun := time.Now()
		if err := o.call(r, step.method, step.url); err != nil {
			o.logger.Error("order failed: "+step.peer+" "+err.Error(), "peer", step.peer, "duration_ms", time.Since(begun).Milliseconds(), "trace_id", traceID(r))
			fail(w, http.StatusServiceUnavailable, fmt.Errorf("the order cannot be taken now: %s %w", step.peer, err))
			return
		}
	}
	_, _ = io.WriteString(w, "ordered\n")
}

func (o *orders) call(r *http.Request, method, to string) error {
	req, err := http.NewRequestWithContext(r.Context(), method, to, http.NoBody)
	if err != nil {
		return err
	}
	forward(req, r)
	resp, err := o.client.Do(req)
	if err != nil {
		return fmt.Errorf("does not answer: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

// load orders so many times a second until ctx ends; however slow answers are, not more than 64 at a time.
func load(ctx context.Context, checkout string, perSecond float64, logger *slog.Logger) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	items := []string{"tea", "coffee", "cups"}
	room := make(chan struct{}, 64)
	ticker := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer ticker.Stop()
	var under sync.WaitGroup
	defer under.Wait()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		select {
		case room <- struct{}{}:
		default:
			continue
		}
		under.Go(func() {
			defer func() { <-room }()
			if err := order(ctx, client, checkout, items[n%len(items)]); err != nil && ctx.Err() == nil {
				logger.Debug("an order got no answer", "error", err.Error())
			}
		})
	}
}

func order(ctx context.Context, client *http.Client, checkout, item string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, checkout+"/orders?item="+item, http.NoBody)
	if err != nil {
		return err
	}
	id := make([]byte, 24)
	_, _ = rand.Read(id)
	req.Header.Set("Traceparent", "00-"+hex.EncodeToString(id[:16])+"-"+hex.EncodeToString(id[16:])+"-00")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}
