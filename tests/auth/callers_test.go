package auth_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/provider"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestSessionsBelongToCallers pins C88 and C89: a session's id is of no use to another caller, with or without sessions of the server, and a new token
// of the same caller goes on with it.
func TestSessionsBelongToCallers(t *testing.T) {
	t.Parallel()
	for _, sessions := range []bool{false, true} {
		t.Run(fmt.Sprint("sessions_", sessions), func(t *testing.T) {
			t.Parallel()
			p := provider.New(t)
			_, addr := startProbe(t)
			file := config(t, p, addr, "")
			if sessions {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, append(text, "mcp: {sessions: true}\n"...), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			mesh := run.Start(t, "--config", file)
			ctx := patience(t)
			alice := map[string]string{"Authorization": bearer(p.Token(t, provider.Want{Scopes: both})), "Accept": "application/json, text/event-stream"}
			hello := send(ctx, t, mesh.URL("/mcp"), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, alice)
			session := hello.header.Get("Mcp-Session-Id")
			if hello.code != http.StatusOK || session == "" {
				t.Fatalf("initialize: %d %s", hello.code, hello.body)
			}
			with := func(token string) map[string]string {
				return map[string]string{"Authorization": bearer(token), "Accept": "application/json, text/event-stream", "Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25"}
			}
			list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
			again := with(p.Token(t, provider.Want{Scopes: both}))
			if a := send(ctx, t, mesh.URL("/mcp"), list, again); a.code != http.StatusOK || !strings.Contains(a.body, "probe_ask") {
				t.Errorf("the same caller with a new token: %d %s", a.code, a.body)
			}
			// In a session a call has the rights of its own token, not of the one that began it.
			less := with(p.Token(t, provider.Want{Scopes: []string{"probe"}}))
			if a := mcpCall(ctx, t, mesh, agent.V20251125, "probe_ask", `{}`, less); a.code != http.StatusForbidden {
				t.Errorf("the same caller with fewer scopes: %d %s, want 403", a.code, a.body)
			}
			if a := mcpCall(ctx, t, mesh, agent.V20251125, "probe_ask", `{"text":"hello"}`, again); a.code != http.StatusOK || !strings.Contains(a.body, "hello") {
				t.Errorf("the same caller with all scopes: %d %s", a.code, a.body)
			}
			bob := with(p.Token(t, provider.Want{Subject: "bob", Scopes: both}))
			if a := send(ctx, t, mesh.URL("/mcp"), list, bob); a.code != http.StatusNotFound {
				t.Errorf("another caller: %d %s, want 404", a.code, a.body)
			}
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				req, err := http.NewRequestWithContext(ctx, method, mesh.URL("/mcp"), http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				for k, v := range bob {
					req.Header.Set(k, v)
				}
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				if want := http.StatusNotFound; res.StatusCode != want && (sessions || method != http.MethodGet) {
					t.Errorf("%s of another caller: %d, want %d", method, res.StatusCode, want)
				}
			}
			if a := send(ctx, t, mesh.URL("/mcp"), list, again); a.code != http.StatusOK {
				t.Errorf("the session afterwards: %d %s", a.code, a.body)
			}
		})
	}
}

// TestStdio pins that a caller on standard input says who it is by its environment, and is told what is missing in a tool error.
func TestStdio(t *testing.T) {
	t.Parallel()
	p := provider.New(t)
	_, addr := startProbe(t)
	file := config(t, p, addr, "")
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, env, want string }{
		{"good", "TOOLWAY_TOKEN=" + p.Token(t, provider.Want{Scopes: both}), ""},
		{"none", "TOOLWAY_TOKEN=", "MISSING_CREDENTIALS"},
		{"expired", "TOOLWAY_TOKEN=" + p.Token(t, provider.Want{Scopes: both, Lifetime: -time.Hour}), "TOKEN_EXPIRED"},
		{"a scope less", "TOOLWAY_TOKEN=" + p.Token(t, provider.Want{Scopes: []string{"probe"}}), "INSUFFICIENT_SCOPE"},
	} {
		for _, version := range []string{agent.V20251125, agent.V20260728} {
			t.Run(strings.ReplaceAll(c.name, " ", "_")+"_"+version, func(t *testing.T) {
				t.Parallel()
				ctx := patience(t)
				s, err := agent.NewStdio(version, []string{c.env}, nil, bin, "mcp", "--config", file)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Kill)
				if version != agent.V20260728 {
					if err := s.Initialize(ctx); err != nil {
						t.Fatal(err)
					}
				}
				got, err := agent.Call(ctx, s, "probe_ask", map[string]any{"text": "hello"}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if c.want == "" && (got.IsError || !strings.Contains(got.Text(), "hello")) || c.want != "" && (!got.IsError || !strings.Contains(got.Text(), c.want)) {
					t.Errorf("call: %+v, want %q", got, c.want)
				}
				if c.want == "MISSING_CREDENTIALS" && (!strings.Contains(got.Text(), "TOOLWAY_TOKEN") || strings.Contains(got.Text(), "Bearer")) {
					t.Errorf("%s does not name the environment", got.Text())
				}
				if c.want == "INSUFFICIENT_SCOPE" && !strings.Contains(got.Text(), "probe probe.ask") {
					t.Errorf("%s does not name all scopes", got.Text())
				}
			})
		}
	}
}

// authority is a certificate authority for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, dir: t.TempDir()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	a.write(t, "ca.pem", "CERTIFICATE", raw)
	return a
}

