package metrics_test

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
	"github.com/toolway/toolway/services/metrics"
)

// endless is a query that takes long, and few samples: of as many points as a subquery may have.
var endless = "max_over_time((vector(time())" + strings.Repeat("+vector(time())", 250) + ")[26h:1s])"

// engines are the drivers, each with how many queries its PromQL engine has in flight.
func engines(t *testing.T) map[string]func(t *testing.T) (metrics.Engine, func() float64) {
	return map[string]func(t *testing.T) (metrics.Engine, func() float64){
		"embedded": func(t *testing.T) (metrics.Engine, func() float64) {
			registry := prometheus.NewRegistry()
			return withHistory(t, metrics.EmbeddedOptions{Registerer: registry}), func() float64 {
				families, err := registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range families {
					if f.GetName() == "prometheus_engine_queries" {
						return f.GetMetric()[0].GetGauge().GetValue()
					}
				}
				t.Fatal("the engine does not count its queries")
				return 0
			}
		},
		"prometheus": func(t *testing.T) (metrics.Engine, func() float64) {
			url := sharedPrometheus(t)
			engine, err := metrics.NewRemote(url, metrics.RemoteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return engine, func() float64 { return gauge(t, url, "prometheus_engine_queries") }
		},
	}
}

// gauge reads one metric of a page.
func gauge(t *testing.T, url, name string) float64 {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("%s has no %s", url, name)
	return 0
}

// A query ends in the engine when its caller goes, its deadline passes, the service is told to end its queries, or the engine is closed.
func TestQueryEndsInEngine(t *testing.T) {
	for name, open := range engines(t) {
		t.Run(name, func(t *testing.T) {
			engine, inFlight := open(t)
			client, _ := start(t, engine, metrics.Options{})
			call := func(ctx context.Context) error {
				_, err := client.QueryInstant(ctx, &metricsv1.QueryInstantRequest{Query: endless, Time: timestamppb.New(end)})
				return err
			}
			background := func(ctx context.Context) chan error {
				done := make(chan error, 1)
				go func() { done <- call(ctx) }()
				eventually(t, "the query runs", func() bool { return inFlight() == 1 })
				return done
			}
			ctx, cancel := context.WithCancel(within(t))
			done := background(ctx)
			cancelled := time.Now()
			cancel()
			wantCode(t, <-done, codes.Canceled)
			eventually(t, "the query ends in the engine after the caller has gone", func() bool { return inFlight() == 0 })
			t.Logf("ended in the engine %v after the caller went", time.Since(cancelled))

			ctx, cancel = context.WithTimeout(within(t), 300*time.Millisecond)
			defer cancel()
			wantCode(t, call(ctx), codes.DeadlineExceeded)
			eventually(t, "the query ends in the engine after the deadline", func() bool { return inFlight() == 0 })

			done = background(within(t))
			if err := engine.Close(); err != nil {
				t.Fatal(err)
			}
			err := <-done
			wantCode(t, err, codes.Unavailable)
			wantInfo(t, err, "ENGINE_UNAVAILABLE")
			eventually(t, "the query ends in the engine after it was closed", func() bool { return inFlight() == 0 })
			wantCode(t, call(within(t)), codes.Unavailable)
		})
	}
}

// A query without a deadline has the service's.
func TestQueryTimeout(t *testing.T) {
	for name, open := range engines(t) {
		t.Run(name, func(t *testing.T) {
			engine, inFlight := open(t)
			client, _ := start(t, engine, metrics.Options{QueryTimeout: 200 * time.Millisecond})
			_, err := client.QueryRange(t.Context(), &metricsv1.QueryRangeRequest{Query: endless, StartTime: timestamppb.New(begin), EndTime: timestamppb.New(end)})
			wantCode(t, err, codes.DeadlineExceeded)
			eventually(t, "the query ends in the engine", func() bool { return inFlight() == 0 })
		})
	}
}

// Queries beyond those that may run at a time wait, and end as such when their callers go.
func TestQueriesWait(t *testing.T) {
	engine := withHistory(t, metrics.EmbeddedOptions{Concurrent: 1})
	client, _ := start(t, engine, metrics.Options{})
	ctx, cancel := context.WithCancel(within(t))
	first := make(chan error, 1)
	go func() {
		_, err := client.QueryInstant(ctx, &metricsv1.QueryInstantRequest{Query: endless, Time: timestamppb.New(end)})
		first <- err
	}()
	// Sooner or later the endless one has the only slot, and then another does not get it.
	eventually(t, "a query waits", func() bool {
		ctx, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
		defer cancel()
		_, err := client.QueryInstant(ctx, &metricsv1.QueryInstantRequest{Query: "1"})
		return err != nil
	})
	cancel()
	wantCode(t, <-first, codes.Canceled)
	if _, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: "1"}); err != nil {
		t.Errorf("after the first has gone: %v", err)
	}
}
