package servers_test

import (
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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/run"
)

// askThrough calls the probe through the gRPC door until it answers or patience is over.
func askThrough(ctx context.Context, t *testing.T, m *run.Mesh) {
	t.Helper()
	client := probev1.NewProbeClient(run.Dial(t, m.GRPC))
	var err error
	if !run.Poll(run.Patience, func() bool {
		_, err = client.Ask(ctx, &probev1.AskRequest{})
		return err == nil
	}) {
		t.Errorf("Ask: %v", err)
	}
}

// TestTargets reaches a server by every kind of address.
func TestTargets(t *testing.T) {
	t.Parallel()
	_, addr := startProbe(t, probe.V1)
	_, port, _ := net.SplitHostPort(addr)
	socket := filepath.Join(t.TempDir(), "s")
	serveUnix(t, socket)
	for _, target := range []string{addr, "localhost:" + port, "dns:///localhost:" + port, "passthrough:///" + addr, "grpc://" + addr, "unix:" + socket, "unix://" + socket} {
		t.Run(strings.ReplaceAll(target, "/", "_"), func(t *testing.T) {
			t.Parallel()
			askThrough(patience(t), t, run.Start(t, "--backend", "probe="+target))
		})
	}
}

func serveUnix(t *testing.T, path string) {
	t.Helper()
	g, err := probe.New().NewGRPC(probe.V1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestSeveralTargets spreads calls over the targets of one backend, and goes on without the one that dies.
func TestSeveralTargets(t *testing.T) {
	t.Parallel()
	first, firstAddr := startProbe(t, probe.V1)
	dies, diesAddr, err := run.Child("probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dies.Kill)
	second, secondAddr := startProbe(t, probe.V1)
	mesh := run.Start(t, "--backend", "probe="+firstAddr, "--backend", "probe="+diesAddr, "--backend", "probe="+secondAddr)
	ctx := patience(t)
	client := probev1.NewProbeClient(run.Dial(t, mesh.GRPC))
	run.Eventually(t, "calls reach both servers", func() bool {
		if _, err := client.Ask(ctx, &probev1.AskRequest{}); err != nil {
			t.Fatal(err)
		}
		return first.Total() > 0 && second.Total() > 0
	})
	dies.Kill()
	good := 0
	run.Eventually(t, "twenty calls in a row succeed", func() bool {
		if _, err := client.Ask(ctx, &probev1.AskRequest{}); err != nil {
			if status.Code(err) != codes.Unavailable {
				t.Fatal(err)
			}
			good = 0
			return false
		}
		good++
		return good == 20
	})
}

// TestTLS reaches a server that wants TLS and a client certificate, by the configuration file. What is wrong is said in the log.
func TestTLS(t *testing.T) {
	t.Parallel()
	pki := newPKI(t)
	pool := x509.NewCertPool()
	pool.AddCert(pki.ca)
	_, addr := startProbe(t, probe.V1, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pki.server}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})))
	config := func(t *testing.T, tls string) string {
		file := filepath.Join(t.TempDir(), "toolway.yaml")
		if err := os.WriteFile(file, []byte(fmt.Sprintf("backends:\n  - name: probe\n    targets: [%q]\n%s", addr, tls)), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	t.Run("mutual", func(t *testing.T) {
		t.Parallel()
		mesh := run.Start(t, "--config", config(t, fmt.Sprintf("    tls:\n      ca: %s\n      cert: %s\n      key: %s\n      server_name: probe.example\n", pki.caFile, pki.certFile, pki.keyFile)))
		askThrough(patience(t), t, mesh)
	})
	for _, c := range []struct{ name, tls, say string }{
		{"no TLS", "", "TLS"},
		{"unknown authority", "    tls:\n      server_name: probe.example\n", "certificate"},
		{"other name", fmt.Sprintf("    tls:\n      ca: %s\n      cert: %s\n      key: %s\n      server_name: other.example\n", pki.caFile, pki.certFile, pki.keyFile), "other.example"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mesh := run.Start(t, "--config", config(t, c.tls))
			run.Eventually(t, fmt.Sprintf("the log says %q of the backend", c.say), func() bool {
				for line := range strings.Lines(mesh.Log()) {
					if strings.Contains(line, "probe") && strings.Contains(line, c.say) {
						return true
					}
				}
				return false
			})
		})
	}
}

// pki is an authority, a server for probe.example, and a client.
type pki struct {
	ca                        *x509.Certificate
	server                    tls.Certificate
	caFile, certFile, keyFile string
}

func newPKI(t *testing.T) pki {
	t.Helper()
	caKey := newKey(t)
	now := time.Now()
	template := func(n int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(n), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
			NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
	}
	ca := template(1, "authority")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	caDER := sign(t, ca, ca, caKey, caKey)
	p := pki{ca: ca}
	var err error
	if p.ca, err = x509.ParseCertificate(caDER); err != nil {
		t.Fatal(err)
	}
	serverKey, clientKey := newKey(t), newKey(t)
	p.server = tls.Certificate{Certificate: [][]byte{sign(t, template(2, "probe.example"), p.ca, serverKey, caKey)}, PrivateKey: serverKey}
	clientDER := sign(t, template(3, "mesh.example"), p.ca, clientKey, caKey)
	keyDER, err := x509.MarshalECPrivateKey(clientKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	p.caFile, p.certFile, p.keyFile = write("ca.pem", "CERTIFICATE", caDER), write("cert.pem", "CERTIFICATE", clientDER), write("key.pem", "EC PRIVATE KEY", keyDER)
	return p
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, c, by *x509.Certificate, key, byKey *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, byKey)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
