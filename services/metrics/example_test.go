package metrics_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
	"github.com/toolway/toolway/services/metrics"
)

// A whole tool backend: an engine that scrapes a page, the service on it, a gRPC server.
func Example() {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "orders_total{state=\"paid\"} 3\norders_total{state=\"refused\"} 8\n")
	}))
	defer page.Close()
	target, err := metrics.ParseTarget("shop=" + page.URL)
	if err != nil {
		panic(err)
	}
	engine, err := metrics.OpenEmbedded(metrics.EmbeddedOptions{Targets: []metrics.Target{target}, Interval: 100 * time.Millisecond, Timeout: time.Minute})
	if err != nil {
		panic(err)
	}
	defer func() { _ = engine.Close() }()

	server := grpc.NewServer()
	metrics.New(engine, metrics.Options{}).Register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			panic(err)
		}
	}()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()
	client := metricsv1.NewMetricServiceClient(conn)
	for {
		found, err := client.QueryInstant(context.Background(), &metricsv1.QueryInstantRequest{Query: "sum by (state) (orders_total)"})
		if err != nil {
			panic(err)
		}
		for _, s := range found.GetSeries() {
			fmt.Println(s.GetLabels()["state"], s.GetSamples()[0].GetValue())
		}
		if len(found.GetSeries()) > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	// Output:
	// refused 8
	// paid 3
}
