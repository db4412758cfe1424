package interceptors

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
)

// TestRetryMatrix decides each row of retry_matrix.csv.
func TestRetryMatrix(t *testing.T) {
	f, err := os.Open("retry_matrix.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r := csv.NewReader(f)
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 50 {
		t.Fatalf("only %d rows", len(rows))
	}
	for i, row := range rows[1:] {
		in := map[string]string{}
		for j, name := range rows[0] {
			in[name] = row[j]
		}
		t.Run(fmt.Sprintf("%02d %s %s %s", i+1, in["outcome"], in["code"], in["method"]), func(t *testing.T) {
			if got := decideRow(t, in); got != in["then"]+": "+in["why"] {
				t.Errorf("%v:\n got %s\nwant %s: %s", in, got, in["then"], in["why"])
			}
		})
	}
}

// decideRow makes the inputs that the row describes, and describes the verdict in the row's words.
func decideRow(t *testing.T, in map[string]string) string {
	t.Helper()
	one := func(name string, values map[string]func(f *failed)) func(f *failed) {
		set, ok := values[in[name]]
		if !ok {
			t.Fatalf("column %s: no value %q", name, in[name])
		}
		return set
	}
	none := func(*failed) {}
	f := failed{kept: true}
	one("outcome", map[string]func(f *failed){
		"not executed": func(f *failed) { f.outcome = call.NotExecuted },
		"refused":      func(f *failed) { f.outcome, f.refused = call.NotExecuted, true },
		"unknown":      func(f *failed) { f.outcome = call.Unknown },
		"answered":     func(f *failed) { f.outcome = call.Answered },
	})(&f)
	one("method", map[string]func(f *failed){"idempotent": func(f *failed) { f.repeatable = true }, "key": func(f *failed) { f.keyed = true }, "neither": none})(&f)
	one("kind", map[string]func(f *failed){"unary": none, "server": none, "client": func(f *failed) { f.streamed = true }, "bidi": func(f *failed) { f.streamed = true }})(&f)
	one("onward", map[string]func(f *failed){"no": none, "yes": func(f *failed) { f.onward = true }})(&f)
	one("deadline", map[string]func(f *failed){"ample": func(f *failed) { f.left = time.Minute }, "short": func(f *failed) { f.left = time.Millisecond }, "passed": func(f *failed) { f.left = -1 }})(&f)
	one("other", map[string]func(f *failed){"none": none, "some": func(f *failed) { f.failover = true }})(&f)
	budget := in["budget"] == "left"
	switch asks := in["asks"]; asks {
	case "-":
	case "never":
		f.asked, f.waits = -1, true
	default:
		d, err := time.ParseDuration(asks)
		if err != nil {
			t.Fatal(err)
		}
		f.asked, f.waits = d, true
	}
	var err error
	if f.attempt, err = strconv.Atoi(in["attempt"]); err != nil {
		t.Fatal(err)
	}
	f.code = codes.Code(100)
	for c := range codes.Code(17) {
		if codeName(c) == in["code"] {
			f.code = c
		}
	}
	if f.code == codes.Code(100) {
		t.Fatalf("column code: no value %q", in["code"])
	}
	o := RetryOptions{}.withDefaults()
	const backoff = 20 * time.Millisecond
	v := o.decide(f, backoff, func() bool { return budget })
	switch {
	case v.failover:
		return "other: " + v.why
	case v.again && v.wait != backoff:
		return fmt.Sprintf("again after %v: %s", v.wait, v.why)
	case v.again:
		return "again: " + v.why
	}
	return "end: " + v.why
}
