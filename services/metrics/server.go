package metrics

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
)

// Limits, as the contract states them.
const (
	maxSeries     = 1000
	instantSeries = 100
	rangeSeries   = 20
	maxPoints     = 11_000
	defaultPoints = 120
	defaultRange  = time.Hour
	minStep       = time.Second
	maxPageSize   = 1000
	defaultPage   = 100
	// DefaultMaxRange is the longest range of one query.
	DefaultMaxRange = 31 * 24 * time.Hour
)

// Options configures [New]. The zero value works.
type Options struct {
	// MaxRange is the longest range of one query, and how far back a listing of series reaches. Default: [DefaultMaxRange].
	MaxRange time.Duration
	// QueryTimeout ends a query whose caller set no earlier deadline. Default: 30 s.
	QueryTimeout time.Duration
	// Logger gets what callers are not told. Default: nothing is logged.
	Logger *slog.Logger
}

// Server implements agentops.metrics.v1.MetricService. Its methods may be called concurrently.
type Server struct {
	metricsv1.UnimplementedMetricServiceServer

	engine   Engine
	options  Options
	draining context.Context
	drain    context.CancelFunc
}

// New returns a server on engine, which stays the caller's to close, after the gRPC server has stopped.
func New(engine Engine, options Options) *Server {
	options.MaxRange = cmp.Or(options.MaxRange, DefaultMaxRange)
	options.QueryTimeout = cmp.Or(options.QueryTimeout, 30*time.Second)
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{engine: engine, options: options}
	s.draining, s.drain = context.WithCancel(context.Background())
	return s
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { metricsv1.RegisterMetricServiceServer(r, s) }

// Drain ends the watches that are running with UNAVAILABLE and the cursor to go on from, so that a graceful stop need not wait for callers
// who would watch for ever. New watches end at once too.
func (s *Server) Drain() { s.drain() }

// QueryInstant implements the contract.
func (s *Server) QueryInstant(ctx context.Context, req *metricsv1.QueryInstantRequest) (*metricsv1.QueryInstantResponse, error) {
	if err := checkText("query", req.GetQuery()); err != nil {
		return nil, err
	}
	limit, err := count("max_series", req.GetMaxSeries(), maxSeries, instantSeries)
	if err != nil {
		return nil, err
	}
	at, err := moment("time", req.GetTime(), time.Now())
	if err != nil {
		return nil, err
	}
	if err := checkReach(req.GetQuery(), 0, s.options.MaxRange); err != nil {
		return nil, statusOf(ctx, s.options.Logger, "query", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.QueryTimeout)
	defer cancel()
	answer, err := s.engine.Instant(ctx, req.GetQuery(), at)
	if err != nil {
		return nil, statusOf(ctx, s.options.Logger, "query", err)
	}
	resp := &metricsv1.QueryInstantResponse{Warnings: warnings(answer.Warnings)}
	resp.Series, resp.TruncatedSeries = shorten(answer, shapeOf(req.GetQuery()).sorted, limit)
	return resp, nil
}

// QueryRange implements the contract.
func (s *Server) QueryRange(ctx context.Context, req *metricsv1.QueryRangeRequest) (*metricsv1.QueryRangeResponse, error) {
	if err := checkText("query", req.GetQuery()); err != nil {
		return nil, err
	}
	limit, err := count("max_series", req.GetMaxSeries(), maxSeries, rangeSeries)
	if err != nil {
		return nil, err
	}
	grid, err := s.grid(req, time.Now())
	if err != nil {
		return nil, err
	}
	if err := checkReach(req.GetQuery(), grid.End.Sub(grid.Start), s.options.MaxRange); err != nil {
		return nil, statusOf(ctx, s.options.Logger, "query", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.QueryTimeout)
	defer cancel()
	answer, err := s.engine.Range(ctx, req.GetQuery(), grid)
	if err != nil {
		return nil, statusOf(ctx, s.options.Logger, "query", err)
	}
	text := warnings(answer.Warnings)
	if window := shapeOf(req.GetQuery()).window; window > 0 && window < grid.Step && grid.points() > 1 {
		text = append(text, fmt.Sprintf("points are %s apart, but the query looks back only %s at each: what lies between is not in the answer; use a range of at least %s, or more points",
			grid.Step, window, grid.Step))
	}
	resp := &metricsv1.QueryRangeResponse{Step: durationpb.New(grid.Step), Warnings: text}
	// The order of a range is the contract's, whatever the expression: an engine does not sort ranges.
	resp.Series, resp.TruncatedSeries = shorten(answer, false, limit)
	return resp, nil
}

// grid checks a request and says which points to evaluate.
func (s *Server) grid(req *metricsv1.QueryRangeRequest, now time.Time) (g Grid, err error) {
	points, err := count("max_points", req.GetMaxPoints(), maxPoints, defaultPoints)
	if err != nil {
		return g, err
	}
	if g.End, err = moment("end_time", req.GetEndTime(), now); err != nil {
		return g, err
	}
	if g.Start, err = moment("start_time", req.GetStartTime(), g.End.Add(-defaultRange)); err != nil {
		return g, err
	}
	span := g.End.Sub(g.Start)
	switch {
	case span < 0:
		return g, invalid("end_time", fmt.Sprintf("%s is before start_time %s; swap them", stamp(g.End), stamp(g.Start)))
	case span > s.options.MaxRange:
		return g, invalid("start_time", fmt.Sprintf("the range of %s is longer than %s; query in parts", span.Round(time.Second), s.options.MaxRange))
	case req.GetStep() != nil:
		g.Step, err = duration("step", req.GetStep())
		if err != nil {
			return g, err
		}
		if g.Step < minStep {
			return g, invalid("step", fmt.Sprintf("%s is less than %s", g.Step, minStep))
		}
		g.Step = g.Step.Truncate(time.Millisecond)
		if n := g.points(); n > int64(points) {
			return g, invalid("step", fmt.Sprintf("gives %d points a series, more than max_points, %d; use %s or more, or leave step out", n, points, evenStep(span, points)))
		}
	case points == 1:
		g.Start, g.Step = g.End, minStep
	default:
		g.Step = evenStep(span, points)
		// The end is what callers want to know of, most of all where it is now.
		g.Start = g.End.Add(-(span / g.Step) * g.Step)
	}
	return g, nil
}

// evenStep is the least number of whole seconds that divides a span into at most so many points.
func evenStep(span time.Duration, points int) time.Duration {
	if points == 1 {
		return span.Truncate(time.Second) + time.Second
	}
	step := (span + time.Duration(points-1) - 1) / time.Duration(points-1)
	return max((step + time.Second - 1).Truncate(time.Second), minStep)
}

// ListSeries implements the contract.
func (s *Server) ListSeries(ctx context.Context, req *metricsv1.ListSeriesRequest) (*metricsv1.ListSeriesResponse, error) {
	if err := checkText("selector", req.GetSelector()); err != nil {
		return nil, err
	}
	size, err := count("page_size", req.GetPageSize(), maxPageSize, defaultPage)
	if err != nil {
		return nil, err
	}
	token, err := s.listing(req, time.Now())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.QueryTimeout)
	defer cancel()
	found, err := s.engine.Series(ctx, req.GetSelector(), cursor(token.start).time(), cursor(token.end).time())
	if err != nil {
		return nil, statusOf(ctx, s.options.Logger, "selector", err)
	}
	resp := &metricsv1.ListSeriesResponse{}
	answerBytes := 0
	for i, l := range found {
		if req.GetPageToken() != "" && labels.Compare(l, token.last) <= 0 {
			continue
		}
		answerBytes += int(l.ByteSize())
		if n := len(resp.Series); n == size || n > 0 && answerBytes > maxAnswerBytes {
			token.last = found[i-1]
			resp.NextPageToken = token.String()
			break
		}
		resp.Series = append(resp.Series, Series{Labels: l}.proto())
	}
	return resp, nil
}

// listing checks a request and says which range it lists, and after which series.
func (s *Server) listing(req *metricsv1.ListSeriesRequest, now time.Time) (pageToken, error) {
	start, err := moment("start_time", req.GetStartTime(), now.Add(-defaultRange))
	if err != nil {
		return pageToken{}, err
	}
	asked := "-"
	if req.GetStartTime() != nil {
		asked = stamp(start)
	}
	fresh := pageToken{request: fingerprint(req.GetSelector(), asked), start: start.UnixMilli(), end: now.UnixMilli()}
	if req.GetPageToken() == "" {
		if start.After(now) {
			return fresh, invalid("start_time", fmt.Sprintf("%s is in the future", stamp(start)))
		}
		if now.Sub(start) > s.options.MaxRange {
			return fresh, invalid("start_time", fmt.Sprintf("%s is more than %s ago; the oldest that works is %s", stamp(start), s.options.MaxRange, stamp(now.Add(-s.options.MaxRange))))
		}
		return fresh, nil
	}
	token, err := parsePageToken(req.GetPageToken())
	if err != nil {
		return fresh, invalid("page_token", err.Error())
	}
	if token.request != fresh.request {
		return fresh, invalid("page_token", "is of another request; repeat selector and start_time as they were")
	}
	if from, to := cursor(token.start).time(), cursor(token.end).time(); from.Before(earliest) || to.After(latest) || to.Before(from) || to.Sub(from) > s.options.MaxRange {
		return fresh, invalid("page_token", errPageToken.Error())
	}
	return token, nil
}

// count reads a number that has a default and a bound.
func count(field string, n int32, most, def int) (int, error) {
	if n < 0 || int(n) > most {
		return 0, invalid(field, fmt.Sprintf("%d is not in 0 to %d", n, most))
	}
	return cmp.Or(int(n), def), nil
}

// The times that engines can tell apart, with room to compute.
var (
	earliest = time.Unix(0, 0)
	latest   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// moment reads a time that a caller gave, to the millisecond.
func moment(field string, t *timestamppb.Timestamp, def time.Time) (time.Time, error) {
	if t == nil {
		return def.Truncate(time.Millisecond), nil
	}
	if err := t.CheckValid(); err != nil {
		return time.Time{}, invalid(field, "is not a valid timestamp; use RFC 3339, such as 2026-01-31T12:00:00Z")
	}
	at := t.AsTime()
	if at.Before(earliest) || at.After(latest) {
		return time.Time{}, invalid(field, fmt.Sprintf("%s is not between %s and %s", stamp(at), stamp(earliest), stamp(latest)))
	}
	return at.Truncate(time.Millisecond), nil
}

func duration(field string, d *durationpb.Duration) (time.Duration, error) {
	if err := d.CheckValid(); err != nil {
		return 0, invalid(field, "is not a valid duration; use seconds, such as 15s")
	}
	return d.AsDuration(), nil
}

// time is the instant in UTC.
func (c cursor) time() time.Time { return time.UnixMilli(int64(c)).UTC() }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// cut shortens a text to whole characters, and makes it what protobuf can carry.
func cut(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return s
	}
	s = s[:most]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}
