package catalog_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/catalog"
)

func TestSeveralFilesAreOne(t *testing.T) {
	set := compile(t, shop)
	api := proto.CloneOf(set)
	types := writeSet(t, "types.binpb", without(set, "acme/api.proto"))
	rest := writeSet(t, "api.binpb", without(api, "acme/types.proto"))
	s := open(t, catalog.Config{Backends: []catalog.BackendConfig{{Name: "a", Sources: []catalog.Source{catalog.File(rest), catalog.File(types)}}}}).Snapshot()
	if len(s.Tools()) != 6 || codesOf(s) != "" {
		t.Errorf("tools %v, findings %v", toolNames(s), s.Findings())
	}
}

// TestKept keeps what a backend said and starts again without the backend.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svr, conn := serve(t, v1(t, plain(compileOne(t, orders)), "acme.Orders"))
		comments := catalog.File(writeSet(t, "a.binpb", compileOne(t, orders)))
		before := open(t, reflecting("a", conn, comments)).Snapshot()
		path := writeSet(t, "kept.binpb", before.Backends()[0].Descriptors())

		svr.stop(0)
		s := open(t, reflecting("a", conn, catalog.Kept(path))).Snapshot()
		if s.ToolsVersion() != before.ToolsVersion() || s.Service("acme.Hidden") != nil {
			t.Errorf("from the kept contract: tools %v, want %v", toolNames(s), toolNames(before))
		}
		other := catalog.File(writeSet(t, "b.binpb", compileOne(t, `syntax = "proto3"; package acme; message M {} service New { rpc Get(M) returns (M); }`)))
		s = open(t, reflecting("a", conn, catalog.Kept(path), other)).Snapshot()
		if got := strings.Join(toolNames(s), " "); got != "new_get" {
			t.Errorf("with a descriptor file beside the kept contract: tools %q, want the file's alone", got)
		}
		if err := os.WriteFile(path, []byte{1, 2}, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{path, filepath.Join(t.TempDir(), "none")} {
			s = open(t, reflecting("a", conn, catalog.Kept(p))).Snapshot()
			if len(s.Tools()) != 0 || s.Backends()[0].Files != nil || (p == path) != strings.Contains(codesOf(s), "kept-unreadable") {
				t.Errorf("%q: tools %v, findings %v", p, toolNames(s), s.Findings())
			}
		}
	})
}

// TestConnection pins that a backend without reflection still follows its connection.
func TestConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svr, conn := serve(t, func(*grpc.Server) {})
		file := catalog.File(writeSet(t, "a.binpb", compileOne(t, orders)))
		c := open(t, catalog.Config{Backends: []catalog.BackendConfig{{Name: "a", Sources: []catalog.Source{file, catalog.Connection(conn, catalog.ReflectionOptions{})}}}})
		s := c.Snapshot()
		if s.Backends()[0].State != catalog.Up || len(s.Tools()) != 2 || codesOf(s) != "" {
			t.Errorf("state %v, tools %v, findings %v", s.Backends()[0].State, toolNames(s), s.Findings())
		}
		svr.stop(0)
		time.Sleep(6 * time.Second)
		if s := c.Snapshot(); s.Backends()[0].State != catalog.Down || len(s.Tools()) != 0 {
			t.Errorf("state %v, tools %v", s.Backends()[0].State, toolNames(s))
		}
	})
}

// TestFormsDisagree pins C37 for one service in two forms: the first stays until both servers agree.
func TestFormsDisagree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		form := func(method string) func(*grpc.Server) {
			return v1(t, compileOne(t, `syntax = "proto3"; package acme; message M {} service S { rpc `+method+`(M) returns (M); }`), "acme.S")
		}
		svr, conn := serve(t, form("One"), form("Two"))
		c := open(t, reflecting("a", conn))
		first := strings.Join(toolNames(c.Snapshot()), " ")
		for range 20 {
			time.Sleep(30 * time.Second)
			if got := strings.Join(toolNames(c.Snapshot()), " "); got != first {
				t.Fatalf("tools changed from %q to %q", first, got)
			}
		}
		for i := range 2 {
			svr.stop(i)
			svr.start(t, i, form("Three"))
		}
		time.Sleep(5 * time.Minute)
		if got := strings.Join(toolNames(c.Snapshot()), " "); got != "s_three" || codesOf(c.Snapshot()) != "" {
			t.Errorf("when both agree: tools %q, findings %v", got, c.Snapshot().Findings())
		}
	})
}

func ExampleReadFile() {
	s, err := catalog.ReadFile("otlp", "../../../shared/descriptors/otlp.binpb")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range s.Tools() {
		fmt.Println(m.Tool.Name, m.FullMethod)
	}
	// Output:
	// logs_export /opentelemetry.proto.collector.logs.v1.LogsService/Export
	// metrics_export /opentelemetry.proto.collector.metrics.v1.MetricsService/Export
	// profiles_export_v1development /opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export
	// trace_export /opentelemetry.proto.collector.trace.v1.TraceService/Export
}
