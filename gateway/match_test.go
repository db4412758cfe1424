package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

const vault = "/vault.v1.Vault/"

func vaultSnapshot(t *testing.T) *catalog.Snapshot {
	t.Helper()
	set, err := compileSet("vault.proto")
	if err != nil {
		t.Fatal(err)
	}
	s, err := catalog.Static("vault", set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// vaultServer holds one document, whose etag is that of the test; it answers writes as AIP-154 says.
type vaultServer struct {
	snapshot    *catalog.Snapshot
	title, etag string
	fail        error
	got         string // the etag of the last write
	calls       int
}

func (v *vaultServer) handle(s grpc.ServerStream) error {
	c := call.FromContext(s.Context())
	name := string(c.Method.Desc.Name())
	req := dynamicpb.NewMessage(c.Method.Desc.Input())
	if err := s.RecvMsg(req); err != nil {
		return err
	}
	v.calls++
	doc := func(md protoreflect.MessageDescriptor) *dynamicpb.Message {
		m := dynamicpb.NewMessage(md)
		m.Set(md.Fields().ByName("title"), protoreflect.ValueOfString(v.title))
		m.Set(md.Fields().ByName("etag"), protoreflect.ValueOfString(v.etag))
		return m
	}
	out := c.Method.Desc.Output()
	switch name {
	case "GetDoc":
		return s.SendMsg(doc(out))
	case "ReadDoc":
		m := dynamicpb.NewMessage(out)
		fd := out.Fields().ByName("doc")
		m.Set(fd, protoreflect.ValueOfMessage(doc(fd.Message())))
		return s.SendMsg(m)
	case "UpdateDoc":
		d := req.Get(req.Descriptor().Fields().ByName("doc")).Message()
		v.got = d.Get(d.Descriptor().Fields().ByName("etag")).String()
	case "DeleteDoc", "PublishDoc":
		v.got = req.Get(req.Descriptor().Fields().ByName("etag")).String()
	}
	switch {
	case v.fail != nil:
		return v.fail
	case v.got != "" && v.got != v.etag:
		return status.Error(codes.Aborted, "changed meanwhile")
	case out.Name() == "Doc":
		return s.SendMsg(doc(out))
	}
	return s.SendMsg(dynamicpb.NewMessage(out))
}

func newVault(t *testing.T) (*vaultServer, *gateway.Gateway) {
	t.Helper()
	v := &vaultServer{snapshot: vaultSnapshot(t), title: "one", etag: "rev-1"}
	return v, gateway.New(gateway.Config{Catalog: catalog.Fixed(v.snapshot), Handler: v.handle})
}

func TestIfMatch(t *testing.T) {
	v, g := newVault(t)
	whole := do(g, http.MethodGet, "/v1/docs/a", "").Header.Get("ETag")
	if !strings.HasPrefix(whole, `"rev-1~`) {
		t.Fatalf("ETag = %s, want the resource's own and a hash", whole)
	}
	const own = `"rev-1"`
	patch := []string{http.MethodPatch, "/v1/docs/a", `{"title":"T"}`}
	remove := []string{http.MethodDelete, "/v1/docs/a", ""}
	publish := []string{http.MethodPost, "/v1/docs/a:publish", `{}`}
	rpc := []string{http.MethodPost, vault + "UpdateDoc", `{"doc":{"name":"docs/a"}}`}
	body := []string{http.MethodPost, "/v1/docs/a:publish", `{"etag":"rev-1"}`}
	for _, c := range []struct {
		name    string
		request []string
		match   string
		want    int
		got     string // at the backend
		text    string // in the answer
	}{
		{"none", patch, "", 200, "", ""},
		{"of a GET, in the resource", patch, whole, 200, "rev-1", ""},
		{"the resource's own", patch, own, 200, "rev-1", ""},
		{"in the request", remove, own, 200, "rev-1", ""},
		{"with a body", publish, whole, 200, "rev-1", ""},
		{"by the method's name", rpc, own, 200, "rev-1", ""},
		{"another", patch, `"rev-0"`, 412, "rev-0", "changed meanwhile"},
		{"another, of a GET", remove, `"rev-0~0123"`, 412, "rev-0", ""},
		{"any", remove, `*`, 200, "", ""},
		{"weak", remove, `W/"rev-1"`, 412, "-", "weak"},
		{"weak beside a strong one", remove, `W/"rev-2", "rev-1"`, 200, "rev-1", ""},
		{"two", remove, `"rev-1", "rev-2"`, 400, "-", "one etag"},
		{"no quotes", remove, `rev-1`, 400, "-", "If-Match: write it like"},
		{"open quotes", remove, `"rev-1`, 400, "-", "write it like"},
		{"nothing between", remove, `"a" "b"`, 400, "-", "write it like"},
		{"the same in the body", body, whole, 200, "rev-1", ""},
		{"another in the body", body, `"rev-2"`, 400, "-", `If-Match: the request's field \"etag\" says \"rev-1\"`},
		{"another in the query", []string{http.MethodDelete, "/v1/docs/a?etag=rev-1", ""}, `"rev-2"`, 400, "-", "give one of the two"},
		{"no field", []string{http.MethodPost, "/v1/docs:swap", `{}`}, own, 400, "-", "takes no etag"},
		{"a stream of requests", []string{http.MethodPost, vault + "UploadDocs", `{}`}, own, 400, "-", "stream of requests"},
		{"GET, the same", []string{http.MethodGet, "/v1/docs/a", ""}, whole, 200, "", "rev-1"},
		{"GET, the resource's own among others", []string{http.MethodGet, "/v1/docs/a", ""}, `"x", "rev-1"`, 200, "", "rev-1"},
		{"GET, any", []string{http.MethodGet, "/v1/docs/a", ""}, `*`, 200, "", "rev-1"},
		{"GET, another", []string{http.MethodGet, "/v1/docs/a", ""}, `"rev-2"`, 412, "", "another etag"},
		{"GET, weak", []string{http.MethodGet, "/v1/docs/a", ""}, `W/` + whole, 412, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v.got, v.calls = "", 0
			var header []string
			if c.match != "" {
				header = []string{"If-Match", c.match}
			}
			if c.request[1] == vault+"UploadDocs" {
				header = append(header, "Content-Type", "application/x-ndjson")
			}
			res := do(g, c.request[0], c.request[1], c.request[2], header...)
			if body := text(t, res); res.StatusCode != c.want || !strings.Contains(body, c.text) {
				t.Errorf("%d %s, want %d with %q", res.StatusCode, body, c.want, c.text)
			}
			if want := strings.TrimPrefix(c.got, "-"); v.got != want || (c.got == "-") != (v.calls == 0) {
				t.Errorf("the backend got %q in %d calls, want %q", v.got, v.calls, c.got)
			}
		})
	}
}

// Only what the backend says of the resource becomes 412, and only where If-Match was sent.
func TestIfMatchFails(t *testing.T) {
	v, g := newVault(t)
	detailed := func(c codes.Code, domain, reason string) error {
		st, err := status.New(c, "no").WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: reason})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	for _, c := range []struct {
		name  string
		err   error
		match string
		want  int
	}{
		{"aborted", status.Error(codes.Aborted, "no"), `"a"`, 412},
		{"aborted without If-Match", status.Error(codes.Aborted, "no"), "", 409},
		{"with the reason", detailed(codes.Aborted, "vault", "ETAG_MISMATCH"), `"a"`, 412},
		{"another code with the reason", detailed(codes.FailedPrecondition, "vault", "ETAG_MISMATCH"), `"a"`, 412},
		{"another precondition", detailed(codes.FailedPrecondition, "vault", "LOCKED"), `"a"`, 400},
		{"the mesh's own", detailed(codes.Aborted, call.Domain, "IDEMPOTENCY_IN_PROGRESS"), `"a"`, 409},
		{"not found", status.Error(codes.NotFound, "no"), `"a"`, 404},
		{"not found, any", status.Error(codes.NotFound, "no"), `*`, 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			v.fail = c.err
			var header []string
			if c.match != "" {
				header = []string{"If-Match", c.match}
			}
			if res := do(g, http.MethodDelete, "/v1/docs/a", "", header...); res.StatusCode != c.want {
				t.Errorf("%d %s, want %d", res.StatusCode, text(t, res), c.want)
			}
		})
	}
}

