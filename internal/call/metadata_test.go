package call_test

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"

	"github.com/toolway/toolway/internal/call"
)

func TestRulesAllow(t *testing.T) {
	r := call.NewRules([]string{"X-Acme-*", "Tenant-Hint", "authorization", "x-user-id", "*-secret", "bad key", "x-tenant-hint"})
	for key, want := range map[string]bool{
		"traceparent": true, "TraceParent": true, "tracestate": true, "baggage": true, "idempotency-key": true, "Idempotency-Key": true, "x-request-id": true,
		"x-acme-team": true, "X-ACME-TEAM": true, "tenant-hint": true, "x-tenant-hint": true,
		"my-secret": false, "x-other": false, "x-acme": false, "bad key": false, "x-acme-\x00": false, "": false,
		// Never, whatever is allowed.
		"authorization": false, "Authorization": false, "AUTHORIZATION": false, "authorization-bin": false, "proxy-authorization": false,
		"cookie": false, "Set-Cookie": false, "x-user-id": false, "X_User_Id": false, "x-user_id": false, "x-user-id-bin": false,
		"grpc-timeout": false, "grpc-metadata-x-acme-team": false, "Grpc-Metadata-Authorization": false, "grpcgateway-authorization": false, "grpc-trace-bin": false,
		"x-forwarded-for": false, "X-Forwarded-Host": false, "forwarded": false, "x-real-ip": false, "x-envoy-external-address": false,
		"x-goog-authenticated-user-email": false, "x-amzn-oidc-data": false, "x-ms-client-principal-name": false, "impersonate-user": false, "x-remote-group": false,
		":authority": false, "host": false, "te": false, "connection": false, "content-type": false, "mcp-session-id": false, "user-agent": false, "proxy-secret": false,
	} {
		if got := r.Allowed(key); got != want {
			t.Errorf("Allowed(%q) = %v, want %v", key, got, want)
		}
	}
	if new(call.Rules).Allowed("traceparent") {
		t.Error("the zero value lets something in")
	}
}

func TestRulesFilter(t *testing.T) {
	r := call.NewRules([]string{"x-acme-*"})
	in := metadata.MD{"X-Acme-A": {"one", "bad\x01", "b\u00e4d", "bad\r\n"}, "x-acme-bin": {"\x00\xff"}, "x-acme-none": {"\x7f"}, "Authorization": {"x"}, "other": {"y"}}
	want := metadata.MD{"x-acme-a": {"one"}, "x-acme-bin": {"\x00\xff"}}
	if diff := cmp.Diff(want, r.Filter(in)); diff != "" {
		t.Errorf("Filter (-want +got):\n%s", diff)
	}
	exact := call.NewRules([]string{"x-acme-a", "x-acme-bin", "x-acme-none"})
	for _, r := range []*call.Rules{r, exact} {
		ctx := metadata.NewIncomingContext(context.Background(), metadata.MD{"x-acme-a": {"one", "bad\x01"}, "x-acme-bin": {"\x00\xff"}, "x-acme-none": {"\x7f"}, "authorization": {"x"}, "other": {"y"}})
		if diff := cmp.Diff(want, r.Filter(call.Incoming(ctx))); diff != "" {
			t.Errorf("Filter of Incoming (-want +got):\n%s", diff)
		}
	}
	if md := call.Incoming(context.Background()); md != nil {
		t.Errorf("Incoming = %v without any, want nil", md)
	}
}

