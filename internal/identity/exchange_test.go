package identity_test

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/identity"
)

// exchangeServer is a token endpoint that notes what it is asked.
func exchangeServer(t *testing.T, answer func(w http.ResponseWriter, form url.Values)) (endpoint string, asked *atomic.Int32, last *atomic.Pointer[http.Request]) {
	t.Helper()
	asked, last = &atomic.Int32{}, &atomic.Pointer[http.Request]{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		last.Store(r)
		w.Header().Set("Content-Type", "application/json")
		answer(w, r.PostForm)
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/token", asked, last
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestExchange(t *testing.T) {
	endpoint, asked, last := exchangeServer(t, func(w http.ResponseWriter, form url.Values) {
		fmt.Fprintf(w, `{"access_token":"for-%s-%s","token_type":"Bearer","expires_in":3600}`, form.Get("audience"), form.Get("subject_token"))
	})
	x, err := identity.NewExchanger(identity.ExchangerConfig{Endpoint: endpoint, Audience: "orders", Scope: "a b", ClientID: "me:sh", SecretFile: secretFile(t, "s3cret\n"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if got, err := x.Exchange(t.Context(), "alice"); err != nil || got != "for-orders-alice" {
				t.Errorf("Exchange = %q, %v", got, err)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("ten calls of one caller asked %d times, want once", n)
	}
	if got, err := x.Exchange(t.Context(), "bob"); err != nil || got != "for-orders-bob" {
		t.Errorf("another caller's token: %q, %v", got, err)
	}
	r := last.Load()
	user, password, _ := r.BasicAuth()
	for name, want := range map[string]string{
		"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token": "bob", "subject_token_type": "urn:ietf:params:oauth:token-type:access_token", "scope": "a b",
	} {
		if got := r.PostForm.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if user != "me%3Ash" || password != "s3cret" {
		t.Errorf("client %q with %q", user, password)
	}
	for _, none := range []string{"", identity.KeyPrefix + "x"} {
		if _, err := x.Exchange(t.Context(), none); status.Code(err) != codes.PermissionDenied {
			t.Errorf("Exchange(%q) = %v, want PERMISSION_DENIED", none, err)
		}
	}
}

func TestExchangeByKey(t *testing.T) {
	key := newKey(t)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, _, last := exchangeServer(t, func(w http.ResponseWriter, _ url.Values) { fmt.Fprint(w, `{"access_token":"t","token_type":"bearer"}`) })
	x, err := identity.NewExchanger(identity.ExchangerConfig{
		Endpoint: endpoint, Resource: "https://orders.example", ClientID: "mesh", KeyFile: secretFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := x.Exchange(t.Context(), "alice"); err != nil || got != "t" {
		t.Fatalf("Exchange = %q, %v", got, err)
	}
	form := last.Load().PostForm
	sig, err := jose.ParseSignedCompact(form.Get("client_assertion"), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := sig.Verify(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil || claims["iss"] != "mesh" || claims["sub"] != "mesh" || claims["aud"] != endpoint || claims["jti"] == "" {
		t.Errorf("claims %v, %v", claims, err)
	}
	if form.Get("client_id") != "mesh" || form.Get("resource") != "https://orders.example" || form.Get("client_assertion_type") == "" {
		t.Errorf("form %v", form)
	}
}

// TestExchangeFails pins what a caller is told, that it is not told the server's own words, and that a failure is not remembered.
func TestExchangeFails(t *testing.T) {
	var answer atomic.Pointer[func(http.ResponseWriter)]
	endpoint, _, _ := exchangeServer(t, func(w http.ResponseWriter, _ url.Values) { (*answer.Load())(w) })
	x, err := identity.NewExchanger(identity.ExchangerConfig{Endpoint: endpoint, Audience: "orders", ClientID: "mesh", SecretFile: secretFile(t, "s"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		code   int
		body   string
		want   codes.Code
		reason string
	}{
		"refused":      {400, `{"error":"invalid_target","error_description":"internal-name"}`, codes.PermissionDenied, "EXCHANGE_REFUSED"},
		"client wrong": {401, `{"error":"invalid_client"}`, codes.PermissionDenied, "EXCHANGE_REFUSED"},
		"down":         {503, `oops`, codes.Unavailable, "EXCHANGE_UNAVAILABLE"},
		"too many":     {429, `{}`, codes.Unavailable, "EXCHANGE_UNAVAILABLE"},
		"no JSON":      {200, `<html>`, codes.Unavailable, "EXCHANGE_UNAVAILABLE"},
		"no token":     {200, `{"token_type":"Bearer"}`, codes.PermissionDenied, "EXCHANGE_REFUSED"},
		"header split": {200, `{"access_token":"a\r\nx: y","token_type":"Bearer"}`, codes.PermissionDenied, "EXCHANGE_REFUSED"},
		"another type": {200, `{"access_token":"a","token_type":"DPoP"}`, codes.PermissionDenied, "EXCHANGE_REFUSED"},
		"redirected":   {302, ``, codes.PermissionDenied, "EXCHANGE_REFUSED"},
	} {
		f := func(w http.ResponseWriter) { w.WriteHeader(c.code); _, _ = w.Write([]byte(c.body)) }
		answer.Store(&f)
		_, err := x.Exchange(t.Context(), "alice")
		if reason, _ := identity.Reason(err); status.Code(err) != c.want || reason != c.reason || strings.Contains(err.Error(), "internal-name") {
			t.Errorf("%s: %v, want %s %s", name, err, c.want, c.reason)
		}
	}
	good := func(w http.ResponseWriter) {
		fmt.Fprint(w, `{"access_token":"t","token_type":"Bearer","expires_in":1}`)
	}
	answer.Store(&good)
	if got, err := x.Exchange(t.Context(), "alice"); err != nil || got != "t" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}
