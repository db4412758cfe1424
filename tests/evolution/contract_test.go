// Package evolution_test shows what a contract may change, and what it costs whom: programs built with the first contract of the log service
// (testdata/first) and with that of today, as clients and as servers, through each door of the built mesh. docs/evolution.md has the findings.
package evolution_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"

	"github.com/toolway/toolway/tests/internal/protoset"
	"github.com/toolway/toolway/tests/internal/run"
)

func TestMain(m *testing.M) {
	if err := run.Prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// contract is the log service's contract as a program knows it.
type contract struct {
	file protoreflect.FileDescriptor
}

// first is the contract before it changed, and today that of now.
func first(t *testing.T) contract {
	t.Helper()
	module, err := run.Module()
	if err != nil {
		t.Fatal(err)
	}
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{
		filepath.Join(module, "evolution", "testdata", "first"), filepath.Join(module, "..", "third_party", "googleapis"),
	}})}
	files, err := compiler.Compile(t.Context(), "agentops/logs/v1/logs.proto")
	if err != nil {
		t.Fatal(err)
	}
	return contract{files[0]}
}

func today() contract { return contract{logsv1.File_agentops_logs_v1_logs_proto} }

// edited is a copy of a contract with a change.
func edited(t *testing.T, from contract, edit func(*descriptorpb.FileDescriptorProto)) contract {
	t.Helper()
	set := protoset.Of(from.file)
	edit(set.File[len(set.File)-1])
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	file, err := files.FindFileByPath(from.file.Path())
	if err != nil {
		t.Fatal(err)
	}
	return contract{file}
}

// write writes the contract as a descriptor set, for --descriptors.
func (c contract) write(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "contract.binpb")
	if err := protoset.Write(path, c.file); err != nil {
		t.Fatal(err)
	}
	return path
}

// message makes a message of the contract from its JSON.
func (c contract) message(t *testing.T, name protoreflect.Name, json string) *dynamicpb.Message {
	t.Helper()
	m := c.empty(name)
	if err := protojson.Unmarshal([]byte(json), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func (c contract) empty(name protoreflect.Name) *dynamicpb.Message {
	return dynamicpb.NewMessage(c.file.Messages().ByName(name))
}

// wire is the message's bytes.
func (c contract) wire(t *testing.T, name protoreflect.Name, json string) []byte {
	t.Helper()
	return marshal(t, c.message(t, name, json))
}

// read reads bytes as a program with this contract does.
func (c contract) read(t *testing.T, name protoreflect.Name, wire []byte) *dynamicpb.Message {
	t.Helper()
	m := c.empty(name)
	if err := proto.Unmarshal(wire, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// field is the value at a path of field names and indexes.
func field(t *testing.T, m protoreflect.Message, path ...any) protoreflect.Value {
	t.Helper()
	v := protoreflect.ValueOfMessage(m)
	for _, step := range path {
		switch step := step.(type) {
		case int:
			if v.List().Len() <= step {
				t.Fatalf("%v: no element %d", path, step)
			}
			v = v.List().Get(step)
		case string:
			fd := v.Message().Descriptor().Fields().ByName(protoreflect.Name(step))
			if fd == nil {
				t.Fatalf("%v: %s has no field %q", path, v.Message().Descriptor().FullName(), step)
			}
			v = v.Message().Get(fd)
		}
	}
	return v
}

func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), run.Patience)
	t.Cleanup(cancel)
	return ctx
}

// recent is a time within the range of every search here.
func recent() string { return time.Now().Add(-time.Minute).UTC().Format(time.RFC3339) }
