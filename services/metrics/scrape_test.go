package metrics_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/protobuf/types/known/timestamppb"

	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
	"github.com/toolway/toolway/services/metrics"
)

// target is a page that a test changes.
type target struct {
	*httptest.Server
	mu          sync.Mutex
	body        string
	contentType string
	code        int
	asked       http.Header
	count       int
}

func startTarget(t *testing.T, body string) *target {
	t.Helper()
	p := &target{body: body, contentType: "text/plain; version=0.0.4", code: http.StatusOK}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked = r.Header
		p.count++
		w.Header()["Content-Type"] = nil
		if p.contentType != "" {
			w.Header().Set("Content-Type", p.contentType)
		}
		w.WriteHeader(p.code)
		_, _ = w.Write([]byte(p.body))
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *target) say(code int, contentType, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.code, p.contentType, p.body = code, contentType, body
}

// scraped is how often the page was asked for.
func (p *target) scraped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *target) host() string { return strings.TrimPrefix(p.URL, "http://") }

func target1(t *testing.T, s string) metrics.Target {
	t.Helper()
	parsed, err := metrics.ParseTarget(s)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// onBothScraping runs a test on each driver, with a page that both scrape four times a second or every second.
func onBothScraping(t *testing.T, body string, test func(t *testing.T, client metricsv1.MetricServiceClient, page *target)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		page := startTarget(t, body)
		client, _ := start(t, openEmbedded(t, metrics.EmbeddedOptions{Targets: []metrics.Target{target1(t, "shop="+page.URL)}, Interval: 250 * time.Millisecond, Timeout: patience}), metrics.Options{})
		test(t, client, page)
	})
	t.Run("prometheus", func(t *testing.T) {
		page := startTarget(t, body)
		server := startPrometheus(t, fmt.Sprintf("scrape_configs:\n- {job_name: shop, scrape_interval: 1s, static_configs: [{targets: [%q]}]}\n", page.host()))
		engine, err := metrics.NewRemote(server.url, metrics.RemoteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		client, _ := start(t, engine, metrics.Options{})
		test(t, client, page)
	})
}

// becomes waits until a query answers so.
func becomes(t *testing.T, client metricsv1.MetricServiceClient, query string, want ...string) {
	t.Helper()
	var got []string
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		resp, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: query})
		if err != nil {
			t.Fatal(err)
		}
		if got = showAll(resp.Series); slices.Equal(got, want) || len(got)+len(want) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s = %q, want it to become %q", query, got, want)
		}
	}
}

func TestScrape(t *testing.T) {
	const body = "# TYPE jobs_total counter\njobs_total{kind=\"mail\"} 3\njobs_total{kind=\"print\"} 4\njob_age{job=\"theirs\",instance=\"x\"} 1\nlag NaN\n"
	onBothScraping(t, body, func(t *testing.T, client metricsv1.MetricServiceClient, page *target) {
		at := fmt.Sprintf("instance=%s", page.host())
		becomes(t, client, `up`, "{__name__=up,"+at+",job=shop} 1")
		becomes(t, client, `jobs_total`, "{__name__=jobs_total,"+at+",job=shop,kind=print} 4", "{__name__=jobs_total,"+at+",job=shop,kind=mail} 3")
		becomes(t, client, `job_age`, "{__name__=job_age,exported_instance=x,exported_job=theirs,"+at+",job=shop} 1")
		becomes(t, client, `lag`, "{__name__=lag,"+at+",job=shop} NaN")
		becomes(t, client, `scrape_samples_scraped`, "{__name__=scrape_samples_scraped,"+at+",job=shop} 4")
		becomes(t, client, `scrape_duration_seconds > bool 0`, "{"+at+",job=shop} 1")

		// A series that is no longer on the page is stale at once, five minutes before it is only old; others go on.
		page.say(http.StatusOK, "text/plain", "jobs_total{kind=\"mail\"} 5\n")
		becomes(t, client, `jobs_total`, "{__name__=jobs_total,"+at+",job=shop,kind=mail} 5")
		becomes(t, client, `lag`)

		// OpenMetrics, and a series that comes back.
		page.say(http.StatusOK, "application/openmetrics-text; version=1.0.0", "# TYPE jobs counter\njobs_total{kind=\"mail\"} 6 # {trace=\"a\"} 1\njobs_total{kind=\"print\"} 7\n# EOF\n")
		becomes(t, client, `jobs_total`, "{__name__=jobs_total,"+at+",job=shop,kind=print} 7", "{__name__=jobs_total,"+at+",job=shop,kind=mail} 6")

		// A target that fails takes all its series along, and up says so.
		page.say(http.StatusInternalServerError, "text/plain", "jobs_total{kind=\"mail\"} 7\n")
		becomes(t, client, `up`, "{__name__=up,"+at+",job=shop} 0")
		becomes(t, client, `jobs_total`)
		page.say(http.StatusOK, "text/plain", "jobs_total{kind=\"mail\"} 8\n")
		becomes(t, client, `up`, "{__name__=up,"+at+",job=shop} 1")
		becomes(t, client, `jobs_total`, "{__name__=jobs_total,"+at+",job=shop,kind=mail} 8")
	})
}

