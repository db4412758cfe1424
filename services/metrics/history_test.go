package metrics_test

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// The history is an hour of samples, every 15 s from begin to end, in the recent past.
var (
	begin = time.Now().Add(-6 * time.Hour).Truncate(time.Hour)
	end   = begin.Add(time.Hour)
	// mid is an instant between two scrapes, half an hour in: versions of Prometheus differ on samples at the edge of a range.
	mid = begin.Add(30*time.Minute + 7*time.Second)
)

// wide is how many series the metric "wide" has, each with one value at mid: its number.
const wide = 1200

// historyText is the history in OpenMetrics:
//
//	requests_total{job, code}  shop 200: 10 a scrape; shop 500: 1 a scrape; cart 200: 5 a scrape, from 0 again after half an hour
//	memory_bytes{job}          shop: 100 to 109 and again; cart: 50
//	odd{kind}                  NaN, +Inf and -Inf
//	early{job}                 only in the first ten minutes
//	pair_left{a,x}, pair_right{a,y}: two of each for one a
//	latency_seconds            a classic histogram
//	wide{n}                    many series
var historyText = sync.OnceValue(func() string {
	var b strings.Builder
	each := func(f func(i int, at int64)) {
		for i := range 241 {
			f(i, begin.Unix()+int64(i)*15)
		}
	}
	b.WriteString("# TYPE requests counter\n")
	each(func(i int, at int64) { fmt.Fprintf(&b, "requests_total{job=\"shop\",code=\"200\"} %d %d\n", i*10, at) })
	each(func(i int, at int64) { fmt.Fprintf(&b, "requests_total{job=\"shop\",code=\"500\"} %d %d\n", i, at) })
	each(func(i int, at int64) {
		fmt.Fprintf(&b, "requests_total{job=\"cart\",code=\"200\"} %d %d\n", i%120*5, at)
	})
	b.WriteString("# TYPE memory_bytes gauge\n")
	each(func(i int, at int64) { fmt.Fprintf(&b, "memory_bytes{job=\"shop\"} %d %d\n", 100+i%10, at) })
	each(func(i int, at int64) { fmt.Fprintf(&b, "memory_bytes{job=\"cart\"} 50 %d\n", at) })
	b.WriteString("# TYPE odd gauge\n")
	for _, kind := range []string{"NaN", "+Inf", "-Inf"} {
		each(func(_ int, at int64) { fmt.Fprintf(&b, "odd{kind=\"%s\"} %s %d\n", kind, kind, at) })
	}
	b.WriteString("# TYPE early gauge\n")
	each(func(i int, at int64) {
		if i <= 40 {
			fmt.Fprintf(&b, "early{job=\"shop\"} 1 %d\n", at)
		}
	})
	b.WriteString("# TYPE pair_left gauge\n")
	for _, x := range []string{"1", "2"} {
		each(func(_ int, at int64) { fmt.Fprintf(&b, "pair_left{a=\"1\",x=\"%s\"} 1 %d\n", x, at) })
	}
	b.WriteString("# TYPE pair_right gauge\n")
	for _, y := range []string{"1", "2"} {
		each(func(_ int, at int64) { fmt.Fprintf(&b, "pair_right{a=\"1\",y=\"%s\"} 1 %d\n", y, at) })
	}
	b.WriteString("# TYPE latency_seconds histogram\n")
	each(func(i int, at int64) {
		fmt.Fprintf(&b, "latency_seconds_bucket{le=\"0.1\"} %d %d\n", i*3, at)
		fmt.Fprintf(&b, "latency_seconds_bucket{le=\"1.0\"} %d %d\n", i*9, at)
		fmt.Fprintf(&b, "latency_seconds_bucket{le=\"+Inf\"} %d %d\n", i*10, at)
		fmt.Fprintf(&b, "latency_seconds_sum %d %d\n", i*4, at)
		fmt.Fprintf(&b, "latency_seconds_count %d %d\n", i*10, at)
	})
	b.WriteString("# TYPE wide gauge\n")
	for n := range wide {
		fmt.Fprintf(&b, "wide{n=\"%04d\"} %d %d\n", n, n, mid.Unix()-7)
	}
	b.WriteString("# EOF\n")
	return b.String()
})
