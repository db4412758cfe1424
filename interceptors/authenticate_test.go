package interceptors_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
)

// keyed is an authenticator that takes one API key, with the scope logs:read.
func keyed(t *testing.T) (a *identity.Authenticator, key string) {
	t.Helper()
	key, hash := identity.NewAPIKey()
	a, err := identity.New(identity.Config{APIKeys: []identity.APIKey{{Name: "ci", SHA256: hash, Scopes: []string{"logs:read"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a, key
}

func TestAuthenticate(t *testing.T) {
	a, key := keyed(t)
	door := &identity.Principal{ID: "door", How: "jwt"}
	for _, c := range []struct {
		name        string
		o           interceptors.Options
		credentials call.Credentials
		door        *identity.Principal
		want        string // the principal's id, or the reason
		verdict     string
	}{
		{name: "without an authenticator", want: "anonymous", verdict: "known none"},
		{name: "a key", o: interceptors.Options{Authenticator: a}, credentials: call.Credentials{APIKey: key}, want: "key:ci", verdict: "known api-key"},
		{name: "no key", o: interceptors.Options{Authenticator: a}, want: identity.MissingCredentials, verdict: "refused " + identity.MissingCredentials},
		{name: "a wrong key", o: interceptors.Options{Authenticator: a}, credentials: call.Credentials{APIKey: "x"}, want: identity.UnknownAPIKey, verdict: "refused " + identity.UnknownAPIKey},
		{name: "by the door", o: interceptors.Options{Authenticator: a}, door: door, want: "door", verdict: "known jwt"},
	} {
		cl := call.New(method(t, "UnaryCall"), call.GRPC)
		cl.Credentials, cl.Principal = c.credentials, c.door
		called := false
		_, err := run(t.Context(), cl, nil, func(any, grpc.ServerStream) error { called = true; return nil }, interceptors.Authenticate(c.o))
		got, _ := identity.Reason(err)
		if err == nil {
			got = cl.Principal.ID
		}
		if got != c.want || called != (err == nil) || err != nil && status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
		if step := cl.Steps[0].Decided(); step.Verdict+" "+step.Detail != c.verdict {
			t.Errorf("%s: decided %q %q, want %q", c.name, step.Verdict, step.Detail, c.verdict)
		}
	}
}

func TestAuthorise(t *testing.T) {
	for _, c := range []struct {
		need, have []string
		lacks      string
	}{
		{need: []string{"logs:read"}, have: []string{"logs:read"}},
		{need: []string{"logs:read"}, have: []string{"logs:*"}},
		{need: []string{"logs:read", "logs:write"}, have: []string{"*"}},
		{need: []string{"logs:read", "logs:write"}, have: []string{"logs:read"}, lacks: "logs:write"},
		{need: []string{"logs:read", "logs:write"}, lacks: "logs:read logs:write"},
	} {
		m := method(t, "UnaryCall")
		m.Policy.Scopes = c.need
		cl := call.New(m, call.GRPC)
		cl.Principal = &identity.Principal{ID: "a", Scopes: c.have}
		_, err := run(t.Context(), cl, nil, func(any, grpc.ServerStream) error { return nil }, interceptors.Authorise(interceptors.Options{}))
		if c.lacks == "" {
			if err != nil || cl.Steps[0].Decided().Verdict != "allowed" {
				t.Errorf("%q with %q: %v, %+v", c.need, c.have, err, cl.Steps[0].Decided())
			}
			continue
		}
		reason, metadata := identity.Reason(err)
		want := fmt.Sprint(c.need)
		if status.Code(err) != codes.PermissionDenied || reason != identity.InsufficientScope || "["+metadata["scopes"]+"]" != want {
			t.Errorf("%q with %q: %v, %q, want all scopes that are needed", c.need, c.have, err, metadata)
		}
		if cl.Steps[0].Decided().Verdict != "refused" || cl.Steps[0].Decided().Detail != "lacks "+c.lacks {
			t.Errorf("decided %+v, want refused, lacks %s", cl.Steps[0], c.lacks)
		}
	}
	if interceptors.Authorise(interceptors.Options{}).For(method(t, "UnaryCall")) != nil {
		t.Error("a method without scopes has the policy in its chain")
	}
	// Nobody has no scope.
	m := method(t, "UnaryCall")
	m.Policy.Scopes = []string{"x"}
	if _, err := run(t.Context(), call.New(m, call.GRPC), nil, func(any, grpc.ServerStream) error { return nil }, interceptors.Authorise(interceptors.Options{})); status.Code(err) != codes.PermissionDenied {
		t.Errorf("nobody: %v, want PERMISSION_DENIED", err)
	}
}
