package toolschema_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/toolschema"
)

// TestBudget holds heavy messages to small budgets: the schema stays within, valid, by the rules, and says that something is cut.
// Of the combinations it takes a sample that has each message with each profile, direction and size (-long: all).
func TestBudget(t *testing.T) {
	n, stride := 0, every(t, 5)
	for _, c := range []struct {
		set   string
		names []string
	}{
		{"temporal-api", []string{"temporal.api.workflowservice.v1.RespondWorkflowTaskCompletedRequest", "temporal.api.workflowservice.v1.GetWorkflowExecutionHistoryResponse"}},
		{"qdrant", []string{"qdrant.QueryPointGroups", "qdrant.QueryPoints"}},
		{"googleapis-core", []string{"google.container.v1.Cluster", "google.cloud.bigquery.v2.Job"}},
		{"googleapis-conversational", []string{"google.cloud.ces.v1.CreateAppRequest"}},
	} {
		files, _ := load(t, filepath.Join(corpusDir(t), c.set+".binpb"))
		for _, name := range c.names {
			d, err := files.FindDescriptorByName(protoreflect.FullName(name))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full, toolschema.Strict} {
				for _, dir := range []toolschema.Direction{toolschema.Input, toolschema.Output} {
					for _, size := range []int{256, 700, 2000, 5000, 16000, -1} {
						for _, list := range []string{"", "items"} {
							if n++; n%stride != 0 {
								continue
							}
							checkBudget(t, d.(protoreflect.MessageDescriptor), toolschema.Options{Profile: p, Direction: dir, MaxBytes: size, List: list})
						}
					}
				}
			}
		}
	}
}

func checkBudget(t *testing.T, md protoreflect.MessageDescriptor, o toolschema.Options) {
	t.Helper()
	schema := toolschema.For(md, o)
	if o.MaxBytes > 0 && len(schema) > o.MaxBytes {
		t.Errorf("For(%s, %+v) is %d bytes: %s", md.FullName(), o, len(schema), schema)
	}
	if _, err := compile(schema); err != nil {
		t.Errorf("For(%s, %+v) does not compile: %v\n%s", md.FullName(), o, err, schema)
	}
	problems := toolschema.Problems(schema, o.Profile, o.Direction)
	for _, p := range problems {
		if !strings.Contains(p, "strict-size") {
			t.Errorf("For(%s, %+v): %s", md.FullName(), o, p)
		}
	}
	if o.MaxBytes > 0 && o.MaxBytes <= 2000 && !bytes.Contains(schema, []byte("left out")) && !bytes.Contains(schema, []byte("not described here")) && !bytes.Contains(schema, []byte("too many")) {
		t.Errorf("For(%s, %+v) does not say what is cut: %s", md.FullName(), o, schema)
	}
}

// message builds a message from its descriptor proto.
func message(t *testing.T, file *descriptorpb.FileDescriptorProto) protoreflect.MessageDescriptor {
	t.Helper()
	fd, err := protodesc.FileOptions{AllowUnresolvable: true}.New(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return fd.Messages().Get(0)
}

// TestWholeEnum derives schemas of an enum that is too long to be listed, but for the whole contract.
func TestWholeEnum(t *testing.T) {
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, "NAME_%d = %d;", i, i)
	}
	md := find(t, source(t, imports+`enum Big { `+b.String()+` } message M { Big a = 1; Big b = 2 [(buf.validate.field).enum = {not_in: [0]}]; }`), "M")
	for _, c := range []struct {
		o           toolschema.Options
		first, last int // how often the names of the enum are there
	}{
		{toolschema.Options{}, 3, 0},
		{toolschema.Options{Profile: toolschema.Full}, 3, 0},
		{toolschema.Options{Profile: toolschema.Full, MaxBytes: -1}, 1, 2},
	} {
		schema := string(toolschema.For(md, c.o))
		if c.last == 0 && !strings.Contains(schema, "None of NAME_0.") {
			t.Errorf("For(M, %+v) does not tell the rule: %s", c.o, schema)
		}
		if first, last := strings.Count(schema, "NAME_0"), strings.Count(schema, `"NAME_299"`); first != c.first || last != c.last {
			t.Errorf("For(M, %+v) names the first value %d times and the last %d, want %d and %d\n%s", c.o, first, last, c.first, c.last, schema)
		}
	}
}

func TestThousandFields(t *testing.T) {
	m := &descriptorpb.DescriptorProto{Name: proto.String("Wide")}
	for i := range 1000 {
		f := &descriptorpb.FieldDescriptorProto{
			Name: proto.String(fmt.Sprintf("field_number_%d_of_many", i)), Number: proto.Int32(int32(i + 1)),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_INT64.Enum(),
		}
		if i%100 == 99 {
			f.Label = descriptorpb.FieldDescriptorProto_LABEL_REQUIRED.Enum()
		}
		if i%10 == 3 {
			f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".Wide")
		}
		m.Field = append(m.Field, f)
	}
	md := message(t, &descriptorpb.FileDescriptorProto{Name: proto.String("wide.proto"), MessageType: []*descriptorpb.DescriptorProto{m}})
	for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full, toolschema.Strict} {
		for _, size := range []int{0, 300, 4000, -1} {
			checkBudget(t, md, toolschema.Options{Profile: p, MaxBytes: size})
		}
	}
	var schema struct {
		Description string
		Properties  map[string]json.RawMessage
		Required    []string
	}
	if err := json.Unmarshal(toolschema.For(md, toolschema.Options{}), &schema); err != nil {
		t.Fatal(err)
	}
	if len(schema.Required) != 10 || schema.Properties["fieldNumber999OfMany"] == nil {
		t.Errorf("required = %v, want all 10, last one included", schema.Required)
	}
	if len(schema.Properties) < 200 || !strings.Contains(schema.Description, "Accepted but not described here: ") {
		t.Errorf("%d properties, description %q; want most of the budget used, and the rest named", len(schema.Properties), schema.Description)
	}
}
