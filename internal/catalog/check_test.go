package catalog_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/catalog"
)

func TestCheck(t *testing.T) {
	fit := static(t, compileOne(t, `syntax = "proto3"; package acme.v1;
		message In {
			// Which one.
			string id = 1;
		}
		service S {
			// Finds it.
			rpc Find(In) returns (In) { option idempotency_level = NO_SIDE_EFFECTS; }
		}`))
	if r := catalog.Check(fit); !r.Fit || len(r.Findings) != 0 || r.Totals != (catalog.Totals{Backends: 1, Services: 1, Methods: 1, Tools: 1, Fields: 1}) {
		t.Errorf("Check = %+v, want fit", r)
	}
	none := catalog.Check(static(t, compileOne(t, `syntax = "proto3"; package acme.v1; message M {}`)))
	if none.Fit || len(none.Findings) != 1 || none.Findings[0].Code != "service-none" {
		t.Errorf("Check of a set without services = %+v, want a finding that says so", none)
	}
	plugged := catalog.Check(fit, func(m *catalog.Method) []catalog.Finding {
		return []catalog.Finding{{Code: "schema-problem", Subject: m.Tool.Name}}
	})
	if plugged.Fit || plugged.Findings[0].Subject != "s_find" || plugged.Findings[0].Backend != "test" {
		t.Errorf("Check with the caller's findings = %+v", plugged)
	}

	unfit := static(t, compileOne(t, header+`message Bare { string x = 1; Bare again = 2; }
		service SomeServiceWithAVeryLongName {
			rpc AndAMethodWithAnEvenLongerName(Bare) returns (Out);
			// Reads.
			rpc Get(In) returns (Out) { option (google.api.http) = {get: "/v1/x"}; }
			// Writes.
			rpc Put(In) returns (Out) { option (google.api.http) = {post: "/v1/**/**"}; }
		}`))
	r := catalog.Check(unfit)
	got := map[string][]string{}
	for _, f := range r.Findings {
		got[f.Code] = append(got[f.Code], f.Subject)
		if f.Message == "" || f.Severity == "" || f.Backend != "test" {
			t.Errorf("finding = %+v", f)
		}
	}
	const svc = "acme.v1.SomeServiceWithAVeryLongName"
	want := map[string][]string{
		"comment-missing":       {svc + ".AndAMethodWithAnEvenLongerName"},
		"field-comment-missing": {svc},
		"name-cut":              {unfit.Method("/" + svc + "/AndAMethodWithAnEvenLongerName").Tool.Name},
		"route-dropped":         {"POST /v1/**/**"},
		"write-unannotated":     {svc + ".AndAMethodWithAnEvenLongerName", svc + ".Put"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || r.Fit || r.Totals.FieldsWithoutComment != 7 || r.Totals.Routes != 1 {
		t.Errorf("Check found %v in %+v, want %v", got, r.Totals, want)
	}
	b, err := json.Marshal(r)
	if err != nil || !strings.HasPrefix(string(b), `{"fit":false,"totals":{"backends":1,"services":1,`) || !strings.Contains(string(b), `"code":"name-cut","severity":"warning"`) {
		t.Errorf("Marshal = %s, %v", b, err)
	}
}
