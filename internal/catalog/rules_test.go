package catalog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/toolschema"
)

const ordersProto = `syntax = "proto3"; package shop.v1; import "google/api/annotations.proto"; import "toolway/v1/options.proto";
	message Order { string name = 1; Customer customer = 2; repeated Item items = 3; int64 revision = 4; }
	message Customer { string email = 1; Address address = 2; }
	message Address { string city = 1; string street = 2; }
	message Item { string sku = 1; double price = 2; }
	message Get { string name = 1; }
	message Page { string cursor = 1; repeated Order orders = 2; }
	service Orders {
		option (toolway.v1.service) = {labels: "read" scopes: "shop.read"};
		rpc GetOrder(Get) returns (Order) { option (google.api.http) = {get: "/v1/{name=orders/*}"}; }
		rpc PutOrder(Order) returns (Order) { option idempotency_level = IDEMPOTENT; }
		rpc Watch(Page) returns (stream Order);
		rpc Upload(stream Order) returns (Page);
		rpc Annotated(Get) returns (Order) { option (toolway.v1.method) = {scopes: "shop.write" approval: APPROVAL_APPROVER cost: 3 timeout: {seconds: 9} title: "From the contract"}; }
	}
	service Admin { rpc Wipe(Get) returns (Get); }`

// served opens a catalog of one backend with rules.
func served(t *testing.T, source string, rules []catalog.Rule, expose catalog.Exposure) *catalog.Snapshot {
	t.Helper()
	return servedBy(t, catalog.Config{Rules: rules, Expose: expose}, compileOne(t, source))
}

func servedBy(t *testing.T, cfg catalog.Config, set *descriptorpb.FileDescriptorSet) *catalog.Snapshot {
	t.Helper()
	cfg.Backends = []catalog.BackendConfig{{Name: "shop", Sources: []catalog.Source{catalog.File(writeSet(t, "shop.binpb", set))}}}
	return open(t, cfg).Snapshot()
}

func to[T any](v T) *T { return &v }

// found returns the findings with a code, one a line.
func found(s *catalog.Snapshot, code string) string {
	var out []string
	for _, f := range s.Findings() {
		if f.Code == code {
			out = append(out, f.Message)
		}
	}
	return strings.Join(out, "\n")
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, method string
		want            bool
	}{
		{"shop.v1.Orders/GetOrder", "/shop.v1.Orders/GetOrder", true},
		{"/shop.v1.Orders/GetOrder", "/shop.v1.Orders/GetOrder", true},
		{"shop.v1.Orders", "/shop.v1.Orders/GetOrder", true},
		{"shop.v1.Orders", "/shop.v1.OrdersX/GetOrder", false},
		{"shop.v1.*", "/shop.v1.Orders/GetOrder", true},
		{"shop.v1.*", "/shop.v10.Orders/GetOrder", false},
		{"shop.*", "/shop.v1.Orders/GetOrder", true},
		{"*", "/shop.v1.Orders/GetOrder", true},
		{"*.Orders", "/shop.v1.Orders/GetOrder", true},
		{"*/Get*", "/shop.v1.Orders/GetOrder", true},
		{"*/Get*", "/shop.v1.Get/Put", false},
		{"*Get*", "/shop.v1.Orders/GetOrder", false}, // without a slash it is the service that is named
		{"shop.*.Ord*/*Ord*", "/shop.v1.Orders/GetOrder", true},
		{"shop.v1.Orders/*Order", "/shop.v1.Orders/Order", true},
		{"shop.v1.Orders/Get*Get", "/shop.v1.Orders/Get", false}, // the two ends do not overlap
		{"shop.v1.Orders/getorder", "/shop.v1.Orders/GetOrder", false},
	} {
		p, err := catalog.ParsePattern(c.pattern)
		if err != nil {
			t.Errorf("ParsePattern(%q): %v", c.pattern, err)
		} else if got := p.Match(c.method); got != c.want {
			t.Errorf("Match(%q, %q) = %v, want %v", c.pattern, c.method, got, c.want)
		}
	}
	for _, bad := range []string{"", "/", "a b", "a/b/c", "shop.v1.Orders/Get[A-Z]", "é"} {
		if _, err := catalog.ParsePattern(bad); err == nil {
			t.Errorf("ParsePattern(%q) took it", bad)
		}
	}
}

