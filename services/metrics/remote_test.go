package metrics_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
	"github.com/toolway/toolway/services/metrics"
)

func startRemote(t *testing.T, url string, options metrics.RemoteOptions) metricsv1.MetricServiceClient {
	t.Helper()
	engine, err := metrics.NewRemote(url, options)
	if err != nil {
		t.Fatal(err)
	}
	client, _ := start(t, engine, metrics.Options{})
	return client
}

// A native histogram, which only a server can have, is given as its count and sum.
func TestRemoteNativeHistogram(t *testing.T) {
	registry := prometheus.NewRegistry()
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "wait_seconds", NativeHistogramBucketFactor: 1.1})
	registry.MustRegister(histogram)
	histogram.Observe(1.5)
	histogram.Observe(3)
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer page.Close()
	host := strings.TrimPrefix(page.URL, "http://")
	server := startPrometheus(t, fmt.Sprintf("scrape_configs:\n- {job_name: shop, scrape_interval: 1s, static_configs: [{targets: [%q]}]}\n", host), "--enable-feature=native-histograms")
	client := startRemote(t, server.url, metrics.RemoteOptions{})
	becomes(t, client, `wait_seconds`,
		"{__histogram__=sum,__name__=wait_seconds,instance="+host+",job=shop} 4.5", "{__histogram__=count,__name__=wait_seconds,instance="+host+",job=shop} 2")
	resp, err := client.QueryRange(within(t), &metricsv1.QueryRangeRequest{Query: `sum(wait_seconds)`, MaxPoints: 1})
	if err != nil || len(resp.Series) != 2 || resp.Series[0].Labels["__histogram__"] != "sum" || resp.Series[0].Samples[0].GetValue() != 4.5 {
		t.Errorf("over a range = %v, %v, want sum and count", resp, err)
	}
}

// A server with TLS that asks for a certificate is reached with one, and a bearer token is read from its file for each request.
func TestRemoteCredentials(t *testing.T) {
	dir := t.TempDir()
	pool, pair := certificates(t, dir)
	web := filepath.Join(dir, "web.yml")
	if err := os.WriteFile(web, fmt.Appendf(nil, "tls_server_config: {cert_file: %[1]s/cert.pem, key_file: %[1]s/key.pem, client_ca_file: %[1]s/cert.pem, client_auth_type: RequireAndVerifyClientCert}\n", dir), 0o600); err != nil {
		t.Fatal(err)
	}
	server := startPrometheus(t, "global: {}\n", "--web.config.file="+web)
	secure := "https" + strings.TrimPrefix(server.url, "http")
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}
	ask := func(client metricsv1.MetricServiceClient) error {
		resp, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: "1 + 1"})
		if err == nil && resp.Series[0].Samples[0].GetValue() != 2 {
			err = fmt.Errorf("1 + 1 = %v", resp)
		}
		return err
	}
	if err := ask(startRemote(t, secure, metrics.RemoteOptions{Transport: transport})); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	err := ask(startRemote(t, secure, metrics.RemoteOptions{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}))
	wantCode(t, err, codes.Unavailable)
	wantInfo(t, err, "ENGINE_UNAVAILABLE")

	// Prometheus has no bearer tokens of its own; what stands before it has.
	upstream, err := url.Parse(secure)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.Transport = transport.Clone()
	guard := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer right" || r.Header.Get("X-Scope-OrgID") != "team" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer guard.Close()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	client := startRemote(t, guard.URL, metrics.RemoteOptions{TokenFile: token, Headers: http.Header{"X-Scope-OrgID": {"team"}}})
	wantCode(t, ask(client), codes.Internal)
	if err := os.WriteFile(token, []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ask(client); err != nil {
		t.Errorf("with the token: %v", err)
	}
	proxy.Transport.(*http.Transport).CloseIdleConnections()
}

