package metrics

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// accept asks for the text formats, which carry no native histograms.
const accept = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,text/plain;q=0.2"

// Target is a page of metrics in Prometheus' text format or OpenMetrics.
type Target struct {
	// Job is the value of the label "job".
	Job string
	// URL is where the page is. Its host is the value of the label "instance"; without a path it is /metrics.
	URL *url.URL
}

var jobName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}$`)

// ParseTarget reads "job=URL".
func ParseTarget(s string) (Target, error) {
	job, page, ok := strings.Cut(s, "=")
	if !ok || !jobName.MatchString(job) {
		return Target{}, fmt.Errorf("target %q is not job=URL; use one like shop=http://127.0.0.1:9100/metrics", s)
	}
	u, err := url.Parse(page)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return Target{}, fmt.Errorf("target of job %q has no http or https URL; use one like %s=http://127.0.0.1:9100/metrics", job, job)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/metrics"
	}
	return Target{Job: job, URL: u}, nil
}

// checkTargets refuses two targets whose series could not be told apart.
func checkTargets(targets []Target) error {
	type id struct{ job, instance string }
	seen := make(map[id]bool)
	for _, t := range targets {
		i := id{t.Job, t.URL.Host}
		if seen[i] {
			return fmt.Errorf("target %s=%s is there twice, or at two paths; give each a job of its own", t.Job, t.URL.Redacted())
		}
		seen[i] = true
	}
	return nil
}

// stayOnHost follows redirects within one host: what a target says must not make this service ask others.
func stayOnHost(req *http.Request, via []*http.Request) error {
	if len(via) >= 5 {
		return errors.New("redirected five times")
	}
	if first := via[0].URL; req.URL.Host != first.Host || req.URL.Scheme != first.Scheme {
		return fmt.Errorf("redirected to another host, %q; scrape that one", req.URL.Host)
	}
	return nil
}

// scraper keeps one target's samples coming. It belongs to one goroutine.
type scraper struct {
	target  Target
	number  int // of the target
	options EmbeddedOptions
	client  *http.Client
	store   *store

	known map[string]*known // by the text of the series in the page: what the last scrape brought
	own   [3]*memSeries     // up, scrape_duration_seconds, scrape_samples_scraped
	told  []string          // why scrapes have failed since the last good one, numbers aside
	turn  uint64
}

// known is a series that the last good scrape brought.
type known struct {
	series *memSeries
	labels labels.Labels
	turn   uint64
}

// run scrapes at once and then at every interval, each target at a moment of its own, until ctx ends.
func (s *scraper) run(ctx context.Context) {
	s.scrape(ctx)
	h := fnv.New64a()
	_, _ = io.WriteString(h, s.target.Job+s.target.URL.Host)
	phase := time.Duration(h.Sum64() % uint64(s.options.Interval))
	for {
		now := time.Now()
		next := now.Truncate(s.options.Interval).Add(phase)
		if !next.After(now) {
			next = next.Add(s.options.Interval)
		}
		if until(ctx, next) != nil {
			return
		}
		s.scrape(ctx)
	}
}

// scrape asks the target once and stores what it says, whole or not at all, and how it went.
func (s *scraper) scrape(ctx context.Context) {
	s.turn++
	at := time.Now().Truncate(time.Millisecond)
	page, err := s.get(ctx)
	if ctx.Err() != nil {
		return
	}
	var rows []row
	var texts []string
	if err == nil {
		rows, texts, err = s.read(page, at.UnixMilli())
	}
	if err == nil {
		err = s.commit(rows, texts, at)
	}
	if err != nil {
		_ = s.commitFailure(at)
	}
	s.tell(err)
}

// maxTold is how many reasons are told of a target that fails for one after the other.
const maxTold = 10

var numbers = regexp.MustCompile(`[0-9]+`)

// tell logs that a target fails, once for each reason, or works again. Numbers, such as ports, make no other reason.
func (s *scraper) tell(err error) {
	logger := s.options.Logger.With("job", s.target.Job, "target", s.target.URL.Redacted())
	if err == nil {
		if len(s.told) > 0 {
			logger.Info("scrape works again")
		}
		s.told = nil
		return
	}
	reason := numbers.ReplaceAllString(err.Error(), "0")
	if len(s.told) == maxTold || slices.Contains(s.told, reason) {
		return
	}
	s.told = append(s.told, reason)
	logger.Warn("scrape failed", "error", err)
}

// page is what a target answered.
type page struct {
	body        []byte
	contentType string
}

// get asks for the page.
func (s *scraper) get(ctx context.Context) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.target.URL.String(), http.NoBody)
	if err != nil {
		return page{}, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "toolway-metrics")
	req.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", fmt.Sprintf("%g", s.options.Timeout.Seconds()))
	resp, err := s.client.Do(req)
	if err != nil {
		return page{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return page{}, fmt.Errorf("target answered %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(s.options.TargetBytes)+1))
	if err != nil {
		return page{}, fmt.Errorf("read page: %w", err)
	}
	if len(body) > s.options.TargetBytes {
		return page{}, fmt.Errorf("page has more than %d bytes; expose less, or raise --target-bytes", s.options.TargetBytes)
	}
	return page{body, resp.Header.Get("Content-Type")}, nil
}

// read turns a page into rows, each with the text of its series: "" where the target gave a timestamp, since such a series does not become stale
// with the page.
func (s *scraper) read(p page, at int64) (rows []row, texts []string, err error) {
	err = parsePage(p.body, p.contentType, func(e exposed) error {
		if len(rows) == s.options.TargetSamples {
			return fmt.Errorf("page has more than %d samples; expose fewer, or raise --target-samples", s.options.TargetSamples)
		}
		r := row{Sample: Sample{Time: at, Value: e.value}}
		if e.time != nil {
			r.Time = *e.time
		}
		if k := s.known[string(e.text)]; k != nil {
			r.series, r.labels = k.series, k.labels
		} else if r.labels, err = s.label(e.labels()); err != nil {
			return err
		}
		text := string(e.text)
		if e.time != nil {
			text = ""
		}
		rows, texts = append(rows, r), append(texts, text)
		return nil
	})
	return rows, texts, err
}

// label adds job and instance; labels of the page that have these names become exported_job and exported_instance.
func (s *scraper) label(l labels.Labels) (labels.Labels, error) {
	b := labels.NewBuilder(l)
	for _, own := range []labels.Label{{Name: "job", Value: s.target.Job}, {Name: "instance", Value: s.target.URL.Host}} {
		if theirs := l.Get(own.Name); theirs != "" {
			name := "exported_" + own.Name
			for b.Get(name) != "" {
				name = "exported_" + name
			}
			b.Set(name, theirs)
		}
		b.Set(own.Name, own.Value)
	}
	l = b.Labels()
	return l, checkLabels(l)
}

// commit stores a good scrape, and a staleness marker for each series that was in the last one and is not in this.
func (s *scraper) commit(rows []row, texts []string, at time.Time) error {
	for _, text := range texts {
		if k := s.known[text]; k != nil {
			k.turn = s.turn
		}
	}
	stale := s.stale(at, func(k *known) bool { return k.turn != s.turn })
	n := len(rows)
	all := append(append(rows, stale...), s.report(at, true, n)...)
	dropped, err := s.store.commit(s.number, all)
	if err != nil {
		return err
	}
	if dropped > 0 {
		s.options.Logger.Debug("samples were left out: twice on the page, or with timestamps out of order or of another time", "job", s.target.Job, "samples", dropped)
	}
	now := make(map[string]*known, n)
	for i, text := range texts {
		if text == "" {
			continue
		}
		if k := s.known[text]; k != nil {
			k.series = all[i].series
			now[text] = k
			continue
		}
		now[text] = &known{series: all[i].series, labels: all[i].labels, turn: s.turn}
	}
	s.known = now
	s.keepOwn(all)
	return nil
}

// commitFailure stores that a scrape failed: up is 0, and all that was there is stale.
func (s *scraper) commitFailure(at time.Time) error {
	all := append(s.stale(at, func(*known) bool { return true }), s.report(at, false, 0)...)
	s.known = nil
	_, err := s.store.commit(s.number, all)
	if err == nil {
		s.keepOwn(all)
	}
	return err
}

// stale is a marker for each known series that is gone.
func (s *scraper) stale(at time.Time, gone func(*known) bool) []row {
	var rows []row
	for _, k := range s.known {
		if gone(k) {
			rows = append(rows, row{series: k.series, labels: k.labels, Sample: Sample{at.UnixMilli(), math.Float64frombits(value.StaleNaN)}})
		}
	}
	return rows
}

// report is how the scrape went, as series of our own.
func (s *scraper) report(at time.Time, up bool, samples int) []row {
	values := [len(s.own)]float64{0, time.Since(at).Seconds(), float64(samples)}
	if up {
		values[0] = 1
	}
	rows := make([]row, len(s.own))
	for i, name := range [len(s.own)]string{"up", "scrape_duration_seconds", "scrape_samples_scraped"} {
		rows[i] = row{
			series: s.own[i],
			labels: labels.FromStrings(model.MetricNameLabel, name, "job", s.target.Job, "instance", s.target.URL.Host),
			free:   true,
			Sample: Sample{at.UnixMilli(), values[i]},
		}
	}
	return rows
}

// keepOwn remembers the last rows' series.
func (s *scraper) keepOwn(all []row) {
	for i, r := range all[len(all)-len(s.own):] {
		s.own[i] = r.series
	}
}