// TestKeysThatCannotCross has idempotency keys that gRPC cannot carry: without them a write would count as one without a key.
func TestKeysThatCannotCross(t *testing.T) {
	for _, r := range []*call.Rules{call.NewRules(nil), call.NewRules([]string{"x-acme-*"})} {
		for _, key := range []string{"incident-é", "a\tb", "a\nb", "\x00", ""} {
			md := metadata.MD{"idempotency-key": {key}}
			for name, got := range map[string]metadata.MD{
				"Filter": r.Filter(md), "FilterText": r.FilterText(map[string][]string{"Idempotency-Key": {key}}),
			} {
				if diff := cmp.Diff(md, got); diff != "" {
					t.Errorf("%s of key %q (-want +got):\n%s", name, key, diff)
				}
			}
		}
	}
	if got := call.Sendable(metadata.MD{"idempotency-key": {"é"}, "x-request-id": {"1"}}); len(got) != 1 || len(got["x-request-id"]) != 1 {
		t.Errorf("Sendable = %v, want all but the key", got)
	}
}

func TestRulesFilterText(t *testing.T) {
	r := call.NewRules([]string{"x-acme-*"})
	raw := "\x00\xff\xfe"
	in := map[string][]string{
		"X-Acme-Bin":  {base64.StdEncoding.EncodeToString([]byte(raw)), base64.RawStdEncoding.EncodeToString([]byte(raw)) + ", AAE=", "***"},
		"X-Acme-Text": {" spaced ", "tab\there"},
	}
	want := metadata.MD{"x-acme-bin": {raw, raw, "\x00\x01"}, "x-acme-text": {"spaced"}}
	if diff := cmp.Diff(want, r.FilterText(in)); diff != "" {
		t.Errorf("FilterText (-want +got):\n%s", diff)
	}
}

// TestFilteredListsAreShared has headers in several spellings, and a caller that adds to what crosses: the request's own headers stay as they are.
func TestFilteredListsAreShared(t *testing.T) {
	values := append(make([]string, 0, 8), "a") // room that an append must not use
	in := map[string][]string{"X-Request-Id": values, "x-request-id": {"b"}, "Baggage": values, "TRACESTATE": {"\tc=d "}}
	for _, r := range []*call.Rules{call.NewRules(nil), call.NewRules([]string{"x-acme-*"})} {
		out := r.FilterText(in)
		if ids := out["x-request-id"]; len(ids) != 2 || ids[0] == ids[1] {
			t.Errorf("x-request-id = %q, want both values", ids)
		}
		if !slices.Equal(out["tracestate"], []string{"c=d"}) || in["TRACESTATE"][0] != "\tc=d " {
			t.Errorf("tracestate = %q of %q", out["tracestate"], in["TRACESTATE"])
		}
		out.Append("baggage", "e")
		out.Append("x-request-id", "f")
		if room := values[:2]; room[1] != "" {
			t.Errorf("an append has written %q beside the request's headers", room[1])
		}
	}
}

func TestReply(t *testing.T) {
	in := metadata.MD{"content-type": {"application/grpc"}, "grpc-accept-encoding": {"gzip"}, "grpc-status-details-bin": {"\x08"}, "grpc-retry-pushback-ms": {"5"},
		"endpoint-load-metrics-bin": {"\xff"}, "x-a": {"ok", "\x01", "fine"}, "x!odd": {"1"}, "connection": {"close"}}
	want := metadata.MD{"grpc-status-details-bin": {"\x08"}, "grpc-retry-pushback-ms": {"5"}, "endpoint-load-metrics-bin": {"\xff"}, "x-a": {"ok", "fine"}}
	if diff := cmp.Diff(want, call.Reply(in)); diff != "" {
		t.Errorf("Reply (-want +got):\n%s", diff)
	}
	if in["x-a"][1] != "\x01" {
		t.Error("Reply has changed its argument")
	}
}