// certificates writes a certificate that vouches for itself, for servers and clients, to cert.pem and key.pem.
func certificates(t *testing.T, dir string) (*x509.CertPool, tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	for name, text := range map[string][]byte{"cert.pem": certPEM, "key.pem": keyPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return pool, pair
}

// What stands between may answer anything.
func TestRemoteAnswers(t *testing.T) {
	tests := []struct {
		name string
		code int
		body string
		want codes.Code
		info string
	}{
		{"not there", 404, "404 page not found", codes.Internal, ""},
		{"refused", 403, `{"status":"error","errorType":"forbidden","error":"no"}`, codes.Internal, ""},
		{"moved", 302, "", codes.Internal, ""},
		{"busy", 429, "slow down", codes.Unavailable, "ENGINE_UNAVAILABLE"},
		{"bad gateway", 502, "<html>", codes.Unavailable, "ENGINE_UNAVAILABLE"},
		{"shutting down", 503, `{"status":"error","errorType":"unavailable","error":"shutting down"}`, codes.Unavailable, "ENGINE_UNAVAILABLE"},
		{"internal", 500, `{"status":"error","errorType":"internal","error":"broken"}`, codes.Unavailable, "ENGINE_UNAVAILABLE"},
		{"timeout", 503, `{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}`, codes.DeadlineExceeded, ""},
		{"limit", 422, `{"status":"error","errorType":"execution","error":"the query hit the max number of series limit (limit: 3 series)"}`, codes.ResourceExhausted, "QUERY_TOO_LARGE"},
		{"too many points", 400, `{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution of 11,000 points per timeseries"}`, codes.ResourceExhausted, "QUERY_TOO_LARGE"},
		{"long", 413, "too large", codes.ResourceExhausted, "QUERY_TOO_LARGE"},
		{"other dialect", 400, `{"status":"error","errorType":"bad_data","error":"unknown func \"x\""}`, codes.InvalidArgument, "QUERY_SYNTAX"},
		{"huge", 200, `{"status":"success","data":"` + strings.Repeat("x", 2000) + `"}`, codes.ResourceExhausted, "QUERY_TOO_LARGE"},
		{"no API", 200, "<html>", codes.Internal, ""},
		{"odd data", 200, `{"status":"success","data":{"resultType":"vector","result":[{"value":[1]}]}}`, codes.Internal, ""},
		{"odd type", 200, `{"status":"success","data":{"resultType":"streams","result":[]}}`, codes.Internal, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://192.0.2.1/")
				w.WriteHeader(test.code)
				_, _ = io.WriteString(w, test.body)
			}))
			defer server.Close()
			client := startRemote(t, server.URL, metrics.RemoteOptions{MaxBytes: 1000})
			_, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: "up"})
			wantCode(t, err, test.want)
			if test.info != "" {
				wantInfo(t, err, test.info)
			}
			if _, ok := detail[*errdetails.RetryInfo](err); ok != (test.want == codes.Unavailable) {
				t.Errorf("RetryInfo in %v: %v", err, ok)
			}
			if strings.Contains(err.Error(), server.URL) {
				t.Errorf("%v tells where the engine is", err)
			}
		})
	}
}

// A server that goes away is UNAVAILABLE; a watch says where to go on, and does when it is back.
func TestRemoteGone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte("global: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := runPrometheus(dir)
	if err != nil {
		t.Fatal(err)
	}
	client := startRemote(t, server.url, metrics.RemoteOptions{})
	stream, err := client.WatchMetric(within(t), &metricsv1.WatchMetricRequest{Query: "vector(time())", Interval: nil, Cursor: metrics.CursorAt(time.Now().Add(-16 * time.Second))})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.stop(); err != nil {
		t.Fatal(err)
	}
	got, err := ended(stream)
	wantCode(t, err, codes.Unavailable)
	last := append([]*metricsv1.WatchMetricResponse{first}, got...)[len(got)]
	if cursor := wantInfo(t, err, "ENGINE_UNAVAILABLE")["cursor"]; cursor != last.Cursor {
		t.Errorf("cursor = %q, want %q", cursor, last.Cursor)
	}
	_, err = client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: "1", Time: timestamppb.Now()})
	wantCode(t, err, codes.Unavailable)
	next := startRemote(t, startPrometheus(t, "global: {}\n").url, metrics.RemoteOptions{})
	rest, err := watch(t, next, &metricsv1.WatchMetricRequest{Query: "vector(time())", Cursor: last.Cursor, MaxUpdates: 1})
	if err != nil || !rest[0].Time.AsTime().Equal(last.Time.AsTime().Add(15*time.Second)) {
		t.Errorf("after the break = %v, %v, want the next instant", rest, err)
	}
}

func TestRemoteRefuses(t *testing.T) {
	for _, test := range []struct {
		url     string
		options metrics.RemoteOptions
		want    string
	}{
		{"prometheus:9090", metrics.RemoteOptions{}, "use one like http://"},
		{"http://", metrics.RemoteOptions{}, "use one like http://"},
		{"ftp://u:secret@x", metrics.RemoteOptions{}, "use one like http://"},
		{"http://prometheus:9090", metrics.RemoteOptions{TokenFile: "x"}, "in the clear"},
		{"http://u:secret@prometheus:9090", metrics.RemoteOptions{}, "in the clear"},
	} {
		_, err := metrics.NewRemote(test.url, test.options)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("NewRemote(%q) = %v, want an error with %q and no secret", test.url, err, test.want)
		}
	}
}
