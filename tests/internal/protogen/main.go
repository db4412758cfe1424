// Command protogen writes gen/ from proto/: it compiles with protocompile and runs the plugins that go.mod pins, so that nothing needs to
// be installed.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	_ "google.golang.org/genproto/googleapis/api/httpbody" // for linked
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/toolway/toolway/tests/internal/protoset"
)

func main() {
	log.SetFlags(0)
	if err := run("proto", []string{"../proto", "../third_party/googleapis"}, "gen"); err != nil {
		log.Fatal("protogen: ", err)
	}
}

// contract is where the Go code of our own contract is, which has no go_package.
const contract = "github.com/toolway/toolway/gen/toolway/v1"

func run(from string, imports []string, to string) error {
	var names []string
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".proto") {
			rel, _ := filepath.Rel(from, path)
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		return err
	}
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: append([]string{from}, imports...)}, protocompile.ResolverFunc(linked),
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return err
	}
	req := &pluginpb.CodeGeneratorRequest{FileToGenerate: names, Parameter: proto.String("paths=source_relative")}
	for _, name := range []string{"options", "content", "input"} {
		*req.Parameter += ",Mtoolway/v1/" + name + ".proto=" + contract
	}
	roots := make([]protoreflect.FileDescriptor, len(files))
	for i, f := range files {
		roots[i] = f
	}
	req.ProtoFile = protoset.Of(roots...).GetFile()
	in, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := generate(plugin, in, to); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	// In a folder of its own, so that only the peer of the benchmarks links grpc-gateway.
	req.FileToGenerate, *req.Parameter = []string{"probe/v1/probe.proto"}, *req.Parameter+",standalone=true"
	if in, err = proto.Marshal(req); err != nil {
		return err
	}
	if err := generate("protoc-gen-grpc-gateway", in, filepath.Join(to, "gateway")); err != nil {
		return fmt.Errorf("protoc-gen-grpc-gateway: %w", err)
	}
	return nil
}

// linked finds the files that this program has in it: those of google.api whose source is not here.
func linked(path string) (protocompile.SearchResult, error) {
	fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
	return protocompile.SearchResult{Desc: fd}, err
}

func generate(plugin string, in []byte, to string) error {
	cmd := exec.CommandContext(context.Background(), "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &resp); err != nil {
		return err
	}
	if resp.Error != nil {
		return fmt.Errorf("%s", resp.GetError())
	}
	for _, f := range resp.File {
		path := filepath.Join(to, filepath.FromSlash(f.GetName()))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
