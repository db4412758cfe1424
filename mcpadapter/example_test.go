package mcpadapter_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/mcpadapter"
)

// clock is a service that takes and gives a duration.
func clock() (*catalog.Snapshot, error) {
	duration := protodesc.ToFileDescriptorProto(durationpb.File_google_protobuf_duration_proto)
	name, file, kind := "Clock", "clock.proto", ".google.protobuf.Duration"
	method, pkg, syntax := "Wait", "clock.v1", "proto3"
	return catalog.Static("clock", &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{duration, {
		Name: &file, Package: &pkg, Syntax: &syntax, Dependency: []string{duration.GetName()},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: &name, Method: []*descriptorpb.MethodDescriptorProto{{Name: &method, InputType: &kind, OutputType: &kind}}}},
	}}})
}

// echo is a chain without policies whose backend answers with what it is sent.
func echo(stream grpc.ServerStream) error {
	msg := &durationpb.Duration{}
	if err := stream.RecvMsg(msg); err != nil {
		return err
	}
	return stream.SendMsg(msg)
}

func Example() {
	snapshot, err := clock()
	if err != nil {
		fmt.Println(err)
		return
	}
	door := mcpadapter.New(mcpadapter.Config{Catalog: catalog.Fixed(snapshot), Handler: echo})
	mux := http.NewServeMux()
	mux.Handle("/mcp", door.HTTPHandler())

	req := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"clock_wait","arguments":{"value":"2.50s"}}}`))
	req.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, req)
	fmt.Println(rec.Code, rec.Body)
	// Output: 200 {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"{\"value\":\"2.500s\"}"}],"structuredContent":{"value":"2.500s"}}}
}

func ExampleAdapter_ServeStdio() {
	snapshot, err := clock()
	if err != nil {
		fmt.Println(err)
		return
	}
	door := mcpadapter.New(mcpadapter.Config{Catalog: catalog.Fixed(snapshot), Handler: echo})
	stdin := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")
	var stdout strings.Builder
	if err := door.ServeStdio(context.Background(), stdin, &stdout); err != nil {
		fmt.Println(err)
	}
	fmt.Print(stdout.String())
	// Output: {"jsonrpc":"2.0","id":1,"result":{}}
}
