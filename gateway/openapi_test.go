package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/catalog"
)

func openAPIOf(t *testing.T, s *catalog.Snapshot) []byte {
	t.Helper()
	g := gateway.New(gateway.Config{Catalog: catalog.Fixed(s), Handler: unreachable})
	res := do(g, "GET", "/openapi.json", "")
	body := text(t, res)
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("GET /openapi.json = %d %q %.200s", res.StatusCode, res.Header.Get("Content-Type"), body)
	}
	return []byte(body)
}

func TestOpenAPIIsValid(t *testing.T) {
	for _, name := range []string{"library", "grpc-gateway-examples", "etcd", "jaeger", "containerd-api", "temporal-api"} {
		t.Run(name, func(t *testing.T) {
			var s *catalog.Snapshot
			if name == "library" {
				s = librarySnapshot(t)
			} else {
				s = corpus(t, name)
			}
			body := openAPIOf(t, s)
			doc, err := openapi3.NewLoader().LoadFromData(body)
			if err != nil {
				t.Fatal(err)
			}
			if err := doc.Validate(context.Background(), openapi3.DisableExamplesValidation()); err != nil {
				t.Fatalf("%.2000s", err)
			}
			for _, ref := range regexp.MustCompile(`"\$ref":"#/components/([^"]+)"`).FindAllStringSubmatch(string(body), -1) {
				section, name, _ := strings.Cut(ref[1], "/")
				if _, ok := doc.Components.Schemas[name]; section == "schemas" && !ok {
					t.Fatalf("reference to %q, which is not there", ref[1])
				}
			}
			t.Logf("%d bytes, %d paths, %d schemas", len(body), doc.Paths.Len(), len(doc.Components.Schemas))
		})
	}
}

func TestOpenAPIDescribesRoutes(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Parameters  []struct {
				Name, In string
			}
			RequestBody struct{ Content map[string]any } `json:"requestBody"`
			Responses   map[string]struct{ Content map[string]any }
		}
	}
	if err := json.Unmarshal(openAPIOf(t, librarySnapshot(t)), &doc); err != nil {
		t.Fatal(err)
	}
	op := doc.Paths["/v1/shelves/{parent}/books"]["get"]
	if op.OperationID != "library.v1.Library.ListBooks_2" || len(op.Parameters) != 9 || op.Parameters[3].Name != "filter.words" {
		t.Errorf("ListBooks: %+v", op)
	}
	if op := doc.Paths["/v1/shelves/{name.shelves}/books/{name.books}"]["patch"]; op.RequestBody.Content["application/json"] == nil {
		t.Errorf("UpdateBook shares its path with GetBook, with a JSON body: %+v", op)
	}
	if op := doc.Paths["/v1/shelves/{parent}:watch"]["get"]; op.Responses["200"].Content["text/event-stream"] == nil {
		t.Errorf("Watch: no event stream in %+v", op.Responses)
	}
	if op := doc.Paths[library+"Upload"]["post"]; op.RequestBody.Content["application/x-ndjson"] == nil {
		t.Errorf("Upload: no request stream in %+v", op.RequestBody)
	}
}

func TestOpenAPIOfResumableStream(t *testing.T) {
	body := string(openAPIOf(t, newLog(t, nil).b.snapshot))
	if n := strings.Count(body, `"name":"Last-Event-ID"`); n != 6 { // each route of both streams
		t.Errorf("%d operations take Last-Event-ID, want 6:\n%s", n, body)
	}
	if body := string(openAPIOf(t, librarySnapshot(t))); strings.Contains(body, "Last-Event-ID") {
		t.Error("streams without a cursor field take Last-Event-ID")
	}
}

func TestOpenAPIIsCached(t *testing.T) {
	g := gateway.New(gateway.Config{Catalog: catalog.Fixed(librarySnapshot(t)), Handler: unreachable})
	first := do(g, "GET", "/openapi.json", "")
	tag := first.Header.Get("ETag")
	if res := do(g, "GET", "/openapi.json", "", "If-None-Match", `"x", W/`+tag); tag == "" || res.StatusCode != http.StatusNotModified || text(t, res) != "" {
		t.Errorf("If-None-Match %s = %d, want 304 and no body", tag, res.StatusCode)
	}
	if res := do(g, "GET", "/openapi.json", "", "Accept-Encoding", "br, gzip;q=0.5"); res.Header.Get("Content-Encoding") != "gzip" || res.Header.Get("ETag") == tag {
		t.Errorf("gzip: %v", res.Header)
	}
	if res := do(g, "POST", "/openapi.json", "{}"); res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST = %d, Allow %q", res.StatusCode, res.Header.Get("Allow"))
	}
}
