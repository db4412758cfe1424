package catalog_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolway/toolway/internal/catalog"
)

// TestFailover pins what a second backend takes over: methods whose messages are the same on the wire, whatever the comments say.
func TestFailover(t *testing.T) {
	const changed = `syntax = "proto3"; package acme;
message M { string id = 1; }
service Orders { rpc Get(M) returns (M); }
service Hidden { rpc Get(M) returns (stream M); }
`
	for name, c := range map[string]struct {
		second string
		want   string // methods that fail over
		codes  string
	}{
		"same":      {orders, "/acme.Hidden/Get /acme.Orders/Get", ""},
		"differs":   {changed, "/acme.Orders/Get", "failover-differs"},
		"messages":  {strings.Replace(orders, "string id = 1", "int32 id = 1", 1), "", "failover-differs"},
		"renumbers": {strings.Replace(orders, "string id = 1", "string id = 2", 1), "", "failover-differs"},
	} {
		s := open(t, catalog.Config{Backends: []catalog.BackendConfig{
			{Name: "first", Sources: []catalog.Source{catalog.File(writeSet(t, "a.binpb", compileOne(t, orders)))}, Failover: "second"},
			{Name: "second", Sources: []catalog.Source{catalog.File(writeSet(t, "b.binpb", compileOne(t, c.second)))}},
		}}).Snapshot()
		var got []string
		for _, m := range s.Methods() {
			if m.Failover == "second" {
				got = append(got, m.FullMethod)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want || codesOf(s) != c.codes || s.Backends()[0].Failover != "second" {
			t.Errorf("%s: %q fail over, findings %v, want %q and %q", name, got, s.Findings(), c.want, c.codes)
		}
	}
}

// TestCovered has a first backend that goes: its tools stay while the second is up.
func TestCovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := compileOne(t, orders)
		first, conn1 := serve(t, v1(t, set, "acme.Orders"))
		second, conn2 := serve(t, v1(t, set, "acme.Orders"))
		c := open(t, catalog.Config{Backends: []catalog.BackendConfig{
			{Name: "first", Sources: []catalog.Source{catalog.Reflection(conn1, catalog.ReflectionOptions{})}, Failover: "second"},
			{Name: "second", Sources: []catalog.Source{catalog.Reflection(conn2, catalog.ReflectionOptions{})}},
		}})
		if s := c.Snapshot(); s.Backends()[0].Covered || len(s.Tools()) != 1 {
			t.Fatalf("backend %+v, tools %v", s.Backends()[0], toolNames(s))
		}
		first.stop(0)
		time.Sleep(10 * time.Second)
		if s := c.Snapshot(); !s.Backends()[0].Covered || s.Backends()[0].State != catalog.Up || len(s.Tools()) != 1 {
			t.Errorf("backend %+v, tools %v, want it covered and its tool listed", s.Backends()[0], toolNames(s))
		}
		second.stop(0)
		time.Sleep(10 * time.Second)
		if s := c.Snapshot(); s.Backends()[0].Covered || s.Backends()[0].State != catalog.Down || len(s.Tools()) != 0 {
			t.Errorf("backend %+v, tools %v, want it down and its tool withdrawn", s.Backends()[0], toolNames(s))
		}
	})
}