// Nothing of a page that breaks off is kept, and what was there is stale.
func TestScrapeWhole(t *testing.T) {
	page := startTarget(t, "jobs_total{kind=\"mail\"} 8\n")
	client, _ := start(t, openEmbedded(t, metrics.EmbeddedOptions{Targets: []metrics.Target{target1(t, "shop="+page.URL)}, Interval: 20 * time.Millisecond, Timeout: patience}), metrics.Options{})
	becomes(t, client, `sum(jobs_total)`, "{} 8")
	page.say(http.StatusOK, "text/plain", "jobs_total{kind=\"mail\"} 9\njobs_total{kind=\"print\n")
	becomes(t, client, `sum(up)`, "{} 0")
	becomes(t, client, `jobs_total`)
	becomes(t, client, `sum(last_over_time(jobs_total[1h]))`, "{} 8")
}

// Samples with timestamps of their own have those, and do not become stale with the page.
func TestScrapeTimestamps(t *testing.T) {
	at := time.Now().Add(5 * time.Second).Truncate(time.Second)
	body := fmt.Sprintf("dated 1 %d\nplain 1\n", at.UnixMilli())
	onBothScraping(t, body, func(t *testing.T, client metricsv1.MetricServiceClient, page *target) {
		becomes(t, client, `max(timestamp(dated))`, fmt.Sprintf("{} %.9g", float64(at.Unix())))
		page.say(http.StatusOK, "text/plain", "other 1\n")
		becomes(t, client, `plain`)
		becomes(t, client, `count(dated)`, "{} 1")
	})
}

// What a client library serves is read: compressed, with histograms and summaries.
func TestScrapeClientLibrary(t *testing.T) {
	registry := prometheus.NewRegistry()
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "wait_seconds", Buckets: []float64{1, 2}, NativeHistogramBucketFactor: 1.1})
	registry.MustRegister(histogram)
	histogram.Observe(1.5)
	histogram.Observe(3)
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	defer page.Close()
	client, _ := start(t, openEmbedded(t, metrics.EmbeddedOptions{Targets: []metrics.Target{target1(t, "shop="+page.URL)}, Interval: 250 * time.Millisecond, Timeout: patience}), metrics.Options{})
	becomes(t, client, `sum by (le) (wait_seconds_bucket)`, "{le=+Inf} 2", "{le=2.0} 1", "{le=1.0} 0")
	becomes(t, client, `sum(wait_seconds_sum)`, "{} 4.5")
}