func (a *authority) write(t *testing.T, name, kind string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue makes a certificate for this machine with a URI name, keeps it as NAME.pem and NAME.key, and returns it.
func (a *authority) issue(t *testing.T, name, uri string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name+".pem", "CERTIFICATE", raw)
	a.write(t, name+".key", "PRIVATE KEY", private)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// TestCertificatesAndKeys runs the listeners with TLS: callers by SPIFFE certificate and by API key, the latter made by toolway key new.
func TestCertificatesAndKeys(t *testing.T) {
	t.Parallel()
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	ctx := patience(t)
	var key, entry bytes.Buffer
	cmd := exec.CommandContext(ctx, bin, "key", "new", "ci", "--scope", "probe:*", "--tenant", "acme", "--expires", "1d")
	cmd.Stdout, cmd.Stderr = &key, &entry
	if err := cmd.Run(); err != nil {
		t.Fatalf("toolway key new: %v %s", err, &entry)
	}
	a, stranger := newAuthority(t), newAuthority(t)
	a.issue(t, "mesh", "")
	_, addr := startProbe(t)
	serve := fmt.Sprintf("{tls: {cert: %s/mesh.pem, key: %s/mesh.key, client_ca: %s/ca.pem}}", a.dir, a.dir, a.dir)
	file := filepath.Join(a.dir, "toolway.yaml")
	text := fmt.Sprintf("%s  certificates:\n    - {san: 'spiffe://mesh.test/agent/*', scopes: ['probe:ask']}\nbackends:\n  - {name: probe, targets: [%q]}\ngrpc: %s\nhttp: %s\n"+
		"policy:\n  - match: {methods: probe.v1.Probe/Ask}\n    scopes: ['probe:ask']\n", &entry, addr, serve, serve)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mesh := run.Start(t, "--config", file)
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	apiKey := strings.TrimSpace(key.String())
	agentCert := a.issue(t, "agent", "spiffe://mesh.test/agent/one")
	for _, c := range []struct {
		name   string
		cert   *tls.Certificate
		key    string
		grpc   codes.Code
		http   int
		broken bool // the connection is refused
	}{
		{name: "certificate", cert: &agentCert, http: 200},
		{name: "API key", key: apiKey, http: 200},
		{name: "nothing", grpc: codes.Unauthenticated, http: 401},
		{name: "wrong key", key: apiKey + "x", grpc: codes.Unauthenticated, http: 401},
		{name: "certificate of nobody", cert: ref(a.issue(t, "nobody", "spiffe://mesh.test/other")), grpc: codes.Unauthenticated, http: 401},
		{name: "certificate of nobody and a key", cert: ref(a.issue(t, "sidecar", "")), key: apiKey, http: 200},
		{name: "two callers", cert: &agentCert, key: apiKey, grpc: codes.Unauthenticated, http: 401},
		{name: "another authority", cert: ref(stranger.issue(t, "agent", "spiffe://mesh.test/agent/one")), broken: true},
	} {
		conf := &tls.Config{RootCAs: roots}
		if c.cert != nil {
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.cert, nil }
		}
		opts := []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(conf.Clone()))}
		if c.key != "" {
			opts = append(opts, grpc.WithPerRPCCredentials(apiKeyOf(c.key)))
		}
		_, err := probev1.NewProbeClient(run.Dial(t, mesh.GRPC, opts...)).Ask(ctx, &probev1.AskRequest{Text: "hello"})
		if got := status.Code(err); got != c.grpc && !c.broken || c.broken && err == nil {
			t.Errorf("%s: gRPC: %v, want %s", c.name, err, c.grpc)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+mesh.HTTP+"/v1/probe/x:ask", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if c.key != "" {
			req.Header.Set("X-Api-Key", c.key)
		}
		res, err := client.Do(req)
		if c.broken {
			if err == nil {
				_ = res.Body.Close()
				t.Errorf("%s: HTTP: %s, want the connection refused", c.name, res.Status)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		_ = res.Body.Close()
		if res.StatusCode != c.http || res.ProtoMajor != 2 {
			t.Errorf("%s: HTTP: %s over %s, want %d over HTTP/2", c.name, res.Status, res.Proto, c.http)
		}
		client.CloseIdleConnections()
	}
}

func ref(c tls.Certificate) *tls.Certificate { return &c }

type apiKeyOf string

// GetRequestMetadata brings the key.
func (k apiKeyOf) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"x-api-key": string(k)}, nil
}

// RequireTransportSecurity is true.
func (apiKeyOf) RequireTransportSecurity() bool { return true }

// TestOpenDoorsAreRefused pins that other machines are not served without asking who calls, unless somebody says so.
func TestOpenDoorsAreRefused(t *testing.T) {
	t.Parallel()
	bin, err := run.Toolway()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(patience(t), bin, "serve", "--backend", "127.0.0.1:1", "--grpc-addr", "0.0.0.0:0", "--http-addr", "off", "--admin-addr", "off").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--allow-anonymous") || !strings.Contains(string(out), "toolway key new") {
		t.Errorf("serve on 0.0.0.0: %v\n%s", err, out)
	}
	_, addr := startProbe(t)
	mesh := run.Start(t, "--backend", "probe="+addr, "--allow-anonymous", "--http-addr", "0.0.0.0:0")
	if !strings.Contains(mesh.Log(), "NOBODY IS ASKED") {
		t.Errorf("no warning:\n%s", mesh.Log())
	}
}
