package mesh

import (
	"strings"
	"testing"
)

func TestAttemptsConfig(t *testing.T) {
	two := func(a, b string) []Backend {
		return []Backend{{Name: "a", Targets: []string{"h:1"}, Failover: a}, {Name: "b", Targets: []string{"h:2"}, Failover: b}}
	}
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"itself":       {Config{Backends: two("a", "")}, "fails over to itself"},
		"unknown":      {Config{Backends: two("x", "")}, "no backend here"},
		"chain":        {Config{Backends: two("b", "a")}, "two backends at most"},
		"order":        {Config{Backends: two("", "a")}, "list it after"},
		"delays":       {Config{Attempts: Attempts{Retry: Retry{BaseDelay: 5e9}}}, "above max_delay"},
		"attempts":     {Config{Attempts: Attempts{Retry: Retry{MaxAttempts: 11}}}, "not between 1"},
		"ratio":        {Config{Attempts: Attempts{Retry: Retry{Budget: Budget{Ratio: 2}}}}, "how many retries a success earns"},
		"rate":         {Config{Attempts: Attempts{Breaker: Breaker{FailureRate: 50}}}, "not between 0 and 1"},
		"hedge":        {Config{Attempts: Attempts{Hedge: []Hedge{{Delay: 1}}}}, "names no methods"},
		"hedge delay":  {Config{Attempts: Attempts{Hedge: []Hedge{{Methods: []string{"a.B/*"}}}}}, "has no delay"},
		"hedge method": {Config{Attempts: Attempts{Hedge: []Hedge{{Methods: []string{"a.B/C/D"}, Delay: 1}}}}, "names no methods"},
	} {
		if err := c.config.Normalise(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want …%s…", name, err, c.want)
		}
	}
	c := Config{Backends: two("b", "")}
	if err := c.Normalise(); err != nil {
		t.Fatal(err)
	}
	if o := c.attemptOptions(); o.Retry.MaxAttempts != 3 || o.Breaker.MinAttempts != 20 {
		t.Errorf("options %+v, want the documented defaults", o)
	}
}