// What is too much or no page at all fails as a whole, and the log says why, once.
func TestScrapeRefuses(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(bytes.Repeat([]byte("# a comment that compresses well\n"), 100_000))
	_ = z.Close()
	tests := []struct {
		name, contentType, body, want string
	}{
		{"samples", "text/plain", strings.Repeat("x", 3) + "{a=\"1\"} 1\nb 1\nc 1\nd 1\n", "more than 3 samples"},
		{"bytes", "text/plain", strings.Repeat("# a comment\n", 20_000), "more than 65536 bytes"},
		{"labels", "text/plain", "a{b=\"" + strings.Repeat("x", 5000) + "\"} 1\n", "bytes of labels"},
		{"many labels", "text/plain", "a{" + manyLabels(70) + "} 1\n", "at most 64 are kept"},
		{"label twice", "text/plain", "a{b=\"1\",b=\"2\"} 1\n", "twice"},
		{"native histograms", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited", "\x00", "not those with native histograms"},
		{"web page", "text/html", "<html>", "only Prometheus' text format"},
		{"broken", "text/plain", "a{ 1\n", "read page"},
		{"no end", "application/openmetrics-text; version=1.0.0", "a 1\n", "read page"},
		{"no text", "text/plain", "a 1\n\x00b 2\n", "NUL at byte 4"},
		{"no number", "text/plain", "a one\n", "read page"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			page := startTarget(t, test.body)
			page.say(http.StatusOK, test.contentType, test.body)
			var log lockedBuffer
			client, _ := start(t, openEmbedded(t, metrics.EmbeddedOptions{
				Targets: []metrics.Target{target1(t, "shop="+page.URL)}, Interval: 20 * time.Millisecond, Timeout: patience, TargetSamples: 3, TargetBytes: 64 << 10,
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}), metrics.Options{})
			becomes(t, client, `up`, "{__name__=up,instance="+page.host()+",job=shop} 0")
			eventually(t, "several scrapes", func() bool {
				resp, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: `count_over_time(up[1h])`})
				return err == nil && len(resp.Series) == 1 && resp.Series[0].Samples[0].GetValue() > 2
			})
			if n := strings.Count(log.String(), "scrape failed"); n != 1 || !strings.Contains(log.String(), test.want) {
				t.Errorf("log = %s, want one line with %q", log.String(), test.want)
			}
			// Another reason is told too, once.
			page.say(http.StatusTeapot, "text/plain", "")
			eventually(t, "the other reason is told", func() bool { return strings.Contains(log.String(), "answered 418") })
			page.say(http.StatusOK, test.contentType, test.body)
			scraped := page.scraped()
			eventually(t, "it is scraped again", func() bool { return page.scraped() > scraped+2 })
			if n := strings.Count(log.String(), "scrape failed"); n != 2 {
				t.Errorf("log = %s, want one line for each of two reasons", log.String())
			}
			// Only how the scrape went is known.
			becomes(t, client, `count({job="shop"})`, "{} 3")
		})
	}
}

func manyLabels(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("l%d=\"x\"", i))
	}
	return strings.Join(all, ",")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A target cannot lead the service to another host.
func TestScrapeStaysOnHost(t *testing.T) {
	elsewhere := startTarget(t, "secret 1\n")
	redirect := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	defer redirect.Close()
	client, _ := start(t, openEmbedded(t, metrics.EmbeddedOptions{Targets: []metrics.Target{target1(t, "shop="+redirect.URL)}, Interval: 20 * time.Millisecond, Timeout: patience}), metrics.Options{})
	becomes(t, client, `up`, "{__name__=up,instance="+strings.TrimPrefix(redirect.URL, "http://")+",job=shop} 0")
	elsewhere.mu.Lock()
	defer elsewhere.mu.Unlock()
	if elsewhere.asked != nil {
		t.Error("the other host was asked")
	}
}

func TestTargets(t *testing.T) {
	for s, want := range map[string]string{
		"shop=http://127.0.0.1:9100":          "http://127.0.0.1:9100/metrics",
		"shop=https://u:p@shop/m?x=y":         "https://u:p@shop/m?x=y",
		"a.b-c/d=http://shop:80/actuator/all": "http://shop:80/actuator/all",
	} {
		if got, err := metrics.ParseTarget(s); err != nil || got.URL.String() != want {
			t.Errorf("ParseTarget(%q) = %v, %v, want %s", s, got, err, want)
		}
	}
	for _, s := range []string{"http://127.0.0.1:9100", "=http://x", "shop=", "shop=ftp://x", "shop=127.0.0.1:9100", "a b=http://x", ""} {
		if got, err := metrics.ParseTarget(s); err == nil {
			t.Errorf("ParseTarget(%q) = %v, want an error", s, got)
		}
	}
	_, err := metrics.OpenEmbedded(metrics.EmbeddedOptions{Targets: []metrics.Target{target1(t, "shop=http://x/a"), target1(t, "shop=http://x/b")}})
	if err == nil || !strings.Contains(err.Error(), "a job of its own") {
		t.Errorf("the same job and host twice = %v", err)
	}
	if _, err := metrics.OpenEmbedded(metrics.EmbeddedOptions{MaxSeries: -1}); err == nil || !strings.Contains(err.Error(), "limit of series") {
		t.Errorf("negative limit = %v", err)
	}
}

