package metrics_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
	"github.com/toolway/toolway/services/metrics"
)

// ended receives until the stream ends.
func ended(stream grpc.ServerStreamingClient[metricsv1.WatchMetricResponse]) (got []*metricsv1.WatchMetricResponse, err error) {
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, msg)
	}
}

func watch(t *testing.T, client metricsv1.MetricServiceClient, req *metricsv1.WatchMetricRequest) ([]*metricsv1.WatchMetricResponse, error) {
	t.Helper()
	stream, err := client.WatchMetric(within(t), req)
	if err != nil {
		t.Fatal(err)
	}
	return ended(stream)
}

// A watch over the past, taken up at the cursor after each break, gives every instant once, with the values of that instant.
func TestWatchResumes(t *testing.T) {
	onBoth(t, func(t *testing.T, client metricsv1.MetricServiceClient) {
		const query, step = `sum(requests_total{job="shop"})`, 15 * time.Second
		// Instants fall on scrapes: i*11 at the i-th.
		cursor := metrics.CursorAt(begin)
		var got []float64
		for _, n := range []int32{1, 5, 2, 20} {
			msgs, err := watch(t, client, &metricsv1.WatchMetricRequest{Query: query, Interval: durationpb.New(step), Cursor: cursor, MaxUpdates: n})
			if err != nil || len(msgs) != int(n) {
				t.Fatalf("%d messages, %v, want %d", len(msgs), err, n)
			}
			for _, msg := range msgs {
				want := begin.Add(time.Duration(len(got)+1) * step)
				if at := msg.Time.AsTime(); !at.Equal(want) || len(msg.Series) != 1 || !msg.Series[0].Samples[0].Time.AsTime().Equal(want) {
					t.Fatalf("message %d = %v, want one series at %v", len(got), msg, want)
				}
				got = append(got, msg.Series[0].Samples[0].GetValue())
				cursor = msg.Cursor
			}
		}
		var want []float64
		for i := range got {
			want = append(want, float64((i+1)*11))
		}
		if !slices.Equal(got, want) {
			t.Errorf("values = %v, want %v", got, want)
		}
		// A caller that breaks off while messages are on their way goes on at the last one it kept.
		ctx, cancel := context.WithCancel(within(t))
		stream, err := client.WatchMetric(ctx, &metricsv1.WatchMetricRequest{Query: query, Interval: durationpb.New(step), Cursor: metrics.CursorAt(begin)})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			msg, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			cursor = msg.Cursor
		}
		cancel()
		if _, err := ended(stream); status.Code(err) != codes.Canceled {
			t.Errorf("after the cancel = %v", err)
		}
		msgs, err := watch(t, client, &metricsv1.WatchMetricRequest{Query: query, Interval: durationpb.New(step), Cursor: cursor, MaxUpdates: 1})
		if err != nil || !msgs[0].Time.AsTime().Equal(begin.Add(4*step)) {
			t.Errorf("after the break = %v, %v, want the fourth instant", msgs, err)
		}
	})
}

// Without a cursor the first instant is now; each message has the next one, also where nothing matches.
func TestWatchLive(t *testing.T) {
	onBoth(t, func(t *testing.T, client metricsv1.MetricServiceClient) {
		before := time.Now().Truncate(time.Millisecond)
		msgs, err := watch(t, client, &metricsv1.WatchMetricRequest{Query: `nothing or vector(time()) > 1e12`, Interval: durationpb.New(time.Second), MaxUpdates: 3})
		if err != nil || len(msgs) != 3 {
			t.Fatalf("%v, %v, want three messages", msgs, err)
		}
		for i, msg := range msgs {
			if len(msg.Series) != 0 || msg.Cursor == "" || i > 0 && msg.Time.AsTime().Sub(msgs[i-1].Time.AsTime()) != time.Second {
				t.Errorf("message %d = %v, want no series, one second after the one before", i, msg)
			}
		}
		if first := msgs[0].Time.AsTime(); first.Before(before) || time.Now().Before(msgs[2].Time.AsTime()) {
			t.Errorf("from %v to %v, want what is now", first, msgs[2].Time.AsTime())
		}
	})
}

