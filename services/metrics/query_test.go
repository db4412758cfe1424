package metrics_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
	"github.com/toolway/toolway/services/metrics"
)

// show is a series as text: labels sorted, then the values, to nine digits.
func show(s *metricsv1.Series) string {
	var names []string
	for name, value := range s.Labels {
		names = append(names, name+"="+value)
	}
	slices.Sort(names)
	text := "{" + strings.Join(names, ",") + "}"
	for _, sample := range s.Samples {
		text += fmt.Sprintf(" %.9g", sample.GetValue())
	}
	return text
}

func showAll(all []*metricsv1.Series) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = show(s)
	}
	return out
}

func TestQueryInstant(t *testing.T) {
	tests := []struct {
		query string
		want  []string
	}{
		{`memory_bytes`, []string{"{__name__=memory_bytes,job=shop} 100", "{__name__=memory_bytes,job=cart} 50"}},
		{`sum by (job) (rate(requests_total[5m]))`, []string{"{job=shop} 0.733333333", "{job=cart} 0.315789474"}},
		{`sort(memory_bytes)`, []string{"{__name__=memory_bytes,job=cart} 50", "{__name__=memory_bytes,job=shop} 100"}},
		{`(bottomk(1, memory_bytes))`, []string{"{__name__=memory_bytes,job=cart} 50"}},
		{`topk(2, wide)`, []string{"{__name__=wide,n=1199} 1199", "{__name__=wide,n=1198} 1198"}},
		{`odd`, []string{"{__name__=odd,kind=+Inf} +Inf", "{__name__=odd,kind=-Inf} -Inf", "{__name__=odd,kind=NaN} NaN"}},
		{`histogram_quantile(0.3, rate(latency_seconds_bucket[5m]))`, []string{"{} 0.1"}},
		{`1 + 1`, []string{"{} 2"}},
		{`scalar(count(wide))`, []string{"{} 1200"}},
		{`early`, []string{}},
		{`early @ ` + fmt.Sprint(begin.Unix()+60), []string{"{__name__=early,job=shop} 1"}},
		{`memory_bytes{job="cart"}[31s]`, []string{"{__name__=memory_bytes,job=cart} 50 50"}},
		{`memory_bytes{job=~"c.*"} offset 10m`, []string{"{__name__=memory_bytes,job=cart} 50"}},
		{`requests_total{code!~"2.."}`, []string{"{__name__=requests_total,code=500,job=shop} 120"}},
		{`{__name__=~"memory.*|early",job="shop"}`, []string{"{__name__=memory_bytes,job=shop} 100"}},
		{`absent(nothing{job="x"})`, []string{"{job=x} 1"}},
		{`max_over_time(sum(memory_bytes)[10m:1m])`, []string{"{} 158"}},
		{`label_replace(memory_bytes{job="shop"}, "copy", "$1", "job", "(.*)")`, []string{"{__name__=memory_bytes,copy=shop,job=shop} 100"}},
	}
	onBoth(t, func(t *testing.T, client metricsv1.MetricServiceClient) {
		for _, test := range tests {
			t.Run(test.query, func(t *testing.T) {
				resp, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: test.query, Time: timestamppb.New(mid)})
				if err != nil {
					t.Fatal(err)
				}
				if got := showAll(resp.Series); !slices.Equal(got, test.want) {
					t.Errorf("QueryInstant(%q) = %q, want %q", test.query, got, test.want)
				}
				if resp.TruncatedSeries != 0 || len(resp.Warnings) != 0 {
					t.Errorf("truncated %d, warnings %q, want none", resp.TruncatedSeries, resp.Warnings)
				}
			})
		}
		t.Run("labels that are no UTF-8", func(t *testing.T) {
			resp, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: `label_replace(vector(1), "x", "a\xffb", "", "")`})
			// Engines take it or refuse it.
			if err == nil && resp.Series[0].Labels["x"] != "a\uFFFDb" || err != nil && status.Code(err) != codes.InvalidArgument {
				t.Errorf("= %v, %v, want a series or INVALID_ARGUMENT", resp, err)
			}
			_, err = client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: "sum(é ***"})
			wantViolation(t, err, "query", "")
		})
		t.Run("the instant", func(t *testing.T) {
			resp, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: `memory_bytes`, Time: timestamppb.New(mid)})
			if err != nil {
				t.Fatal(err)
			}
			if got := resp.Series[0].Samples[0].Time.AsTime(); !got.Equal(mid) {
				t.Errorf("time = %v, want %v", got, mid)
			}
		})
		t.Run("as scraped", func(t *testing.T) {
			resp, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: `memory_bytes{job="shop"}[1m]`, Time: timestamppb.New(mid)})
			if err != nil {
				t.Fatal(err)
			}
			samples := resp.Series[0].Samples
			if got, want := samples[len(samples)-1].Time.AsTime(), mid.Add(-7*time.Second); len(samples) != 4 || !got.Equal(want) {
				t.Errorf("%d samples, the last at %v, want 4 until %v", len(samples), got, want)
			}
		})
		t.Run("most series", func(t *testing.T) {
			for ask, want := range map[int32]int{0: 100, 1: 1, 1000: 1000} {
				resp, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: `wide`, Time: timestamppb.New(mid), MaxSeries: ask})
				if err != nil {
					t.Fatal(err)
				}
				if len(resp.Series) != want || resp.TruncatedSeries != int64(wide-want) || resp.Series[0].Labels["n"] != "1199" {
					t.Errorf("max_series %d: %d series from %v, %d more, want %d from the largest value, %d more", ask, len(resp.Series), resp.Series[0], resp.TruncatedSeries, want, wide-want)
				}
			}
		})
	})
}

