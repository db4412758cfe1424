package catalog_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/catalog"
)

func gz(tb testing.TB, b []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(b); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// TestForms gives every form under a name that says nothing.
func TestForms(t *testing.T) {
	set := compile(t, shop)
	binary, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	json, err := protojson.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	text, err := prototext.MarshalOptions{Multiline: true}.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	bom := append([]byte("\ufeff\n\n"), json...)
	for name, data := range map[string][]byte{
		"binary": binary, "json": json, "text": text, "text after an empty line": append([]byte("\n# made by hand\n"), text...), "json with a byte order mark": bom,
		"binary gz": gz(t, binary), "json gz": gz(t, json), "text gz": gz(t, text),
	} {
		path := filepath.Join(t.TempDir(), "set.dat")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := catalog.ReadFile("x", path)
		if err != nil || len(s.Tools()) != 6 || len(s.Findings()) != 0 {
			t.Errorf("%s: %v, tools %v, findings %v", name, err, s, s)
		}
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	set, err := proto.Marshal(compile(t, shop))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		data []byte
		want []string
	}{
		{"empty", nil, []string{"empty", "buf build"}},
		{"source", []byte("syntax = \"proto3\";\npackage a;\n"), []string{"protobuf source", "--include_imports"}},
		{"json", []byte(`{"file": [{"name": 3}]}`), []string{"JSON"}},
		{"json-half", []byte(`{"file": [{"name": "a.pro`), []string{"JSON"}},
		{"no files", []byte(`{}`), []string{"no file in it"}},
		{"words", []byte("hello, world"), []string{"text form"}},
		{"noise", []byte{0, 1, 2, 3, 0xff, 0xfe}, []string{"no descriptor set", "byte 0"}},
		{"gzip-half", gz(t, []byte(`{"file": [{"name": "a.proto"}]}`))[:20], []string{"gzip", "breaks off"}},
		{"gzip-noise", []byte{0x1f, 0x8b, 0, 0, 0, 0}, []string{"gzip"}},
		{"other message", []byte{0x0a, 3, 'a', '/', 'b', 0x12, 1, 'x'}, []string{"no file of it can be used"}},
		{"first file cut", set[:60], []string{"byte 0"}},
	} {
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := catalog.ReadFile("x", path)
		if err == nil {
			t.Errorf("ReadFile(%s) = nil, want an error", c.name)
			continue
		}
		for _, want := range append(c.want, c.name) {
			if !strings.Contains(err.Error(), want) && c.name != "other message" {
				t.Errorf("ReadFile(%s) = %q, want it to say %q", c.name, err, want)
			}
		}
	}
	for _, path := range []string{filepath.Join(dir, "nowhere"), dir} {
		if _, err := catalog.ReadFile("x", path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("ReadFile(%q) = %v", path, err)
		}
	}
}

func TestTruncated(t *testing.T) {
	s, err := catalog.ReadFile("x", filepath.Join(corpus, "variants/jaeger-truncated.binpb"))
	if err != nil {
		t.Fatal(err)
	}
	f := finding(t, s, "set-truncated")
	for _, want := range []string{"jaeger-truncated.binpb", "at byte ", "in file ", "after \""} {
		if !strings.Contains(f.Message, want) {
			t.Errorf("finding %q does not say %q", f.Message, want)
		}
	}
}

// TestFileIsReadAgain changes a file as editors, compilers and volume mounts do.
func TestFileIsReadAgain(t *testing.T) {
	synctest.Test(t, testFileIsReadAgain)
}

func testFileIsReadAgain(t *testing.T) {
	bytesOf := func(methods string) []byte {
		b, err := proto.Marshal(compileOne(t, `syntax = "proto3"; package acme; message M {} service S { `+methods+` }`))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	path := filepath.Join(t.TempDir(), "set.binpb")
	write := func(b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one, two := bytesOf("rpc One(M) returns (M);"), bytesOf("rpc One(M) returns (M); rpc Two(M) returns (M);")
	write(one)
	c := open(t, catalog.Config{Backends: []catalog.BackendConfig{
		{Name: "a", Sources: []catalog.Source{catalog.File(path)}},
		{Name: "still", Sources: []catalog.Source{catalog.File(filepath.Join(corpus, "etcd.binpb"))}},
	}})
	before := c.Snapshot()
	tools := func(n int) func(*catalog.Snapshot) bool {
		return func(s *catalog.Snapshot) bool { return len(s.Tools()) == 49+n && codesOf(s) == "" }
	}
	await(t, c, "one tool", tools(1))

	write(two)
	after := await(t, c, "two tools", tools(2))
	select {
	case <-before.Superseded():
	case <-time.After(time.Minute):
		t.Error("the old snapshot is not superseded")
	}
	if before.Backends()[1].Files != after.Backends()[1].Files || before.Backends()[1].Codecs != after.Backends()[1].Codecs {
		t.Error("the backend that did not change was loaded again")
	}
	if before.Version() == after.Version() || before.ToolsVersion() == after.ToolsVersion() {
		t.Error("the versions did not change")
	}

	write(two[:len(two)-5]) // half written
	s := await(t, c, "a half-written file", func(s *catalog.Snapshot) bool {
		return codesOf(s) == "set-truncated" || codesOf(s) == "source-unreadable"
	})
	if len(s.Tools()) != 51 || s.ToolsVersion() != after.ToolsVersion() {
		t.Errorf("half a file changed the tools: %v", toolNames(s))
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	await(t, c, "a file that is gone", func(s *catalog.Snapshot) bool { return codesOf(s) == "source-unreadable" && len(s.Tools()) == 51 })

	other := filepath.Join(t.TempDir(), "other.binpb")
	if err := os.WriteFile(other, one, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if s := await(t, c, "one tool again", tools(1)); s.Version() != before.Version() {
		t.Error("the same contract has another version")
	}
}

func TestOpenRefuses(t *testing.T) {
	good := catalog.File(writeSet(t, "a.binpb", compile(t, shop)))
	for _, c := range []struct {
		name string
		cfg  []catalog.BackendConfig
		want string
	}{
		{"no name", []catalog.BackendConfig{{Sources: []catalog.Source{good}}}, "name"},
		{"two of a name", []catalog.BackendConfig{{Name: "a", Sources: []catalog.Source{good}}, {Name: "a", Sources: []catalog.Source{good}}}, `"a"`},
		{"no source", []catalog.BackendConfig{{Name: "a"}}, "source"},
		{"bad prefix", []catalog.BackendConfig{{Name: "a", Sources: []catalog.Source{good}, ToolPrefix: "9.x"}}, `"9.x"`},
		{"no file", []catalog.BackendConfig{{Name: "a", Sources: []catalog.Source{catalog.File("/nowhere/x.binpb")}}}, "/nowhere/x.binpb"},
	} {
		if _, err := catalog.Open(t.Context(), catalog.Config{Backends: c.cfg}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Open = %v, want an error that says %q", c.name, err, c.want)
		}
	}
}
