package mesh

import (
	"strings"
	"testing"
	"time"

	"github.com/toolway/toolway/internal/catalog"
)

func TestLimitsConfig(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		want   string
	}{
		"in flight":     {Limits{InFlight: -2}, "write -1 for no bound"},
		"burst":         {Limits{Principal: Rate{Burst: 5}}, "limits.principal: burst 5 without per_second"},
		"negative rate": {Limits{Tenant: Rate{PerSecond: -1}}, "limits.tenant: a rate cannot be negative"},
		"queue":         {Limits{Backend: Bound{Max: -1, Queue: 5}}, "nothing would ever wait"},
		"wait":          {Limits{Backend: Bound{Wait: 5}}, "wait without queue"},
		"share":         {Limits{Backend: Bound{Share: 80}}, "not between 0 and 1"},
		"no methods":    {Limits{Methods: []MethodLimits{{Rate: Rate{PerSecond: 1}}}}, "names no methods"},
		"no limit":      {Limits{Methods: []MethodLimits{{Methods: []string{"a.B/C"}}}}, "limits nothing"},
		"pattern":       {Limits{Methods: []MethodLimits{{Methods: []string{"a b"}, Rate: Rate{PerSecond: 1}}}}, "names no methods"},
		"shed off":      {Limits{Shed: Shed{Max: 5}}, "set on: true"},
		"shed order":    {Limits{Shed: Shed{On: true, Min: 5, Max: 4}}, "do not rise"},
	} {
		config := Config{Limits: c.limits}
		if err := config.Normalise(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want …%s…", name, err, c.want)
		}
	}
}

func TestLimitsOptions(t *testing.T) {
	l := Limits{Methods: []MethodLimits{
		{Methods: []string{"a.*"}, Rate: Rate{PerSecond: 10}, Bound: Bound{Max: 4, Queue: 2}},
		{Methods: []string{"a.B/Heavy"}, Rate: Rate{PerSecond: 1, Burst: 2}},
	}}
	if err := l.normalise(); err != nil {
		t.Fatal(err)
	}
	o := l.options()
	if o.InFlight != 10_000 || o.Backend.Max != 5_000 || o.Backend.Share != 0.8 || o.Shed.On {
		t.Errorf("options %+v, want the documented defaults", o)
	}
	heavy := &catalog.Method{FullMethod: "/a.B/Heavy"}
	if r, b := o.Method(heavy), o.MethodBulkhead(heavy); r.PerSecond != 1 || r.Burst != 2 || b.Max != 4 || b.Wait != 100*time.Millisecond {
		t.Errorf("heavy: %+v, %+v, want the last rate that covers it, and the bound of the first", r, b)
	}
	if r := o.Method(&catalog.Method{FullMethod: "/b.C/D"}); r.PerSecond != 0 {
		t.Errorf("another method has the rate %+v", r)
	}
}