// A rate of something that is no counter is answered, with a note by engines that notice.
func TestWarnings(t *testing.T) {
	client, _ := start(t, withHistory(t, metrics.EmbeddedOptions{}), metrics.Options{})
	resp, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: `rate(memory_bytes[5m])`, Time: timestamppb.New(mid)})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Warnings) != 1 || !strings.Contains(resp.Warnings[0], "might not be a counter") {
		t.Errorf("warnings = %q, want that it might not be a counter", resp.Warnings)
	}
	resp, err = client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: `memory_bytes`, Time: timestamppb.New(begin.Add(-31 * 24 * time.Hour))})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Warnings) != 1 || !strings.Contains(resp.Warnings[0], "nothing is known from before") {
		t.Errorf("warnings = %q, want that nothing is known", resp.Warnings)
	}
}

func TestQueryRange(t *testing.T) {
	onBoth(t, func(t *testing.T, client metricsv1.MetricServiceClient) {
		query := func(t *testing.T, req *metricsv1.QueryRangeRequest) *metricsv1.QueryRangeResponse {
			t.Helper()
			resp, err := client.QueryRange(within(t), req)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		t.Run("step", func(t *testing.T) {
			resp := query(t, &metricsv1.QueryRangeRequest{
				Query: `sum by (job) (rate(requests_total{job="shop"}[5m]))`, StartTime: timestamppb.New(mid), EndTime: timestamppb.New(mid.Add(5 * time.Minute)), Step: durationpb.New(time.Minute),
			})
			want := []string{"{job=shop}" + strings.Repeat(" 0.733333333", 6)}
			if got := showAll(resp.Series); !slices.Equal(got, want) || resp.Step.AsDuration() != time.Minute {
				t.Errorf("= %q, step %v, want %q, 1m", got, resp.Step.AsDuration(), want)
			}
			for i, s := range resp.Series[0].Samples {
				if want := mid.Add(time.Duration(i) * time.Minute); !s.Time.AsTime().Equal(want) {
					t.Errorf("point %d at %v, want %v", i, s.Time.AsTime(), want)
				}
			}
		})
		for _, test := range []struct {
			points int32
			span   time.Duration
			step   time.Duration
			count  int
		}{
			{0, 30 * time.Minute, 16 * time.Second, 113},
			{1, 30 * time.Minute, time.Second, 1},
			{2, 30 * time.Minute, 30 * time.Minute, 2},
			{61, 30 * time.Minute, 30 * time.Second, 61},
			{11000, 30 * time.Minute, time.Second, 1801},
			{120, 0, time.Second, 1},
		} {
			t.Run(fmt.Sprintf("%d points over %s", test.points, test.span), func(t *testing.T) {
				from := mid.Add(-test.span)
				resp := query(t, &metricsv1.QueryRangeRequest{Query: `memory_bytes{job="cart"}`, StartTime: timestamppb.New(from), EndTime: timestamppb.New(mid), MaxPoints: test.points})
				samples := resp.Series[0].Samples
				if last := samples[len(samples)-1].Time.AsTime(); len(samples) != test.count || resp.Step.AsDuration() != test.step || !last.Equal(mid) {
					t.Errorf("%d points until %v with step %v, want %d until the end with %v", len(samples), last, resp.Step.AsDuration(), test.count, test.step)
				}
			})
		}
		t.Run("a series that ends", func(t *testing.T) {
			resp := query(t, &metricsv1.QueryRangeRequest{Query: `early`, StartTime: timestamppb.New(begin.Add(time.Second)), EndTime: timestamppb.New(end), Step: durationpb.New(5 * time.Minute)})
			if got, want := showAll(resp.Series), []string{"{__name__=early,job=shop} 1 1 1"}; !slices.Equal(got, want) {
				t.Errorf("= %q, want %q", got, want)
			}
		})
		t.Run("largest last value first", func(t *testing.T) {
			resp := query(t, &metricsv1.QueryRangeRequest{Query: `sort(requests_total)`, StartTime: timestamppb.New(begin), EndTime: timestamppb.New(mid), Step: durationpb.New(30 * time.Minute), MaxSeries: 2})
			// cart, which ends at 0, has the larger first value of the others.
			want := []string{"{__name__=requests_total,code=200,job=shop} 0 1200", "{__name__=requests_total,code=500,job=shop} 0 120"}
			if got := showAll(resp.Series); !slices.Equal(got, want) || resp.TruncatedSeries != 1 {
				t.Errorf("= %q, %d more, want %q, 1 more", got, resp.TruncatedSeries, want)
			}
		})
		t.Run("what lies between points", func(t *testing.T) {
			resp := query(t, &metricsv1.QueryRangeRequest{Query: `rate(requests_total[1m])`, StartTime: timestamppb.New(begin), EndTime: timestamppb.New(end), MaxPoints: 10})
			if !slices.ContainsFunc(resp.Warnings, func(w string) bool { return strings.Contains(w, "looks back only 1m0s") }) {
				t.Errorf("warnings = %q, want that the query looks back too little", resp.Warnings)
			}
			resp = query(t, &metricsv1.QueryRangeRequest{Query: `rate(requests_total[10m])`, StartTime: timestamppb.New(begin), EndTime: timestamppb.New(end), MaxPoints: 10})
			if len(resp.Warnings) != 0 {
				t.Errorf("warnings = %q, want none", resp.Warnings)
			}
		})
		t.Run("too long for a message", func(t *testing.T) {
			resp := query(t, &metricsv1.QueryRangeRequest{Query: `wide`, StartTime: timestamppb.New(mid), EndTime: timestamppb.New(mid.Add(140 * time.Second)), Step: durationpb.New(time.Second), MaxPoints: 200, MaxSeries: 1000})
			if n := len(resp.Series); n < 100 || n >= 1000 || int64(n)+resp.TruncatedSeries != wide {
				t.Errorf("%d series, %d more, want what is in 2 MiB, and the rest counted", n, resp.TruncatedSeries)
			}
		})
		t.Run("default range", func(t *testing.T) {
			resp := query(t, &metricsv1.QueryRangeRequest{Query: `vector(1)`})
			samples := resp.Series[0].Samples
			if span := samples[len(samples)-1].Time.AsTime().Sub(samples[0].Time.AsTime()); len(samples) > 120 || span < 59*time.Minute || span > time.Hour {
				t.Errorf("%d points over %v, want at most 120 over the last hour", len(samples), span)
			}
		})
	})
}

func TestListSeries(t *testing.T) {
	onBoth(t, func(t *testing.T, client metricsv1.MetricServiceClient) {
		t.Run("selectors", func(t *testing.T) {
			for selector, want := range map[string][]string{
				`memory_bytes`:                           {"{__name__=memory_bytes,job=cart}", "{__name__=memory_bytes,job=shop}"},
				`{job="cart"}`:                           {"{__name__=memory_bytes,job=cart}", "{__name__=requests_total,code=200,job=cart}"},
				`{__name__=~"pair.*",y=""}`:              {"{__name__=pair_left,a=1,x=1}", "{__name__=pair_left,a=1,x=2}"},
				`{job=~".+",code="500"}`:                 {"{__name__=requests_total,code=500,job=shop}"},
				`nothing`:                                {},
				`memory_bytes{job!="cart",job!~"sho.?"}`: {},
			} {
				resp, err := client.ListSeries(within(t), &metricsv1.ListSeriesRequest{Selector: selector, StartTime: timestamppb.New(begin)})
				if err != nil {
					t.Fatal(err)
				}
				if got := showAll(resp.Series); !slices.Equal(got, want) || resp.NextPageToken != "" {
					t.Errorf("ListSeries(%q) = %q, want %q", selector, got, want)
				}
			}
		})
		t.Run("since", func(t *testing.T) {
			for since, want := range map[time.Time]int{begin: 1, begin.Add(5 * time.Minute): 1, begin.Add(11 * time.Minute): 0} {
				resp, err := client.ListSeries(within(t), &metricsv1.ListSeriesRequest{Selector: `early`, StartTime: timestamppb.New(since)})
				if err != nil {
					t.Fatal(err)
				}
				if len(resp.Series) != want {
					t.Errorf("since %v: %d series, want %d", since, len(resp.Series), want)
				}
			}
		})
		for _, size := range []int32{0, 7, 599, 600, 1000} {
			t.Run(fmt.Sprintf("pages of %d", size), func(t *testing.T) {
				var got []string
				req := &metricsv1.ListSeriesRequest{Selector: `wide`, StartTime: timestamppb.New(begin), PageSize: size}
				for {
					resp, err := client.ListSeries(within(t), req)
					if err != nil {
						t.Fatal(err)
					}
					for _, s := range resp.Series {
						got = append(got, s.Labels["n"])
					}
					if req.PageToken = resp.NextPageToken; req.PageToken == "" {
						break
					}
					if size > 0 && len(resp.Series) != int(size) {
						t.Fatalf("page of %d, want %d", len(resp.Series), size)
					}
				}
				if len(got) != wide || !slices.IsSorted(got) || len(slices.Compact(got)) != wide {
					t.Errorf("%d series, want %d, each once and in order", len(got), wide)
				}
			})
		}
	})
}

// Bad requests get INVALID_ARGUMENT with the field, the same by each driver, and bad queries the byte.
func TestRefuses(t *testing.T) {
	now := time.Now()
	queries := []struct {
		query  string
		byte   string
		reason string
	}{
		{`rate(requests_total[5m]`, "23", "QUERY_SYNTAX"},
		{"sum(\n  memory_bytes\n) by by", "25", "QUERY_SYNTAX"},
		{`memory_bytes{job=}`, "17", "QUERY_SYNTAX"},
		{`unknown_function(x)`, "0", "QUERY_SYNTAX"},
		{`rate(memory_bytes)`, "5", "QUERY_SYNTAX"},
		{`memory_bytes{job=~"["}`, "13", "QUERY_SYNTAX"},
		{`{}`, "0", "QUERY_SYNTAX"},
		{`{job=~".*"}`, "0", "QUERY_SYNTAX"},
		{`pair_left * on (a) pair_right`, "", "QUERY_FAILED"},
		{`"text"`, "", "QUERY_SYNTAX"},
	}
	long := strings.Repeat("1+", 2048) + "1"
	onBoth(t, func(t *testing.T, client metricsv1.MetricServiceClient) {
		for _, test := range queries {
			t.Run(test.query, func(t *testing.T) {
				_, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: test.query, Time: timestamppb.New(mid)})
				text := ""
				if test.byte != "" {
					text = "(at byte " + test.byte + ")"
				}
				wantViolation(t, err, "query", text)
				if got := wantInfo(t, err, test.reason)["byte"]; got != test.byte {
					t.Errorf("byte = %q, want %q (%v)", got, test.byte, err)
				}
				bad, _ := detail[*errdetails.BadRequest](err)
				if d := bad.FieldViolations[0].Description; strings.Contains(d, "parse error") || strings.Contains(d, "invalid parameter") {
					t.Errorf("description %q repeats what the field and the reason say", d)
				}
			})
		}
		for _, test := range []struct {
			name  string
			call  func() error
			field string
			text  string
		}{
			{"empty", func() error {
				_, err := client.QueryInstant(t.Context(), &metricsv1.QueryInstantRequest{Query: " \n"})
				return err
			}, "query", "is empty"},
			{"long", func() error {
				_, err := client.QueryInstant(t.Context(), &metricsv1.QueryInstantRequest{Query: long})
				return err
			}, "query", "4097 bytes"},
			{"series", func() error {
				_, err := client.QueryInstant(t.Context(), &metricsv1.QueryInstantRequest{Query: "up", MaxSeries: 1001})
				return err
			}, "max_series", "0 to 1000"},
			{"fewer than none", func() error {
				_, err := client.QueryInstant(t.Context(), &metricsv1.QueryInstantRequest{Query: "up", MaxSeries: -1})
				return err
			}, "max_series", "0 to 1000"},
			{"broken time", func() error {
				_, err := client.QueryInstant(t.Context(), &metricsv1.QueryInstantRequest{Query: "up", Time: &timestamppb.Timestamp{Nanos: -1}})
				return err
			}, "time", "RFC 3339"},
			{"year 9999", func() error {
				_, err := client.QueryInstant(t.Context(), &metricsv1.QueryInstantRequest{Query: "up", Time: timestamppb.New(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))})
				return err
			}, "time", "not between"},
			{"range vector over a range", func() error {
				_, err := client.QueryRange(t.Context(), &metricsv1.QueryRangeRequest{Query: "up[5m]"})
				return err
			}, "query", "invalid expression type"},
			{"end before start", func() error {
				_, err := client.QueryRange(t.Context(), &metricsv1.QueryRangeRequest{Query: "up", StartTime: timestamppb.New(now), EndTime: timestamppb.New(now.Add(-time.Minute))})
				return err
			}, "end_time", "swap"},
			{"range", func() error {
				_, err := client.QueryRange(t.Context(), &metricsv1.QueryRangeRequest{Query: "up", StartTime: timestamppb.New(now.Add(-32 * 24 * time.Hour))})
				return err
			}, "start_time", "query in parts"},
			{"step", func() error {
				_, err := client.QueryRange(t.Context(), &metricsv1.QueryRangeRequest{Query: "up", Step: durationpb.New(time.Millisecond)})
				return err
			}, "step", "less than 1s"},
			{"step of nothing", func() error {
				_, err := client.QueryRange(t.Context(), &metricsv1.QueryRangeRequest{Query: "up", Step: &durationpb.Duration{Seconds: 1, Nanos: -1}})
				return err
			}, "step", "valid duration"},
			{"points by step", func() error {
				_, err := client.QueryRange(t.Context(), &metricsv1.QueryRangeRequest{Query: "up", Step: durationpb.New(time.Second)})
				return err
			}, "step", "3601 points a series, more than max_points, 120; use 31s or more"},
			{"points", func() error {
				_, err := client.QueryRange(t.Context(), &metricsv1.QueryRangeRequest{Query: "up", MaxPoints: 11001})
				return err
			}, "max_points", "0 to 11000"},
			{"page", func() error {
				_, err := client.ListSeries(t.Context(), &metricsv1.ListSeriesRequest{Selector: "up", PageSize: 1001})
				return err
			}, "page_size", "0 to 1000"},
			{"page token", func() error {
				_, err := client.ListSeries(t.Context(), &metricsv1.ListSeriesRequest{Selector: "up", PageToken: "nonsense"})
				return err
			}, "page_token", "next_page_token"},
			{"selector", func() error {
				_, err := client.ListSeries(t.Context(), &metricsv1.ListSeriesRequest{Selector: "up{"})
				return err
			}, "selector", "at byte 3"},
			{"no selector", func() error {
				_, err := client.ListSeries(t.Context(), &metricsv1.ListSeriesRequest{Selector: "1 + 1"})
				return err
			}, "selector", ""},
			{"start in the future", func() error {
				_, err := client.ListSeries(t.Context(), &metricsv1.ListSeriesRequest{Selector: "up", StartTime: timestamppb.New(now.Add(time.Hour))})
				return err
			}, "start_time", "future"},
			{"start long ago", func() error {
				_, err := client.ListSeries(t.Context(), &metricsv1.ListSeriesRequest{Selector: "up", StartTime: timestamppb.New(now.Add(-40 * 24 * time.Hour))})
				return err
			}, "start_time", "the oldest that works"},
		} {
			t.Run(test.name, func(t *testing.T) { wantViolation(t, test.call(), test.field, test.text) })
		}
		t.Run("page token of another request", func(t *testing.T) {
			first, err := client.ListSeries(within(t), &metricsv1.ListSeriesRequest{Selector: "wide", StartTime: timestamppb.New(begin), PageSize: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, req := range []*metricsv1.ListSeriesRequest{
				{Selector: "early", StartTime: timestamppb.New(begin), PageToken: first.NextPageToken},
				{Selector: "wide", PageToken: first.NextPageToken},
			} {
				_, err = client.ListSeries(within(t), req)
				wantViolation(t, err, "page_token", "another request")
			}
		})
	})
}

