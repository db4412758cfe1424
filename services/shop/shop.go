package shop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Roles of a process.
const (
	Checkout  = "checkout"
	Payment   = "payment"
	Inventory = "inventory"
)

// Config says what a process of the shop is.
type Config struct {
	// Role is Checkout, Payment or Inventory. Required.
	Role string
	// Payment and Inventory are the URLs of those that a role calls: both of checkout, inventory of payment.
	Payment, Inventory string
	// Connections is how many connections payment may have to inventory. Default: 16.
	Connections int
	// Load is how many orders a second checkout gives itself. Default: none.
	Load float64
	// Log gets a line of JSON for each thing that happens, in one write. Required.
	Log io.Writer
}

// check refuses what cannot work.
func (c *Config) check() error {
	c.Connections = cmp.Or(c.Connections, 16)
	switch {
	case c.Role != Checkout && c.Role != Payment && c.Role != Inventory:
		return fmt.Errorf("role %q is not one of %s, %s and %s", c.Role, Checkout, Payment, Inventory)
	case c.Role != Inventory && c.Inventory == "":
		return fmt.Errorf("%s calls inventory; give its URL", c.Role)
	case c.Role == Checkout && c.Payment == "":
		return fmt.Errorf("%s calls payment; give its URL", c.Role)
	case c.Connections < 1 || c.Load < 0:
		return errors.New("connections must be at least 1, and load not negative")
	}
	return nil
}

// grace is how long requests may go on after the end has begun.
const grace = 2 * time.Second

// Run serves one process of the shop until ctx ends. The listener is closed then.
func Run(ctx context.Context, listener net.Listener, c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	logger := slog.New(slog.NewJSONHandler(c.Log, nil)).With("service", c.Role)
	registry := prometheus.NewRegistry()
	register := prometheus.WrapRegistererWith(prometheus.Labels{"service": c.Role}, registry)
	register.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	// What is under way must end with the process, the fault's lost connections too.
	life, end := context.WithCancel(context.Background())
	defer end()

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	measured := measure(register)
	switch c.Role {
	case Inventory:
		mux.Handle("GET /items/{item}", measured(http.HandlerFunc(getItem)))
	case Payment:
		p := newPayment(life, c, logger, register)
		defer p.client.CloseIdleConnections()
		mux.Handle("POST /charges", measured(http.HandlerFunc(p.charge)))
		mux.HandleFunc("POST /fault", p.switchFault)
	case Checkout:
		o := newOrders(c, logger)
		defer o.client.CloseIdleConnections()
		mux.Handle("POST /orders", measured(http.HandlerFunc(o.order)))
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	logger.Info("serving", "addr", listener.Addr().String())

	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		if c.Load > 0 && c.Role == Checkout {
			load(ctx, "http://"+listener.Addr().String(), c.Load, logger)
		}
	}()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		stopping, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if server.Shutdown(stopping) != nil {
			_ = server.Close()
		}
		err = <-served
		logger.Info("stopped")
	}
	end()
	<-loaded
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// measure counts requests and how long they take, under the names that Prometheus' guides use.
func measure(r prometheus.Registerer) func(http.Handler) http.Handler {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "http_requests_total", Help: "Requests by status."}, []string{"code"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "http_request_duration_seconds", Help: "How long requests take."}, []string{})
	r.MustRegister(requests, seconds)
	return func(next http.Handler) http.Handler {
		return promhttp.InstrumentHandlerCounter(requests, promhttp.InstrumentHandlerDuration(seconds, next))
	}
}

// forward gives a request the trace of the one that it is made for.
func forward(to, from *http.Request) {
	if t := from.Header.Get("Traceparent"); t != "" {
		to.Header.Set("Traceparent", t)
	}
}

// traceID is the W3C trace id of a request, for the log; "" if it has none.
func traceID(r *http.Request) string {
	parts := strings.Split(r.Header.Get("Traceparent"), "-")
	if len(parts) != 4 || len(parts[1]) != 32 {
		return ""
	}
	return parts[1]
}

// fail answers with an error as a line of text.
func fail(w http.ResponseWriter, code int, err error) { http.Error(w, err.Error(), code) }