func TestWatchMostSeries(t *testing.T) {
	onBoth(t, func(t *testing.T, client metricsv1.MetricServiceClient) {
		for ask, want := range map[int32]int{0: 20, 3: 3, 100: 100} {
			msgs, err := watch(t, client, &metricsv1.WatchMetricRequest{Query: `wide`, Cursor: metrics.CursorAt(mid), MaxSeries: ask, MaxUpdates: 1})
			if err != nil || len(msgs[0].Series) != want || msgs[0].TruncatedSeries != int64(wide-want) || msgs[0].Series[0].Labels["n"] != "1199" {
				t.Errorf("max_series %d: %v, %v, want %d series from the largest", ask, msgs, err, want)
			}
		}
	})
}

func TestWatchRefuses(t *testing.T) {
	onBoth(t, func(t *testing.T, client metricsv1.MetricServiceClient) {
		tests := []struct {
			name  string
			req   *metricsv1.WatchMetricRequest
			field string
			text  string
		}{
			{"query", &metricsv1.WatchMetricRequest{Query: "sum("}, "query", "at byte"},
			{"query with a cursor", &metricsv1.WatchMetricRequest{Query: "sum(", Cursor: metrics.CursorAt(mid)}, "query", "at byte"},
			{"query before the first instant", &metricsv1.WatchMetricRequest{Query: "sum(", Cursor: metrics.CursorAt(time.Now().Add(10 * time.Second))}, "query", "at byte"},
			{"range vector", &metricsv1.WatchMetricRequest{Query: "memory_bytes[5m]", Cursor: metrics.CursorAt(mid)}, "query", "instant vector"},
			{"no query", &metricsv1.WatchMetricRequest{}, "query", "is empty"},
			{"interval", &metricsv1.WatchMetricRequest{Query: "up", Interval: durationpb.New(time.Millisecond)}, "interval", "1s to 1h"},
			{"odd interval", &metricsv1.WatchMetricRequest{Query: "up", Interval: durationpb.New(1500 * time.Millisecond)}, "interval", "whole seconds"},
			{"long interval", &metricsv1.WatchMetricRequest{Query: "up", Interval: durationpb.New(2 * time.Hour)}, "interval", "1s to 1h"},
			{"cursor", &metricsv1.WatchMetricRequest{Query: "up", Cursor: "Y29uZmlkZW50"}, "cursor", "not a cursor"},
			{"cursor of the future", &metricsv1.WatchMetricRequest{Query: "up", Cursor: metrics.CursorAt(time.Now().Add(time.Hour))}, "cursor", "not come yet"},
			{"series", &metricsv1.WatchMetricRequest{Query: "up", MaxSeries: 101}, "max_series", "0 to 100"},
			{"updates", &metricsv1.WatchMetricRequest{Query: "up", MaxUpdates: -1}, "max_updates", "negative"},
		}
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				msgs, err := watch(t, client, test.req)
				if len(msgs) != 0 {
					t.Errorf("messages %v before the refusal", msgs)
				}
				wantViolation(t, err, test.field, test.text)
			})
		}
	})
}

// A cursor from before what is retained is OUT_OF_RANGE, with one that works.
func TestWatchOutOfRange(t *testing.T) {
	onBoth(t, func(t *testing.T, client metricsv1.MetricServiceClient) {
		req := &metricsv1.WatchMetricRequest{Query: `vector(1)`, Cursor: metrics.CursorAt(time.Now().Add(-31 * 24 * time.Hour)), MaxUpdates: 1}
		_, err := watch(t, client, req)
		wantCode(t, err, codes.OutOfRange)
		req.Cursor = wantInfo(t, err, "CURSOR_OUT_OF_RANGE")["oldest_cursor"]
		if msgs, err := watch(t, client, req); err != nil || len(msgs) != 1 {
			t.Errorf("from oldest_cursor = %v, %v, want a message", msgs, err)
		}
	})
	t.Run("a new store", func(t *testing.T) {
		client, _ := start(t, openEmbedded(t, metrics.EmbeddedOptions{}), metrics.Options{})
		req := &metricsv1.WatchMetricRequest{Query: `vector(1)`, Interval: durationpb.New(time.Second), Cursor: metrics.CursorAt(time.Now().Add(-time.Minute)), MaxUpdates: 1}
		_, err := watch(t, client, req)
		wantCode(t, err, codes.OutOfRange)
		req.Cursor = wantInfo(t, err, "CURSOR_OUT_OF_RANGE")["oldest_cursor"]
		if msgs, err := watch(t, client, req); err != nil || len(msgs) != 1 {
			t.Errorf("from oldest_cursor = %v, %v, want a message", msgs, err)
		}
	})
}

