package call_test

import (
	"context"
	"encoding/base64"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"

	"github.com/toolway/toolway/internal/call"
)

func TestRulesAllow(t *testing.T) {
	r := call.NewRules([]string{"X-Acme-*", "Tenant-Hint", "authorization", "x-user-id", "*-secret", "bad key"})
	for key, want := range map[string]bool{
		"traceparent": true, "TraceParent": true, "tracestate": true, "baggage": true, "idempotency-key": true, "Idempotency-Key": true, "x-request-id": true,
		"x-acme-team": true, "X-ACME-TEAM": true, "tenant-hint": true, "my-secret": true,
		"x-other": false, "x-acme": false, "bad key": false, "x-acme-\x00": false, "": false,
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
		if diff := cmp.Diff(want, r.FromIncoming(ctx)); diff != "" {
			t.Errorf("FromIncoming (-want +got):\n%s", diff)
		}
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
