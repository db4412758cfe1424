package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
	"github.com/toolway/toolway/services/internal/launch"
)

const patience = 60 * time.Second

func TestServes(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "jobs_total 7\n") }))
	defer page.Close()
	service := launch.Run(t, run, "--scrape", "shop="+page.URL, "--scrape-interval", "100ms")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, name := range []string{"", "agentops.metrics.v1.MetricService"} {
		resp, err := grpc_health_v1.NewHealthClient(service.Conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: name})
		if err != nil || resp.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q = %v, %v; want SERVING", name, resp, err)
		}
	}
	client := metricsv1.NewMetricServiceClient(service.Conn)
	for found := false; !found; time.Sleep(10 * time.Millisecond) {
		resp, err := client.QueryInstant(ctx, &metricsv1.QueryInstantRequest{Query: `sum by (job) (jobs_total)`})
		if err != nil {
			t.Fatal(err)
		}
		found = len(resp.Series) == 1 && resp.Series[0].Labels["job"] == "shop" && resp.Series[0].Samples[0].GetValue() == 7
	}
	// A watch would go on for ever; the end of the service ends it.
	stream, err := client.WatchMetric(ctx, &metricsv1.WatchMetricRequest{Query: "up", Interval: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := service.Stop(); err != nil {
		t.Errorf("stop = %v, want nil", err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("watch after the stop = %v, want UNAVAILABLE", err)
	}
}

// The other driver, here on a server that has nothing but an answer; services/metrics tests it on the real one.
func TestServesRemote(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("X-Scope-Orgid") != "team" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"42"]}}`)
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	service := launch.Run(t, run, "--prometheus-url", server.URL, "--prometheus-token-file", token, "--prometheus-header", "X-Scope-OrgID: team", "--retention", "720h")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := metricsv1.NewMetricServiceClient(service.Conn).QueryInstant(ctx, &metricsv1.QueryInstantRequest{Query: `42`})
	if err != nil || resp.Series[0].Samples[0].GetValue() != 42 {
		t.Errorf("= %v, %v, want 42", resp, err)
	}
}

func TestRefusesCommandLine(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"serve"}, `unexpected argument "serve"`},
		{[]string{"--scrape", "shop"}, "is not job=URL"},
		{[]string{"--scrape", "shop=127.0.0.1:9100"}, "http or https URL"},
		{[]string{"--scrape", "shop=http://x", "--scrape", "shop=http://x"}, "a job of its own"},
		{[]string{"--scrape", "shop=http://x", "--prometheus-url", "http://127.0.0.1"}, "exclude each other"},
		{[]string{"--max-series", "1", "--prometheus-url", "http://127.0.0.1"}, "exclude each other"},
		{[]string{"--prometheus-token-file", "x"}, "needs --prometheus-url"},
		{[]string{"--prometheus-url", "127.0.0.1:9090"}, "use one like http://"},
		{[]string{"--prometheus-url", "http://prometheus", "--prometheus-token-file", "x"}, "in the clear"},
		{[]string{"--prometheus-url", "https://x", "--prometheus-cert", "x"}, "belong together"},
		{[]string{"--prometheus-url", "https://x", "--prometheus-ca", "/nowhere"}, "--prometheus-ca"},
		{[]string{"--prometheus-url", "https://x", "--prometheus-header", "x"}, "is not name: value"},
		{[]string{"--retention", "-1h"}, "negative"},
		{[]string{"--auth-issuer", "x"}, "belong together"},
		{[]string{"--addr", "nowhere"}, "choose another address with --addr"},
		{[]string{"--unknown"}, "unknown"},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			err := run(t.Context(), test.args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("run(%q) = %v, want an error with %q", test.args, err, test.want)
			}
		})
	}
	if err := run(t.Context(), []string{"--help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("run(--help) = %v, want %v", err, flag.ErrHelp)
	}
}