// The store keeps to its bounds: the newest samples stay, and what is older is not shown in part.
func TestStoreBounds(t *testing.T) {
	t.Run("samples", func(t *testing.T) {
		engine := openEmbedded(t, metrics.EmbeddedOptions{MaxSamples: 2000, Retention: 30 * 24 * time.Hour})
		client, _ := start(t, engine, metrics.Options{})
		// 4 series of 1000 samples a second apart, put in by pieces.
		from := time.Now().Add(-2 * time.Hour).Truncate(time.Second)
		for piece := range 10 {
			var b strings.Builder
			for s := range 4 {
				for i := range 100 {
					fmt.Fprintf(&b, "m{s=\"%d\"} %d %d\n", s, piece*100+i, from.Unix()+int64(piece*100+i))
				}
			}
			since := from
			if piece > 0 {
				since = engine.Oldest()
			}
			if _, err := engine.Import([]byte(b.String()+"# EOF\n"), since); err != nil {
				t.Fatal(err)
			}
			if samples, series := engine.Held(); samples > 2000 || series != 4 {
				t.Fatalf("%d samples of %d series are held, want at most 2000 of 4", samples, series)
			}
		}
		at := from.Add(1000 * time.Second)
		resp, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: `m[1h]`, Time: timestamppb.New(at)})
		if err != nil || len(resp.Series) != 4 {
			t.Fatalf("%v, %v, want 4 series", resp, err)
		}
		oldest := engine.Oldest()
		for _, s := range resp.Series {
			first, last := s.Samples[0], s.Samples[len(s.Samples)-1]
			if first.Time.AsTime().Before(oldest) || first.Time.AsTime().Sub(oldest) > time.Second || last.GetValue() != 999 || len(s.Samples) != int(last.GetValue()-first.GetValue())+1 {
				t.Errorf("%v has %d samples from %v to %v, want all from %v on", s.Labels, len(s.Samples), first, last, oldest)
			}
		}
	})
	t.Run("series", func(t *testing.T) {
		page := startTarget(t, "a 1\nb 1\nc 1\n")
		var log lockedBuffer
		engine := openEmbedded(t, metrics.EmbeddedOptions{
			Targets: []metrics.Target{target1(t, "shop="+page.URL)}, Interval: 20 * time.Millisecond, Timeout: patience, MaxSeries: 5,
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		client, _ := start(t, engine, metrics.Options{})
		// The store has no room for the three besides those of the scrape itself.
		becomes(t, client, `up`, "{__name__=up,instance="+page.host()+",job=shop} 0")
		becomes(t, client, `a`)
		if !strings.Contains(log.String(), "no room for more than 5 series") {
			t.Errorf("log = %s, want why", log.String())
		}
		page.say(http.StatusOK, "text/plain", "a 1\nb 1\n")
		becomes(t, client, `up`, "{__name__=up,instance="+page.host()+",job=shop} 1")
		becomes(t, client, `sum(a)`, "{} 1")
	})
	t.Run("series of one target that come and go", func(t *testing.T) {
		quiet := startTarget(t, "a 1\n")
		var requests atomic.Int64
		churns := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = fmt.Fprintf(w, "request{n=\"%d\"} 1\n", requests.Add(1))
		}))
		t.Cleanup(churns.Close)
		client, _ := start(t, openEmbedded(t, metrics.EmbeddedOptions{
			Targets:  []metrics.Target{target1(t, "churns="+churns.URL), target1(t, "quiet="+quiet.URL)},
			Interval: 20 * time.Millisecond, Timeout: patience, MaxSeries: 40,
		}), metrics.Options{})
		becomes(t, client, `sum by (job) (up)`, "{job=quiet} 1", "{job=churns} 0")
		// What is full for the one has room for the other.
		quiet.say(http.StatusOK, "text/plain", "a 1\nb 1\nc 1\nd 1\n")
		becomes(t, client, `sum by (job) (up)`, "{job=quiet} 1", "{job=churns} 0")
		becomes(t, client, `sum(d)`, "{} 1")
	})
	t.Run("age", func(t *testing.T) {
		page := startTarget(t, "a 1\n")
		engine := openEmbedded(t, metrics.EmbeddedOptions{Targets: []metrics.Target{target1(t, "shop="+page.URL)}, Interval: 20 * time.Millisecond, Timeout: patience, Retention: 3 * time.Second})
		client, _ := start(t, engine, metrics.Options{})
		becomes(t, client, `sum(a)`, "{} 1")
		page.say(http.StatusOK, "text/plain", "b 1\n")
		becomes(t, client, `count({__name__=~"a|b"})`, "{} 1")
		eventually(t, "the old series is gone", func() bool { _, series := engine.Held(); return series == 4 })
	})
}
