package toolschema_test

import (
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/toolschema"
)

// BenchmarkFor derives the portable and full schemas of the heaviest messages of the corpus.
func BenchmarkFor(b *testing.B) {
	for _, c := range []struct{ set, message string }{
		{"temporal-api", "temporal.api.workflowservice.v1.RespondWorkflowTaskCompletedRequest"},
		{"qdrant", "qdrant.QueryPointGroups"},
		{"googleapis-core", "google.container.v1.CreateClusterRequest"},
		{"googleapis-conversational", "google.cloud.ces.v1.CreateAppVersionRequest"},
		{"googleapis-conversational", "google.cloud.dialogflow.cx.v3.UpdatePlaybookRequest"},
		{"googleapis-aiplatform-v1", "google.cloud.aiplatform.v1.GenerateContentRequest"},
	} {
		files, _ := load(b, filepath.Join(corpusDir(b), c.set+".binpb"))
		d, err := files.FindDescriptorByName(protoreflect.FullName(c.message))
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range []toolschema.Profile{toolschema.Portable, toolschema.Full} {
			b.Run(string(d.Name())+"/"+p.String(), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					toolschema.For(d.(protoreflect.MessageDescriptor), toolschema.Options{Profile: p})
				}
			})
		}
	}
}