func TestRulesOverContract(t *testing.T) {
	s := served(t, ordersProto, []catalog.Rule{
		{Where: "policy[0]", Methods: []string{"shop.v1.*"}, Scopes: []string{"all"}, Cost: to(2), Timeout: to(time.Minute), MaxResultBytes: to(100)},
		{Where: "policy[1]", Methods: []string{"*/Annotated"}, Approval: to(catalog.ApprovalNone), Scopes: []string{}, Title: to("From the operator"), Priority: to(catalog.PriorityHigh)},
		{Where: "policy[2]", Backend: "shop", Labels: []string{"read"}, SetLabels: []string{"orders"}},
		{Where: "policy[3]", Labels: []string{"orders"}, Methods: []string{"*/GetOrder"}, ReadOnly: to(true), CacheTTL: to(time.Hour), OpenWorld: to(false), ToolName: to("find_order"),
			Description: to("Finds an order."), Examples: []string{`{"name": "orders/1"}`}},
		{Where: "policy[4]", Methods: []string{"shop.v1.Orders/PutOrder"}, KeyTemplate: to("{name}:{customer.address.city}"), KeyRequired: to(true), Retry: to(false)},
		{Where: "policy[5]", Methods: []string{"shop.v1.Orders/Watch"}, CursorField: to("cursor"), EventIDField: to("name"), EventTypeField: to("customer.email")},
	}, catalog.Exposure{})
	if len(s.Findings()) > 0 {
		t.Errorf("findings: %+v, want none", s.Findings())
	}
	m := s.Method("/shop.v1.Orders/Annotated")
	p := m.Policy
	if len(p.Scopes) != 0 || p.Approval != catalog.ApprovalNone || p.Cost != 2 || p.Priority != catalog.PriorityHigh || m.Timeout != time.Minute || m.Tool.Title != "From the operator" || p.MaxResultBytes != 100 {
		t.Errorf("Annotated: %+v, timeout %v, title %q", p, m.Timeout, m.Tool.Title)
	}
	for name, want := range map[string]string{"scopes": "policy[1]", "cost": "policy[0]", "timeout": "policy[0]", "title": "policy[1]", "labels": "policy[2]", "approver_scope": ""} {
		if got := p.From[name]; got != want {
			t.Errorf("origin of %s = %q, want %q", name, got, want)
		}
	}
	get := s.Method("/shop.v1.Orders/GetOrder")
	if get.Tool.Name != "find_order" || s.Tool("find_order") != get || !strings.HasPrefix(get.Tool.Description, "Finds an order.\n\nExample: {\"name\":\"orders/1\"}\n\nCalls") {
		t.Errorf("GetOrder is the tool %q: %q", get.Tool.Name, get.Tool.Description)
	}
	if p := get.Policy; p.CacheTTL != time.Hour || !p.Retry || get.Tool.Hints != (catalog.Hints{ReadOnly: true, Idempotent: true}) || fmt.Sprint(p.Labels) != "[orders]" || p.From["retry"] != "policy[3]" {
		t.Errorf("GetOrder: %+v %+v", p, get.Tool.Hints)
	}
	put := s.Method("/shop.v1.Orders/PutOrder")
	if p := put.Policy; p.KeyTemplate == "" || !p.KeyRequired || p.Retry || p.From["retry"] != "policy[4]" || p.From["idempotent"] != "idempotency_level = IDEMPOTENT" {
		t.Errorf("PutOrder: %+v", p)
	}
	if k := put.KeyTemplate(); k == nil || strings.Join(k.Fields(), " ") != "name customer.address.city" {
		t.Errorf("PutOrder's key = %v", k)
	}
	if p := s.Method("/shop.v1.Orders/Watch").Policy; p.CursorField != "cursor" || p.EventIDField != "name" || p.EventTypeField != "customer.email" {
		t.Errorf("Watch: %+v", p)
	}
}

