package workloads

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
)

const (
	publishBatch = 64
	// publishRetry and publishRetryMost are the pauses after a delivery that failed: the first one, and the longest.
	publishRetry, publishRetryMost = 200 * time.Millisecond, 30 * time.Second
)

// Publisher takes events elsewhere. It gets each at least once, in their order; which ones it has had is told by the message's cursor, which is the event's id.
type Publisher interface {
	// Publish returns nil when the event is taken for good. After an error the same event comes again.
	Publish(ctx context.Context, e Event) error
}

// Publish delivers the outbox to p from where it was left, until ctx ends. What p did not take within [Options.Retention] it misses, which is logged. How far it has come is kept under the name, after each event: a crash in between delivers that event again.
func (s *Server) Publish(ctx context.Context, name string, p Publisher) error {
	wait := publishRetry
	for ctx.Err() == nil {
		changed := s.store.Changed()
		n, err := s.publish(ctx, name, p)
		switch {
		case err != nil && ctx.Err() == nil:
			s.options.Logger.LogAttrs(ctx, slog.LevelWarn, "event not delivered; trying again", slog.String("publisher", name), slog.Any("error", err), slog.Duration("retry_in", wait))
			sleep(ctx, wait, nil)
			wait = min(2*wait, publishRetryMost)
		case n == publishBatch:
		default:
			wait = publishRetry
			sleep(ctx, watchPoll, changed)
		}
	}
	return nil
}

func (s *Server) publish(ctx context.Context, name string, p Publisher) (int, error) {
	at, err := s.store.delivered(ctx, name)
	if err != nil {
		return 0, err
	}
	events, err := s.store.events(ctx, "", at, publishBatch)
	if errors.Is(err, errPruned) {
		pruned, _, err := s.store.bounds(ctx)
		if err != nil {
			return 0, err
		}
		s.options.Logger.LogAttrs(ctx, slog.LevelError, "events were past the retention before they could be delivered", slog.String("publisher", name), slog.Int64("events", pruned-at))
		return publishBatch, s.store.deliver(ctx, name, pruned)
	}
	if err != nil {
		return 0, err
	}
	for _, e := range events {
		if err := p.Publish(ctx, e); err != nil {
			return 0, err
		}
		if err := s.store.deliver(ctx, name, e.Sequence); err != nil {
			return 0, err
		}
	}
	return len(events), nil
}

// sleep waits for a time, for ctx to end or for changed to be closed.
func sleep(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-changed:
	}
}

// Webhook posts each event as ProtoJSON of WatchWorkloadResponse. The header Event-Id has its id. Any status of 2xx takes it.
type Webhook struct {
	// URL is where to post.
	URL string
	// Client posts. Default: one with a timeout of 10 s.
	Client *http.Client
}

// Publish implements [Publisher].
func (w *Webhook) Publish(ctx context.Context, e Event) error {
	body, err := protojson.Marshal(e.Message)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Event-Id", e.Message.GetCursor())
	resp, err := cmp.Or(w.Client, defaultClient).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)); err != nil {
		return err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("%s answers %s", w.URL, resp.Status)
	}
	return nil
}

var defaultClient = &http.Client{Timeout: 10 * time.Second}