// TestPatternsCoverNoIdentity has an operator who allows everything: headers by which gateways say who is calling stay out all the same.
func TestPatternsCoverNoIdentity(t *testing.T) {
	r := call.NewRules([]string{"*", "x-*"})
	for _, key := range []string{
		"x-consumer-id", "x-consumer-username", "x-consumer-custom-id", "x-consumer-groups", "x-anonymous-consumer", "x-credential-identifier", "x-credential-userid",
		"x-authentik-username", "x-authelia-user", "x-vouch-user", "x-pomerium-jwt-assertion", "x-endpoint-api-userinfo", "x-hasura-user-id", "x-hasura-role", "x-hasura-admin-secret",
		"x-original-user", "user-id", "user_id", "x-wso2-auth", "private-token", "x-gitlab-token", "x-shopify-access-token", "x-parse-session-token", "x-secret", "password",
		"x-acme-user", "acme.tenant", "x-acme-roles-bin", "x-acme-apikey", "x-acme-api-key", "x-tenant-hint", "x-amz-security-token", "x-acme-authz", "x-acme-accesstoken", "x-acme-cookie",
	} {
		if r.Allowed(key) {
			t.Errorf("Allowed(%q) = true", key)
		}
	}
	for _, key := range []string{"x-acme-team", "x-b3-traceid", "x-author", "idempotency-key", "x-sort-key", "accept-language", "x-request-id", "traceparent", "x-feature-flags"} {
		if !r.Allowed(key) {
			t.Errorf("Allowed(%q) = false", key)
		}
	}
}

func TestCheckAllow(t *testing.T) {
	for pattern, want := range map[string]string{
		"x-acme-*": "", "*": "", "x-*": "", "x-tenant-hint": "", "X-Acme-Team": "", "x-acme-[ab]*": "", "traceparent": "", "x-acme-user": "",
		"authorization": "never cross", "Authorization": "never cross", "x-user-id": "never cross", "x-gitlab-token": "never cross", "grpc-*": "never cross", "x-forwarded-*": "never cross",
		"*-token": "never cross", "x-*-secret-*": "never cross", "x-tenant-*": "a pattern never covers", "*-role": "a pattern never covers",
		"bad key": "gRPC carries only", "b\xe4d-*": "gRPC carries only", "": "want a name", "x-[": "syntax error in pattern",
	} {
		err := call.CheckAllow(pattern)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("CheckAllow(%q) = %v, want %q", pattern, err, want)
		}
	}
	for _, p := range call.DefaultForward {
		if err := call.CheckAllow(p); err != nil {
			t.Error(err)
		}
	}
}

func TestTraceContextThatIsNone(t *testing.T) {
	const ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
	r := call.NewRules(nil)
	for value, want := range map[string]bool{
		"00-" + ids + "-01": true, "cc-" + ids + "-01": true, "cc-" + ids + "-01-more": true,
		"junk": false, "": false, "ff-" + ids + "-01": false, "00-" + ids + "-01-more": false, "00-" + ids + "-0": false, "00-" + strings.ToUpper(ids) + "-01": false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false, "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false, "cc-" + ids + "-01more": false,
	} {
		in := metadata.MD{"traceparent": {value}, "tracestate": {"a=b"}, "baggage": {"k=v"}}
		for name, out := range map[string]metadata.MD{"Filter": r.Filter(in), "FilterText": r.FilterText(in)} {
			if got := out["traceparent"] != nil && out["tracestate"] != nil; got != want || out["baggage"] == nil || !want && len(out) != 1 {
				t.Errorf("%s of %q = %v, want it kept: %v", name, value, out, want)
			}
		}
	}
	if out := r.Filter(metadata.MD{"traceparent": {"00-" + ids + "-01", "00-" + ids + "-01"}}); len(out) != 0 {
		t.Errorf("two contexts crossed: %v", out)
	}
}

func TestConnectionNamesHopByHop(t *testing.T) {
	in := map[string][]string{"Connection": {"close, Baggage", "x-acme-a"}, "Baggage": {"k=v"}, "X-Acme-A": {"1"}, "X-Acme-B": {"2"}}
	want := metadata.MD{"x-acme-b": {"2"}}
	if diff := cmp.Diff(want, call.NewRules([]string{"x-acme-*"}).FilterText(in)); diff != "" {
		t.Errorf("FilterText (-want +got):\n%s", diff)
	}
}