// A contract alone says where its values come from, too.
func TestOriginsOfContract(t *testing.T) {
	s := served(t, ordersProto, nil, catalog.Exposure{})
	for method, want := range map[string]string{
		"Orders/GetOrder":  "map[idempotent:HTTP verb GET labels:option (toolway.v1.service).labels read_only:HTTP verb GET scopes:option (toolway.v1.service).scopes]",
		"Orders/PutOrder":  "map[idempotent:idempotency_level = IDEMPOTENT labels:option (toolway.v1.service).labels retry:idempotency_level = IDEMPOTENT scopes:option (toolway.v1.service).scopes]",
		"Orders/Annotated": "map[approval:option (toolway.v1.method).approval cost:option (toolway.v1.method).cost labels:option (toolway.v1.service).labels scopes:option (toolway.v1.method).scopes timeout:option (toolway.v1.method).timeout title:option (toolway.v1.method).title]",
		"Admin/Wipe":       "map[]",
	} {
		if got := fmt.Sprint(s.Method("/shop.v1." + method).Policy.From); got != want {
			t.Errorf("origins of %s = %s, want %s", method, got, want)
		}
	}
}

func TestRuleFaults(t *testing.T) {
	one := func(r catalog.Rule) []catalog.Rule { r.Where = "policy[0]"; return []catalog.Rule{r} }
	for name, c := range map[string]struct {
		rule       catalog.Rule
		code, want string
	}{
		"service":        {catalog.Rule{Methods: []string{"shop.v1.Order"}}, "policy-unmatched", `policy[0]: "shop.v1.Order" names no method; did you mean "shop.v1.Orders"?`},
		"method":         {catalog.Rule{Methods: []string{"shop.v1.Orders", "shop.v1.Orders/GetOder"}}, "policy-unmatched", `did you mean "shop.v1.Orders/GetOrder"?`},
		"star":           {catalog.Rule{Methods: []string{"shop.v2.*"}}, "policy-unmatched", `"shop.v2.*" names no method`},
		"backend":        {catalog.Rule{Backend: "shp"}, "policy-unmatched", `there is no backend "shp"; did you mean "shop"?`},
		"label":          {catalog.Rule{Labels: []string{"write"}}, "policy-unmatched", "names no method with label write"},
		"field":          {catalog.Rule{Methods: []string{"*/GetOrder"}, Fields: []catalog.FieldRule{{Path: "customer.emial", Sensitive: to(true)}}}, "policy-field-unknown", `shop.v1.Customer has no field "emial"; did you mean "email"?`},
		"key field":      {catalog.Rule{Methods: []string{"*/PutOrder"}, KeyTemplate: to("{nme}")}, "idempotency-key-invalid", `policy[0].idempotency.key_template of shop.v1.Orders.PutOrder: key template "{nme}": field "nme": shop.v1.Order has no field "nme"; did you mean "name"?`},
		"key list":       {catalog.Rule{Methods: []string{"*/PutOrder"}, KeyField: to("items")}, "idempotency-key-invalid", "is repeated"},
		"cursor":         {catalog.Rule{Methods: []string{"*/Watch"}, CursorField: to("cursr")}, "stream-invalid", `did you mean "cursor"?`},
		"cursor unary":   {catalog.Rule{Methods: []string{"*/GetOrder"}, CursorField: to("name")}, "stream-invalid", "does not stream"},
		"cache":          {catalog.Rule{Methods: []string{"*/PutOrder"}, CacheTTL: to(time.Hour)}, "policy-contradiction", "nothing is cached"},
		"cache on verb":  {catalog.Rule{Methods: []string{"*/GetOrder"}, CacheTTL: to(time.Hour)}, "policy-contradiction", "an HTTP verb is not enough"},
		"timeouts":       {catalog.Rule{Methods: []string{"*/Annotated"}, MaxTimeout: to(time.Second)}, "option-contradiction", "above its max_timeout"},
		"both hints":     {catalog.Rule{Methods: []string{"*/Wipe"}, ReadOnly: to(true), Destructive: to(true)}, "option-contradiction", "read-only is taken"},
		"example":        {catalog.Rule{Methods: []string{"*/GetOrder"}, Examples: []string{`{"nam": "x"}`}}, "example-invalid", `unknown field "nam"; did you mean "name"?`},
		"example hidden": {catalog.Rule{Methods: []string{"*/GetOrder"}, Examples: []string{"{\"name\": \"x\u200b\"}"}}, "example-invalid", "invisible"},
		"example long":   {catalog.Rule{Methods: []string{"*/GetOrder"}, Examples: []string{`{"name": "` + strings.Repeat("x", 600) + `"}`}}, "example-left-out", "512 characters"},
		"scope":          {catalog.Rule{Methods: []string{"*/GetOrder"}, Scopes: []string{"a b"}}, "scope-invalid", "no door serves the method"},
		"tool name":      {catalog.Rule{Methods: []string{"*/GetOrder"}, ToolName: to("get order")}, "tool-name-invalid", "not served"},
		"one name":       {catalog.Rule{Methods: []string{"*/GetOrder", "*/PutOrder"}, ToolName: to("order")}, "tool-clash", "is taken"},
		"stream approve": {catalog.Rule{Methods: []string{"*/Upload"}, Approval: to(catalog.ApprovalConfirm)}, "approval-impossible", "no door serves the method"},
		"stream key":     {catalog.Rule{Methods: []string{"*/Upload"}, KeyField: to("name")}, "idempotency-key-invalid", "there is no key"},
		"stream need":    {catalog.Rule{Methods: []string{"*/Upload"}, KeyRequired: to(true)}, "idempotency-key-invalid", "no door serves the method"},
		"stream cache":   {catalog.Rule{Methods: []string{"*/Upload"}, ReadOnly: to(true), CacheTTL: to(time.Hour)}, "policy-contradiction", "nothing is cached"},
	} {
		s := served(t, ordersProto, one(c.rule), catalog.Exposure{})
		if got := found(s, c.code); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s = %q, want %q among %+v", name, c.code, got, c.want, s.Findings())
		}
		if name == "stream approve" || name == "stream need" || name == "scope" {
			method := "Upload"
			if name == "scope" {
				method = "GetOrder"
			}
			if m := s.Method("/shop.v1.Orders/" + method); m.Exposed(catalog.DoorGRPC) || m.Exposed(catalog.DoorMCP) || m.Exposed(catalog.DoorHTTP) {
				t.Errorf("%s: a door exposes the method", name)
			}
		}
	}
}