// A service that stops says where to go on at once; one whose engine is closed, at the next instant. Nothing is lost or repeated over the break.
func TestWatchDrains(t *testing.T) {
	tests := []struct {
		name     string
		interval time.Duration
		stop     func(*metrics.Server, *metrics.Embedded) error
	}{
		{"drain", time.Hour, func(s *metrics.Server, _ *metrics.Embedded) error { s.Drain(); return nil }},
		{"close", time.Second, func(_ *metrics.Server, e *metrics.Embedded) error { return e.Close() }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			engine := withHistory(t, metrics.EmbeddedOptions{})
			client, service := start(t, engine, metrics.Options{})
			stream, err := client.WatchMetric(within(t), &metricsv1.WatchMetricRequest{Query: `vector(1)`, Interval: durationpb.New(test.interval)})
			if err != nil {
				t.Fatal(err)
			}
			first, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if err := test.stop(service, engine); err != nil {
				t.Fatal(err)
			}
			more, err := ended(stream)
			wantCode(t, err, codes.Unavailable)
			last := append([]*metricsv1.WatchMetricResponse{first}, more...)[len(more)]
			if cursor := wantInfo(t, err, "ENGINE_UNAVAILABLE")["cursor"]; cursor != last.Cursor {
				t.Errorf("cursor = %q, want that of the last message, %q", cursor, last.Cursor)
			}
			if _, ok := detail[*errdetails.RetryInfo](err); !ok {
				t.Errorf("no RetryInfo in %v", err)
			}
		})
	}
}

// A deadline that passes at the service says where to go on; here an interceptor sets it, as a mesh in front would.
func TestWatchDeadline(t *testing.T) {
	short := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, cancel := context.WithTimeout(stream.Context(), 500*time.Millisecond)
		defer cancel()
		return next(srv, bounded{stream, ctx})
	}
	client, _ := start(t, withHistory(t, metrics.EmbeddedOptions{}), metrics.Options{}, grpc.StreamInterceptor(short))
	msgs, err := watch(t, client, &metricsv1.WatchMetricRequest{Query: `vector(1)`, Interval: durationpb.New(time.Hour), Cursor: metrics.CursorAt(begin)})
	wantCode(t, err, codes.DeadlineExceeded)
	cursor, err := metrics.CursorTime(wantInfo(t, err, "WATCH_INTERRUPTED")["cursor"])
	if err != nil {
		t.Fatal(err)
	}
	// However far it came: the cursor is that of the last message sent, or the one that the caller came with.
	if want := begin.Add(time.Duration(len(msgs)) * time.Hour); !cursor.Equal(want) {
		t.Errorf("cursor = %v after %d messages, want %v", cursor, len(msgs), want)
	}
}

// bounded is a stream with another context.
type bounded struct {
	grpc.ServerStream
	ctx context.Context
}

func (b bounded) Context() context.Context { return b.ctx }

// The header comes before the first message where that is not due yet.
func TestWatchHeader(t *testing.T) {
	client, _ := start(t, withHistory(t, metrics.EmbeddedOptions{}), metrics.Options{})
	ctx, cancel := context.WithCancel(within(t))
	stream, err := client.WatchMetric(ctx, &metricsv1.WatchMetricRequest{Query: `vector(1)`, Interval: durationpb.New(time.Hour), Cursor: metrics.CursorAt(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := ended(stream); status.Code(err) != codes.Canceled {
		t.Errorf("= %v, want CANCELLED", err)
	}
}
