package interceptors_test

import (
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate" // for contracts that import it
	_ "google.golang.org/genproto/googleapis/api/annotations"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/transcode"

	_ "github.com/toolway/toolway/gen/toolway/v1"
)

// contract returns the catalog of a backend "echo" with the contract of one source file, which may import what is linked into this test.
func contract(t testing.TB, source string) *catalog.Snapshot {
	t.Helper()
	linked := protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
		fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
		return protocompile.SearchResult{Desc: fd}, err
	})
	files, err := (&protocompile.Compiler{Resolver: protocompile.CompositeResolver{
		protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(map[string]string{"contract.proto": source})}), linked,
	}}).Compile(t.Context(), "contract.proto")
	if err != nil {
		t.Fatal(err)
	}
	return snapshot(t, files[0])
}

// requestOf returns a request's wire bytes from JSON.
func requestOf(t testing.TB, m *catalog.Method, json string) []byte {
	t.Helper()
	return fromJSON(t, m.Request(), json)
}

func fromJSON(t testing.TB, m *transcode.Message, json string) []byte {
	t.Helper()
	wire, err := m.AppendWire(nil, []byte(json), transcode.ReadOptions{})
	if err != nil {
		t.Fatalf("%s: %v", json, err)
	}
	return wire
}
