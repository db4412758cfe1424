package gateway_test

import (
	"bufio"
	"encoding/base64"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/toolway/toolway/gateway"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// transcribedHeaders are the answer's headers that transcripts show, in this order.
var transcribedHeaders = []string{"Content-Type", "Allow", "Accept-Encoding", "Retry-After", "Www-Authenticate", "X-Request-Id", "Vary",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Access-Control-Expose-Headers", "Access-Control-Max-Age"}

// TestTranscripts replays the requests in testdata/*.txtar, each followed by its answer.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	b := &backend{snapshot: librarySnapshot(t)}
	b.handle = map[string]grpc.StreamHandler{library + "Plain": failing(t, b)}
	g := newGateway(t, b, func(c *gateway.Config) {
		c.AllowedOrigins = []string{"https://console.example.com"}
		c.AllowedHosts = []string{"mesh.example.com"}
		c.MaxBodyBytes = 256
	})
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			out := &txtar.Archive{Comment: ar.Comment}
			for i := 0; i+1 < len(ar.Files); i += 2 {
				in, want := ar.Files[i], ar.Files[i+1]
				got := exchange(t, g, in.Data)
				if got != string(want.Data) && !*update {
					t.Errorf("%s: got\n%s\nwant\n%s", in.Name, got, want.Data)
				}
				out.Files = append(out.Files, in, txtar.File{Name: "→", Data: []byte(got)})
			}
			if *update {
				if err := os.WriteFile(name, txtar.Format(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func exchange(t *testing.T, h http.Handler, in []byte) string {
	t.Helper()
	head, body, _ := strings.Cut(string(in), "\n\n")
	body = strings.TrimSuffix(body, "\n")
	raw := strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n"
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	if r.Host == "" {
		r.Host = "mesh.example.com"
	}
	if body != "" {
		r.Body, r.ContentLength = http.NoBody, int64(len(body))
		r.Body = readCloser{strings.NewReader(body)}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var out strings.Builder
	fmt.Fprintf(&out, "%d\n", w.Code)
	for _, k := range transcribedHeaders {
		for _, v := range w.Header().Values(k) {
			if k == "X-Request-Id" && r.Header.Get(k) != v {
				continue // one that the gateway made
			}
			fmt.Fprintf(&out, "%s: %s\n", k, v)
		}
	}
	if w.Body.Len() > 0 {
		fmt.Fprintf(&out, "\n%s\n", w.Body)
	}
	return out.String()
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// failing answers with the status that the request's name asks for.
func failing(t testing.TB, b *backend) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) error {
		in := b.book(t, "{}")
		if err := stream.RecvMsg(in); err != nil {
			return err
		}
		name := in.Get(in.Descriptor().Fields().ByName("name")).String()
		switch name {
		case "details":
			return withDetails(codes.InvalidArgument, "two fields are wrong",
				&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "title", Description: "too long"}}},
				&errdetails.ErrorInfo{Reason: "TITLE", Domain: "library", Metadata: map[string]string{"max": "80"}},
				&durationpb.Duration{Seconds: 3})
		case "backend-type":
			wire, err := proto.Marshal(b.book(t, `{"title":"Own"}`))
			if err != nil {
				return err
			}
			return status.FromProto(&spb.Status{Code: int32(codes.FailedPrecondition), Message: "own detail",
				Details: []*anypb.Any{{TypeUrl: "type.googleapis.com/library.v1.Book", Value: wire}}}).Err()
		case "unknown-type":
			value, err := base64.StdEncoding.DecodeString("CgNhYmM=")
			if err != nil {
				return err
			}
			return status.FromProto(&spb.Status{Code: int32(codes.Aborted), Message: "foreign detail",
				Details: []*anypb.Any{{TypeUrl: "example.com/unknown.Type", Value: value}, {TypeUrl: "type.googleapis.com/google.rpc.ErrorInfo", Value: []byte{0xff}}}}).Err()
		case "retry":
			return withDetails(codes.ResourceExhausted, "slow down", &errdetails.RetryInfo{RetryDelay: durationpb.New(1)})
		}
		for c := codes.OK; c <= codes.Unauthenticated; c++ {
			if strings.EqualFold(c.String(), name) {
				return status.Error(c, `it is "so"`)
			}
		}
		return status.Error(codes.Code(77), "code of the future")
	}
}

func withDetails(c codes.Code, text string, details ...proto.Message) error {
	st := &spb.Status{Code: int32(c), Message: text}
	for _, d := range details {
		a := &anypb.Any{}
		if err := anypb.MarshalFrom(a, d, proto.MarshalOptions{Deterministic: true}); err != nil {
			return err
		}
		st.Details = append(st.Details, a)
	}
	return status.FromProto(st).Err()
}

// TestEveryCodeHasItsStatus pins the table.
func TestEveryCodeHasItsStatus(t *testing.T) {
	want := map[codes.Code]int{
		codes.Canceled: 499, codes.Unknown: 500, codes.InvalidArgument: 400, codes.DeadlineExceeded: 504, codes.NotFound: 404, codes.AlreadyExists: 409,
		codes.PermissionDenied: 403, codes.Unauthenticated: 401, codes.ResourceExhausted: 429, codes.FailedPrecondition: 400, codes.Aborted: 409,
		codes.OutOfRange: 400, codes.Unimplemented: 501, codes.Internal: 500, codes.Unavailable: 503, codes.DataLoss: 500, 77: 500,
	}
	b := &backend{snapshot: librarySnapshot(t)}
	b.handle = map[string]grpc.StreamHandler{library + "Plain": failing(t, b)}
	g := newGateway(t, b, nil)
	for c, code := range want {
		res := do(g, "POST", library+"Plain", fmt.Sprintf(`{"name":%q}`, c.String()))
		if res.StatusCode != code || !strings.HasPrefix(text(t, res), fmt.Sprintf(`{"code":%d,`, c)) {
			t.Errorf("%v = %d, want %d", c, res.StatusCode, code)
		}
	}
}

// TestErrorsNameNothingInside: what a caller reads holds no Go names, packages or internals.
func TestErrorsNameNothingInside(t *testing.T) {
	g := newGateway(t, &backend{}, nil)
	bad := []string{
		"/v1/shelves/s/books?page_size=abc", "/v1/shelves/s/books?filter.since=yesterday", "/v1/shelves/s/books?filter.color=PURPLE",
		"/v1/shelves/s/books?page_size=99999999999999999999", "/v1/shelves/s/books?pagesize=1&x=1", "/v1/shelves/s/books?filter.lent=maybe", "/v1/shelves/s/books?page_size=1&page_size=2",
		"/v1/shelves/s/books?filter=x", "/v1/shelves/s/books?filter.words.x=1", "/v1/sink?data=*", "/v1/sink?wait=3", "/v1/sink?text=a&inner.given=b",
	}
	for _, target := range bad {
		res := do(g, "GET", target, "")
		body := text(t, res)
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s = %d %s, want 400", target, res.StatusCode, body)
		}
		if i := slices.IndexFunc([]string{"strconv", "Parse", "proto:", "protoreflect", "dynamicpb", "runtime", "json:", "goroutine", "(line "}, func(s string) bool { return strings.Contains(body, s) }); i >= 0 {
			t.Errorf("%s: %s", target, body)
		}
	}
}
