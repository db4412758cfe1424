package lock_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/lock"
)

// TestGitHubLines pins that an annotation is at the line that holds what has changed, or would.
func TestGitHubLines(t *testing.T) {
	before := lock.Of(snapshot(t, catalog.Config{}, shop))
	text := before.Encode()
	lines := strings.Split(string(text), "\n")
	for _, c := range []struct{ name, from, to, block, line string }{
		{"scope gone", `"a", "b"`, `"a"`, "shop.v1.Orders/Put", `"b"`},
		{"scope new", `"a", "b"`, `"a", "b", "c"`, "shop.v1.Orders/Put", `"scopes": [`},
		{"first scope", "rpc Tail(FindRequest) returns (stream Order) { option idempotency_level = NO_SIDE_EFFECTS; option (toolway.v1.method) = {",
			"rpc Tail(FindRequest) returns (stream Order) { option idempotency_level = NO_SIDE_EFFECTS; option (toolway.v1.method) = {scopes: 'a' ", "shop.v1.Orders/Tail", `"policy": {`},
		{"timeout", "max_timeout: {seconds: 5}", "max_timeout: {seconds: 50}", "shop.v1.Orders/Put", `"max_timeout": "5s",`},
		{"sensitive no more", " [(toolway.v1.field).sensitive = true]", "", "shop.v1.Orders/Find", `"response items.note: sensitive"`},
		{"description", "Finds one order.", "Finds an order.", "shop.v1.Orders/Find", `"description": "Finds one order.`},
		{"annotation", `get: "/v1/{name=orders/*}"`, `post: "/v1/{name=orders/*}"`, "shop.v1.Orders/Find", `"readOnly": true,`},
		{"field", "The order's name.", "A name.", "shop.v1.FindRequest", `{"name":"name","type":"string"`},
		{"field new", "message Item {", "message Item { string color = 9;", "shop.v1.Item", `"fields": [`},
		{"value gone", " STATE_SHUT = 2;", "", "shop.v1.State", `{"name":"STATE_SHUT"`},
		{"tool gone", "rpc Tail(FindRequest) returns (stream Order) {", "rpc Other(FindRequest) returns (stream Order) {", "shop.v1.Orders/Tail", `"shop.v1.Orders/Tail": {`},
		{"tool new", "rpc Tail(", "rpc Wipe(Order) returns (Order); rpc Tail(", "", `{`},
	} {
		source := strings.Replace(shop, c.from, c.to, 1)
		if source == shop {
			t.Fatalf("%s: %q is not in the contract", c.name, c.from)
		}
		want := 0
		for in := c.block == ""; want < len(lines); want++ {
			in = in || strings.HasPrefix(strings.TrimSpace(lines[want]), `"`+c.block+`": {`)
			if in && strings.HasPrefix(strings.TrimSpace(lines[want]), c.line) {
				break
			}
		}
		if want == len(lines) {
			t.Fatalf("%s: the lock has no line %s:\n%s", c.name, c.line, text)
		}
		var out bytes.Buffer
		if err := lock.WriteGitHub(&out, "a.lock", text, lock.Compare(before, lock.Of(snapshot(t, catalog.Config{}, source)))); err != nil {
			t.Fatal(err)
		}
		if at := fmt.Sprintf(" file=a.lock,line=%d,", want+1); !strings.Contains(out.String(), at) {
			t.Errorf("%s: want%s in\n%s", c.name, at, out.String())
		}
	}
}