// A query that needs too much is refused as such. Both engines may hold five million samples.
func TestTooLarge(t *testing.T) {
	onBoth(t, func(t *testing.T, client metricsv1.MetricServiceClient) {
		_, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: `sum_over_time(vector(1)[60d:1s])`, Time: timestamppb.New(mid)})
		wantCode(t, err, codes.ResourceExhausted)
		wantInfo(t, err, "QUERY_TOO_LARGE")
	})
	// The engine's books alone would take gigabytes for some of these.
	t.Run("reach", func(t *testing.T) {
		client, _ := start(t, withHistory(t, metrics.EmbeddedOptions{}), metrics.Options{})
		for _, query := range []string{
			`count_over_time(up[31d:1ms])`, `sum(sum_over_time(up[31d:1s]))`, `vector(1)[10000d:1s]`, `up[400d]`, `max_over_time(max_over_time(up[1d:1m])[20d:10s])`,
			`max_over_time(max_over_time(up[5m:1s])[30d:1m])`, `sum_over_time(up[2d:])`,
		} {
			_, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: query})
			wantCode(t, err, codes.ResourceExhausted)
			wantInfo(t, err, "QUERY_TOO_LARGE")
			_, err = client.QueryRange(within(t), &metricsv1.QueryRangeRequest{Query: query})
			wantCode(t, err, codes.ResourceExhausted)
			stream, err := client.WatchMetric(within(t), &metricsv1.WatchMetricRequest{Query: query})
			if err == nil {
				_, err = stream.Recv()
			}
			wantCode(t, err, codes.ResourceExhausted)
		}
		_, err := client.QueryRange(within(t), &metricsv1.QueryRangeRequest{Query: `max_over_time(up[1h:1s])`, StartTime: timestamppb.New(mid.Add(-24 * time.Hour)), EndTime: timestamppb.New(mid), MaxPoints: 10})
		if err != nil {
			t.Errorf("an hour's subquery over a day: %v", err)
		}
		_, err = client.QueryRange(within(t), &metricsv1.QueryRangeRequest{Query: `max_over_time(up[1h:1s])`, StartTime: timestamppb.New(mid.Add(-30 * 24 * time.Hour)), EndTime: timestamppb.New(mid), MaxPoints: 10})
		wantCode(t, err, codes.ResourceExhausted) // the subquery is evaluated over the whole month
	})
	t.Run("reads", func(t *testing.T) {
		client, _ := start(t, withHistory(t, metrics.EmbeddedOptions{QueryReads: 100}), metrics.Options{})
		_, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: `sum_over_time(memory_bytes[1h])`, Time: timestamppb.New(mid)})
		wantCode(t, err, codes.ResourceExhausted)
		wantInfo(t, err, "QUERY_TOO_LARGE")
	})
	t.Run("series", func(t *testing.T) {
		client, _ := start(t, withHistory(t, metrics.EmbeddedOptions{QuerySeries: wide - 1}), metrics.Options{})
		_, err := client.QueryInstant(within(t), &metricsv1.QueryInstantRequest{Query: `sum(wide)`, Time: timestamppb.New(mid)})
		wantCode(t, err, codes.ResourceExhausted)
		wantInfo(t, err, "QUERY_TOO_LARGE")
	})
}

func TestShape(t *testing.T) {
	tests := []struct {
		query  string
		sorted bool
		window time.Duration
	}{
		{"up", false, 0},
		{"sort_desc(up)", true, 0},
		{"((topk(3, up)))", true, 0},
		{"sum(topk(3, up))", false, 0},
		{"rate(a[5m]) / rate(b[1m])", false, time.Minute},
		{"max_over_time(rate(a[1h])[2h:1m])", false, time.Hour},
		{"not ( promql", false, 0},
	}
	for _, test := range tests {
		if sorted, window := metrics.ShapeOf(test.query); sorted != test.sorted || window != test.window {
			t.Errorf("shapeOf(%q) = %v %v, want %v %v", test.query, sorted, window, test.sorted, test.window)
		}
	}
}
