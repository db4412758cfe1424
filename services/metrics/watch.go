package metrics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
)

// Limits of a watch, as the contract states them.
const (
	minInterval     = time.Second
	maxInterval     = time.Hour
	defaultInterval = 15 * time.Second
	watchMaxSeries  = 100
	watchSeries     = 20
	// maxAhead is by how much a cursor may be in the future: the clock may have been set back.
	maxAhead = time.Minute
)

// errDraining ends watches when the server is about to stop.
var errDraining = fmt.Errorf("server is stopping: %w", ErrClosed)

// watch is a checked request.
type watch struct {
	query    string
	sorted   bool
	interval time.Duration
	series   int
	left     int    // messages still to send; 0: no end
	at       cursor // of the last message sent
}

// WatchMetric implements the contract.
func (s *Server) WatchMetric(req *metricsv1.WatchMetricRequest, stream grpc.ServerStreamingServer[metricsv1.WatchMetricResponse]) error {
	w, err := s.watch(req, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.draining, func() { cancel(errDraining) })()
	if now := time.Now(); w.at.time().Add(w.interval).After(now) {
		// The first instant has not come yet. A query that cannot be evaluated is refused all the same, and a caller whose query is good knows that the stream stands.
		if _, err := s.evaluate(ctx, w, now); err != nil {
			return s.broken(ctx, stream.Context(), err, w.at)
		}
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
	}
	for {
		next := w.at.time().Add(w.interval)
		if err := until(ctx, next); err != nil {
			return s.broken(ctx, stream.Context(), err, w.at)
		}
		// The caller may be slow enough for samples to go meanwhile.
		if err := s.retained(w.at, w.interval); err != nil {
			return err
		}
		answer, err := s.evaluate(ctx, w, next)
		if err != nil {
			return s.broken(ctx, stream.Context(), err, w.at)
		}
		w.at = cursor(next.UnixMilli())
		msg := &metricsv1.WatchMetricResponse{Time: timestamppb.New(next), Cursor: w.at.String(), Warnings: warnings(answer.Warnings)}
		msg.Series, msg.TruncatedSeries = shorten(answer, w.sorted, w.series)
		if err := stream.Send(msg); err != nil {
			return err
		}
		if w.left > 0 {
			if w.left--; w.left == 0 {
				return nil
			}
		}
	}
}

// watch checks a request.
func (s *Server) watch(req *metricsv1.WatchMetricRequest, now time.Time) (w watch, err error) {
	if err := checkText("query", req.GetQuery()); err != nil {
		return w, err
	}
	w.query, w.sorted, w.interval, w.left = req.GetQuery(), shapeOf(req.GetQuery()).sorted, defaultInterval, int(req.GetMaxUpdates())
	if w.left < 0 {
		return w, invalid("max_updates", fmt.Sprintf("%d is negative; use 0 for no end", w.left))
	}
	if w.series, err = count("max_series", req.GetMaxSeries(), watchMaxSeries, watchSeries); err != nil {
		return w, err
	}
	if req.GetInterval() != nil {
		if w.interval, err = duration("interval", req.GetInterval()); err != nil {
			return w, err
		}
		if w.interval < minInterval || w.interval > maxInterval || w.interval%time.Second != 0 {
			return w, invalid("interval", fmt.Sprintf("%s is not whole seconds from %s to %s", w.interval, minInterval, maxInterval))
		}
	}
	if req.GetCursor() == "" {
		// The first instant is now.
		w.at = cursor(now.Add(-w.interval).UnixMilli())
		return w, nil
	}
	if w.at, err = parseCursor(req.GetCursor()); err != nil {
		return w, invalid("cursor", err.Error())
	}
	if w.at.time().After(now.Add(maxAhead)) {
		return w, invalid("cursor", fmt.Sprintf("is of %s, which has not come yet", stamp(w.at.time())))
	}
	return w, s.retained(w.at, w.interval)
}

// retained refuses to go on after an instant if the samples of the next one may be gone.
func (s *Server) retained(at cursor, interval time.Duration) error {
	oldest := s.engine.Oldest()
	if oldest.IsZero() || !at.time().Add(interval).Before(oldest) {
		return nil
	}
	// With time to use it in.
	return gone(cursor(min(oldest.Add(time.Minute).UnixMilli(), time.Now().UnixMilli())))
}

func (s *Server) evaluate(ctx context.Context, w watch, at time.Time) (*Answer, error) {
	if err := checkReach(w.query, 0, s.options.MaxRange); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.QueryTimeout)
	defer cancel()
	answer, err := s.engine.Instant(ctx, w.query, at)
	if err == nil && answer.Matrix {
		err = &QueryError{Text: "gives a range of samples; watch an instant vector, such as rate(x[5m]) rather than x[5m]", Position: -1}
	}
	return answer, err
}

// broken is the status of a stream that ends before the caller wanted it to.
func (s *Server) broken(ctx, caller context.Context, err error, at cursor) error {
	if cause := context.Cause(ctx); errors.Is(cause, errDraining) {
		err = cause
	}
	return withCursor(statusOf(caller, s.options.Logger, "query", err), at)
}

// until waits for an instant.
func until(ctx context.Context, at time.Time) error {
	wait := time.Until(at)
	if wait <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
