package gateway_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
)

func TestRequestMapping(t *testing.T) {
	const shelf = `/v1/shelves/s1/books`
	tests := []struct {
		name, verb, target, body string
		method, want             string
	}{
		{"literals inside a variable", "GET", shelf + "/b1", "", "GetBook", `{"name":"shelves/s1/books/b1"}`},
		{"additional binding", "GET", "/v1/books/b1", "", "GetBook", `{"name":"b1"}`},
		{"literal before variable", "GET", "/v1/shelves/first/books/b1", "", "FirstBook", `{"name":"b1"}`},
		{"verb", "GET", shelf + "/b1:read", "", "ReadBook", `{"name":"shelves/s1/books/b1"}`},
		{"unknown verb is data", "GET", shelf + "/b1:other", "", "GetBook", `{"name":"shelves/s1/books/b1:other"}`},
		{"escaped verb is data", "GET", shelf + "/b1%3Aread", "", "GetBook", `{"name":"shelves/s1/books/b1:read"}`},
		{"decoded once", "DELETE", shelf + "/foo%7Cbar%2541", "", "DeleteBook", `{"name":"shelves/s1/books/foo|bar%41"}`},
		{"utf-8, space and plus in the path", "GET", "/v1/books/%C3%A9%20a+b", "", "GetBook", `{"name":"é a+b"}`},
		{"slash in a variable of one segment", "GET", "/v1/books/a%2Fb", "", "GetBook", `{"name":"a/b"}`},
		{"slash in a variable of several stays escaped", "GET", shelf + "/a%2Fb", "", "GetBook", `{"name":"shelves/s1/books/a%2Fb"}`},
		{"unreserved escapes in literals", "GET", "/v1/b%6Foks/b1", "", "GetBook", `{"name":"b1"}`},
		{"deep wildcard", "GET", "/v1/any/a/b/c%20d", "", "Any", `{"name":"a/b/c d"}`},
		{"deep wildcard, any HTTP method", "REPORT", "/v1/any/a", "", "Any", `{"name":"a"}`},
		{"deep wildcard with a tail", "GET", "/v1/files/x/y/tail", "", "Tail", `{"name":"x/y"}`},
		{"custom kind", "HEAD", "/v1/probe/p", "", "Probe", `{"name":"p"}`},
		{"HEAD is GET for unary methods", "HEAD", "/v1/books/b1", "", "GetBook", `{"name":"b1"}`},
		{"body field", "POST", shelf + "?book_id=7", `{"title":"T"}`, "CreateBook", `{"parent":"shelves/s1","book":{"title":"T"},"book_id":"7"}`},
		{"path over body", "PUT", "/v1/sink/7", `{"int32Value":5,"int64Value":"9"}`, "Sort", `{"int32_value":7,"int64_value":"9"}`},
		{"zero in the path over body", "PUT", "/v1/sink/0", `{"int32Value":5}`, "Sort", `{}`},
		{"nested path over body", "PATCH", shelf + "/b1?updateMask=title", `{"name":"x","title":"T"}`, "UpdateBook", `{"book":{"name":"shelves/s1/books/b1","title":"T"},"update_mask":"title"}`},
		{"no body for a rule with one", "PUT", "/v1/sink/7", "", "Sort", `{"int32_value":7}`},
		{"proto and JSON names", "GET", shelf + "?page_size=3&pageToken=x%26y+z", "", "ListBooks", `{"parent":"shelves/s1","page_size":3,"page_token":"x&y z"}`},
		{"nested query", "GET", shelf + "?filter.words=a&filter.words=b&filter.color=RED&filter.since=2026-01-02T03:04:05Z&filter.lent=true&filter.author.given=G", "", "ListBooks",
			`{"parent":"shelves/s1","filter":{"words":["a","b"],"color":"RED","since":"2026-01-02T03:04:05Z","lent":true,"author":{"given":"G"}}}`},
		{"enum number, repeated scalars, bytes", "GET", "/v1/sink?color=2&numbers=1&numbers=2&data=aGk=&wait=3s", "", "Sort", `{"color":"GREEN","numbers":[1,2],"data":"aGk=","wait":"3s"}`},
		{"body field in another", "POST", "/v1/sink:given", `"G"`, "Sort", `{"inner":{"given":"G"}}`},
		{"without a rule", "POST", library + "Plain", `{"name":"n"}`, "Plain", `{"name":"n"}`},
		{"without a rule, no body", "POST", library + "Plain", "", "Plain", `{}`},
		{"with a rule, as RPC", "POST", library + "GetBook", `{"name":"n"}`, "GetBook", `{"name":"n"}`},
		{"empty object where no body is taken", "DELETE", shelf + "/b1", "{}", "DeleteBook", `{"name":"shelves/s1/books/b1"}`},
		{"raw body field", "PUT", "/v1/pages/p", "<raw>", "PutPages", `{"name":"p","pages":{"content_type":"application/json","data":"PHJhdz4="}}`},
	}
	b := &backend{}
	g := newGateway(t, b, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := do(g, tt.verb, tt.target, tt.body)
			if res.StatusCode != http.StatusOK {
				t.Fatalf("%s %s = %d %s", tt.verb, tt.target, res.StatusCode, text(t, res))
			}
			method, got, _ := b.last()
			if method != library+tt.method || !sameJSON(t, got, tt.want) {
				t.Errorf("%s %s called %s with %s, want %s with %s", tt.verb, tt.target, method, got, tt.method, tt.want)
			}
		})
	}
}

func TestUpdateMask(t *testing.T) {
	const target = "/v1/shelves/s/books/b"
	tests := []struct{ name, target, body, want string }{
		{"leaves", target, `{"title":"T","author":{"family":"F"}}`, "title,author.family"},
		{"never inside free-form and repeated", target,
			`{"meta":{"k":"v"},"labels":{"a":"b"},"flag":{},"extra":[{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1s"}]}`, "meta,labels,flag,extra"},
		{"null clears", target, `{"author":null,"published":null}`, "author,published"},
		{"empty message", target, `{"author":{}}`, "author"},
		{"given wins", target + "?update_mask=pages", `{"title":"T"}`, "pages"},
	}
	b := &backend{}
	g := newGateway(t, b, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := do(g, "PATCH", tt.target, tt.body)
			if res.StatusCode != http.StatusOK {
				t.Fatalf("PATCH %s = %d %s", tt.body, res.StatusCode, text(t, res))
			}
			_, request, _ := b.last()
			var got struct {
				Mask string `json:"update_mask"`
			}
			if err := json.Unmarshal([]byte(request), &got); err != nil || got.Mask != tt.want {
				t.Errorf("PATCH %s: mask %q, want %q (%v)", tt.body, got.Mask, tt.want, err)
			}
		})
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}