// What a GET says as ETag can be given back as If-Match, whatever the etag is; and it changes with all that is shown.
func TestETagRoundTrips(t *testing.T) {
	v, g := newVault(t)
	for _, etag := range []string{"a", "rev-1", `"quoted"`, "with space", "50%", "a~b", "%41", "über", "\t", `back\slash`, "a,b"} {
		for _, path := range []string{"/v1/docs/a", "/v1/docs/a:read"} {
			v.etag, v.title = etag, "one"
			first := do(g, http.MethodGet, path, "").Header.Get("ETag")
			if res := do(g, http.MethodDelete, "/v1/docs/a", "", "If-Match", first); res.StatusCode != http.StatusOK || v.got != etag {
				t.Errorf("etag %q as %s: %d, the backend got %q", etag, first, res.StatusCode, v.got)
			}
			if res := do(g, http.MethodGet, path, "", "If-None-Match", first); res.StatusCode != http.StatusNotModified {
				t.Errorf("etag %q: If-None-Match %s = %d, want 304", etag, first, res.StatusCode)
			}
			v.title = "two"
			if res := do(g, http.MethodGet, path, "", "If-None-Match", first); res.StatusCode != http.StatusOK {
				t.Errorf("etag %q: after a change that left the etag, If-None-Match = %d, want 200", etag, res.StatusCode)
			}
		}
	}
	for _, etag := range []string{"", `W/"weak"`, strings.Repeat("x", 1025)} {
		v.etag = etag
		if got := do(g, http.MethodGet, "/v1/docs/a", "").Header.Get("ETag"); strings.Contains(got, "~") || len(got) != 26 {
			t.Errorf("etag %.20q: ETag = %s, want the hash alone", etag, got)
		}
	}
}