// While a backend has not been read, nobody knows whether a rule is wrong.
func TestRuleForUnreadBackend(t *testing.T) {
	c := open(t, catalog.Config{
		Backends: []catalog.BackendConfig{{Name: "away", Sources: []catalog.Source{catalog.Kept("nothing.binpb")}}},
		Rules:    []catalog.Rule{{Where: "policy[0]", Methods: []string{"shop.v1.Orders"}}},
		Expose:   catalog.Exposure{Listed: []string{"shop.v1.Orders"}},
	})
	if got := found(c.Snapshot(), "policy-unmatched"); got != "" {
		t.Errorf("finding %q about a contract that is not known", got)
	}
}

func TestFieldRules(t *testing.T) {
	s := served(t, ordersProto, []catalog.Rule{
		{Where: "policy[0]", Methods: []string{"shop.v1.Orders"}, Fields: []catalog.FieldRule{{Path: "customer.email", Sensitive: to(true), Label: to("pii")}, {Path: "items.price", Redact: to(true)}}},
		{Where: "policy[1]", Methods: []string{"*/PutOrder"}, Fields: []catalog.FieldRule{{Path: "items.price", Sensitive: to(false)}, {Path: "customer.address", Label: to("place")}}},
	}, catalog.Exposure{})
	if len(s.Findings()) > 0 {
		t.Errorf("findings: %+v, want none: one method with the field is enough", s.Findings())
	}
	for _, c := range []struct {
		method string
		dir    toolschema.Direction
		want   string
	}{
		{"GetOrder", toolschema.Input, ""},
		{"GetOrder", toolschema.Output, "customer.email sensitive pii; items.price sensitive redact"},
		{"PutOrder", toolschema.Input, "customer.email sensitive pii; customer.address place"},
		{"Upload", toolschema.Output, ""},
	} {
		set := s.Method("/shop.v1.Orders/" + c.method).Sensitive(c.dir)
		if got := paths(set); got != c.want {
			t.Errorf("%s: marked fields = %q, want %q", c.method, got, c.want)
		}
		if set.Redacts() != strings.Contains(c.want, "redact") {
			t.Errorf("%s: Redacts() = %v", c.method, set.Redacts())
		}
	}
}

func TestExposure(t *testing.T) {
	const all = "grpc, mcp, http"
	doors := func(m *catalog.Method) string {
		var d catalog.Doors
		for _, one := range []catalog.Doors{catalog.DoorGRPC, catalog.DoorMCP, catalog.DoorHTTP} {
			if m.Exposed(one) {
				d |= one
			}
		}
		return d.String()
	}
	rules := []catalog.Rule{{Where: "policy[0]", Methods: []string{"*/Watch"}, Doors: to(catalog.DoorGRPC)}, {Where: "policy[1]", Methods: []string{"*/PutOrder"}, Doors: to(catalog.Doors(0))}}
	for _, c := range []struct {
		name   string
		expose catalog.Exposure
		want   map[string]string
	}{
		{"all", catalog.Exposure{}, map[string]string{"GetOrder": all, "Watch": "grpc", "PutOrder": "none", "Annotated": all}},
		{"listed", catalog.Exposure{MCP: catalog.ExposeListed, HTTP: catalog.ExposeListed, Listed: []string{"*/GetOrder"}},
			map[string]string{"GetOrder": all, "Watch": "grpc", "PutOrder": "none", "Annotated": "grpc", "Upload": "grpc"}},
		{"annotated", catalog.Exposure{GRPC: catalog.ExposeAnnotated, MCP: catalog.ExposeAnnotated, HTTP: catalog.ExposeListed, Listed: []string{"*/GetOrder"}},
			map[string]string{"GetOrder": all, "Watch": "grpc", "Annotated": "grpc, mcp", "Upload": "none"}},
	} {
		s := served(t, ordersProto, rules, c.expose)
		for method, want := range c.want {
			m := s.Method("/shop.v1.Orders/" + method)
			if got := doors(m); got != want {
				t.Errorf("%s: %s is exposed by %s, want %s", c.name, method, got, want)
			}
			if listed := strings.Contains(strings.Join(toolNames(s), " "), m.Tool.Name); listed != m.Exposed(catalog.DoorMCP) {
				t.Errorf("%s: %s is listed as a tool: %v", c.name, method, listed)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	asked := 0
	s := servedBy(t, catalog.Config{Judge: func(m *catalog.Method) string {
		asked++
		if m.Tool.Name == "orders_get_order" {
			return "its definition has changed"
		}
		return ""
	}}, compileOne(t, ordersProto))
	m := s.Tool("orders_get_order")
	if m == nil || m.Quarantine != "its definition has changed" || m.Exposed(catalog.DoorMCP) != true {
		t.Fatalf("quarantined tool: %+v", m)
	}
	if names := toolNames(s); strings.Contains(strings.Join(names, " "), "orders_get_order") || len(names) != 5 {
		t.Errorf("tools = %v, want all but the quarantined one", names)
	}
	if got := found(s, "tool-quarantined"); !strings.Contains(got, `tool "orders_get_order" (shop.v1.Orders.GetOrder) is not listed and its calls are refused: its definition has changed`) {
		t.Errorf("finding = %q", got)
	}
	if asked != 6 {
		t.Errorf("asked %d times about 6 methods", asked)
	}
}