func TestOpenAPIHasIfMatch(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In, Description string }
		}
	}
	if err := json.Unmarshal(openAPIOf(t, vaultSnapshot(t)), &doc); err != nil {
		t.Fatal(err)
	}
	has := func(path, verb string) string {
		for _, p := range doc.Paths[path][verb].Parameters {
			if p.Name == "If-Match" && p.In == "header" {
				return p.Description
			}
		}
		return ""
	}
	if got := has("/v1/docs/{name}", "patch"); !strings.Contains(got, `"doc.etag"`) || !strings.Contains(got, "412") {
		t.Errorf("PATCH: If-Match = %q, want what it fills", got)
	}
	for _, c := range [][2]string{{"/v1/docs/{name}", "get"}, {"/v1/docs:swap", "post"}} {
		if got := has(c[0], c[1]); got != "" {
			t.Errorf("%s %s: If-Match = %q, want none", c[1], c[0], got)
		}
	}
}

func FuzzIfMatch(f *testing.F) {
	for _, s := range []string{`"a"`, `W/"a", "b~c"`, `*`, `"`, `,`, `"%41~"`, "\"\x00\""} {
		f.Add(s)
	}
	set, err := compileSet("vault.proto")
	if err != nil {
		f.Fatal(err)
	}
	s, err := catalog.Static("vault", set)
	if err != nil {
		f.Fatal(err)
	}
	v := &vaultServer{snapshot: s, title: "one", etag: "a"}
	g := gateway.New(gateway.Config{Catalog: catalog.Fixed(s), Handler: v.handle})
	f.Fuzz(func(t *testing.T, header string) {
		for _, verb := range []string{http.MethodGet, http.MethodDelete} {
			switch res := do(g, verb, "/v1/docs/a", "", "If-Match", header); res.StatusCode {
			case http.StatusOK, http.StatusPreconditionFailed, http.StatusBadRequest:
			default:
				t.Errorf("%s with If-Match %q = %d", verb, header, res.StatusCode)
			}
		}
	})
}
