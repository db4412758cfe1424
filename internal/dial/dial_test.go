package dial_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/dial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type service struct {
	testpb.UnimplementedTestServiceServer
}

func (service) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, nil
}

// start serves on l until the test ends or stop is called.
func start(t *testing.T, l net.Listener, register func(*grpc.Server), opts ...grpc.ServerOption) (stop func()) {
	t.Helper()
	s := grpc.NewServer(opts...)
	testpb.RegisterTestServiceServer(s, service{})
	if register != nil {
		register(s)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	stop = func() {
		s.Stop()
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func tcp(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func open(t *testing.T, cfg dial.Config) *dial.Conn {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "b"
	}
	c, err := dial.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// empty makes a call and returns the address that answered.
func empty(t *testing.T, c *dial.Conn) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		return "", err
	}
	var p peer.Peer
	_, err := testpb.NewTestServiceClient(c).EmptyCall(ctx, &testpb.Empty{}, grpc.Peer(&p))
	if err != nil {
		return "", err
	}
	return p.Addr.String(), nil
}

// eventually calls until it holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func TestTargets(t *testing.T) {
	l := tcp(t)
	start(t, l, nil)
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	socket := filepath.Join(t.TempDir(), "s")
	ul, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	start(t, ul, nil)
	for _, target := range []string{addr, "dns:///" + addr, "localhost:" + port, "passthrough:///" + addr, "unix:" + socket, "unix://" + socket} {
		t.Run(target, func(t *testing.T) {
			if _, err := empty(t, open(t, dial.Config{Targets: []string{target}})); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRefusedTargets(t *testing.T) {
	for _, c := range []struct {
		targets []string
		want    string
	}{
		{nil, `backend "b" has no target; give one as host:port, dns:///host:port or unix:/path`},
		{[]string{"https://api.example.com:443"}, `a gRPC target has no "https" scheme; write "api.example.com:443", and ask for TLS separately`},
		{[]string{"localhost:1", "xds:///svc"}, "a control plane names all endpoints of the backend"},
		{[]string{"/run/x.sock"}, "is a path; write unix:/run/x.sock for a socket"},
		{[]string{"example.com"}, `target "example.com": want host:port`},
		{[]string{"etcd://x:1"}, `unknown scheme "etcd"`},
	} {
		if _, err := dial.Open(dial.Config{Name: "b", Targets: c.targets}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Open(%q): %v, want …%s…", c.targets, err, c.want)
		}
	}
}

// TestSeveralTargets uses all endpoints of all targets, leaves out one that dies, and takes it in again.
func TestSeveralTargets(t *testing.T) {
	listeners := []net.Listener{tcp(t), tcp(t)}
	socket := filepath.Join(t.TempDir(), "s")
	ul, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	start(t, listeners[0], nil)
	stop := start(t, listeners[1], nil)
	start(t, ul, nil)
	a, b := listeners[0].Addr().String(), listeners[1].Addr().String()
	c := open(t, dial.Config{Targets: []string{a, "dns:///" + b, "unix:" + socket}})
	round := func() map[string]bool {
		seen := map[string]bool{}
		for range 12 {
			addr, err := empty(t, c)
			if err != nil {
				return nil
			}
			seen[addr] = true
		}
		return seen
	}
	eventually(t, "all three endpoints answer", func() bool { return len(round()) == 3 })
	stop()
	eventually(t, "the dead endpoint is left out", func() bool { r := round(); return len(r) == 2 && !r[b] })
	l, err := net.Listen("tcp", b)
	if err != nil {
		t.Fatal(err)
	}
	start(t, l, nil)
	eventually(t, "the endpoint that is back answers", func() bool { return round()[b] })
}

// TestNameThatDoesNotResolve does not keep the other targets from working.
func TestNameThatDoesNotResolve(t *testing.T) {
	l := tcp(t)
	start(t, l, nil)
	c := open(t, dial.Config{Targets: []string{"no-such-host.invalid:1", l.Addr().String()}})
	eventually(t, "the other target answers", func() bool { _, err := empty(t, c); return err == nil })
}

// TestWhy pins that the operator reads the address, the cause and the mend.
func TestWhy(t *testing.T) {
	l := tcp(t)
	addr := l.Addr().String()
	l.Close()
	c := open(t, dial.Config{Targets: []string{addr}})
	eventually(t, "the refusal is told", func() bool { return strings.Contains(c.Why(), "connection refused") })
	if why := c.Why(); !strings.Contains(why, addr) || !strings.Contains(why, "start the backend") {
		t.Errorf("Why = %q, want the address %s and the mend", why, addr)
	}
	back, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	start(t, back, nil)
	eventually(t, "nothing is wrong any more", func() bool { return c.Why() == "" })
}

func TestHealth(t *testing.T) {
	listeners := []net.Listener{tcp(t), tcp(t), tcp(t), tcp(t)}
	hs := health.NewServer()
	start(t, listeners[0], func(s *grpc.Server) { healthpb.RegisterHealthServer(s, hs) })
	start(t, listeners[1], nil) // no health service
	// One that wants credentials for everything but the service itself.
	start(t, listeners[2], func(s *grpc.Server) { healthpb.RegisterHealthServer(s, health.NewServer()) },
		grpc.StreamInterceptor(func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
			return status.Error(codes.Unauthenticated, "who are you")
		}))
	// One whose health service knows only named services.
	named := health.NewServer()
	named.SetServingStatus("", healthpb.HealthCheckResponse_SERVICE_UNKNOWN)
	start(t, listeners[3], func(s *grpc.Server) { healthpb.RegisterHealthServer(s, named) })
	var targets []string
	for _, l := range listeners {
		targets = append(targets, l.Addr().String())
	}
	c := open(t, dial.Config{Targets: targets})
	round := func() map[string]bool {
		seen := map[string]bool{}
		for range 16 {
			if addr, err := empty(t, c); err == nil {
				seen[addr] = true
			}
		}
		return seen
	}
	eventually(t, "all endpoints answer", func() bool { return len(round()) == 4 })
	hs.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	eventually(t, "the sick endpoint is left out", func() bool { r := round(); return len(r) == 3 && !r[targets[0]] })
	hs.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	eventually(t, "the endpoint that is well again answers", func() bool { return round()[targets[0]] })

	hs.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	alone := open(t, dial.Config{Targets: targets[:1]})
	eventually(t, "a call fails for health", func() bool {
		_, err := empty(t, alone)
		return status.Code(err) == codes.Unavailable && strings.Contains(dial.Explain(err.Error()), "reports that it takes no calls")
	})
	if _, err := empty(t, open(t, dial.Config{Targets: targets[:1], IgnoreHealth: true})); err != nil {
		t.Errorf("with IgnoreHealth: %v", err)
	}
}

// silent accepts connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l := tcp(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return l.Addr().String()
}

func TestReadyIsBounded(t *testing.T) {
	c := open(t, dial.Config{Targets: []string{silent(t)}})
	if err := c.Ready(t.Context()); !errors.Is(err, dial.ErrConnecting) {
		t.Errorf("Ready of an endpoint that says nothing: %v, want ErrConnecting", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := c.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Ready with a short deadline: %v, want the deadline", err)
	}
}

// authority is a CA in files.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = filepath.Join(a.dir, "ca.pem")
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue returns the files of a certificate for the name, which may be an IP address.
func (a *authority) issue(t *testing.T, name string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if ip := net.ParseIP(name); ip != nil {
		tmpl.IPAddresses = []net.IP{ip}
	} else {
		tmpl.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	kb, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	writePEM(t, cert, "CERTIFICATE", der)
	writePEM(t, key, "EC PRIVATE KEY", kb)
	return cert, key
}

func (a *authority) server(t *testing.T, name string, mutual bool) *tls.Config {
	t.Helper()
	cert, key := a.issue(t, name)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if mutual {
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		cfg.ClientCAs.AddCert(a.cert)
	}
	return cfg
}

func TestTLS(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	serve := func(o ...grpc.ServerOption) string {
		l := tcp(t)
		start(t, l, nil, o...)
		return l.Addr().String()
	}
	good := serve(grpc.Creds(credentials.NewTLS(ca.server(t, "127.0.0.1", false))))
	mutual := serve(grpc.Creds(credentials.NewTLS(ca.server(t, "127.0.0.1", true))))
	other := serve(grpc.Creds(credentials.NewTLS(ca.server(t, "other.example", false))))
	bare := tcp(t) // TLS without ALPN, as behind some load balancers
	start(t, tls.NewListener(bare, ca.server(t, "127.0.0.1", false)), nil)
	noALPN := bare.Addr().String()
	plain := serve()
	cert, key := ca.issue(t, "client.example")
	for _, c := range []struct {
		name, target string
		tls          *dial.TLS
		explained    string // "" means that the call works
	}{
		{"CA", good, &dial.TLS{CAFile: ca.file}, ""},
		{"skip", good, &dial.TLS{InsecureSkipVerify: true}, ""},
		{"unknown CA", good, &dial.TLS{CAFile: stranger.file}, "descends from no certificate known here"},
		{"mutual", mutual, &dial.TLS{CAFile: ca.file, CertFile: cert, KeyFile: key}, ""},
		{"no client certificate", mutual, &dial.TLS{CAFile: ca.file}, "client certificate"},
		{"wrong name", other, &dial.TLS{CAFile: ca.file}, "set the server name"},
		{"server name", other, &dial.TLS{CAFile: ca.file, ServerName: "other.example"}, ""},
		{"no ALPN", noALPN, &dial.TLS{CAFile: ca.file}, "set allow_no_alpn"},
		{"no ALPN allowed", noALPN, &dial.TLS{CAFile: ca.file, AllowNoALPN: true}, ""},
		{"TLS to plaintext", plain, &dial.TLS{CAFile: ca.file}, "speaks plaintext, but TLS is configured"},
		{"plaintext to TLS", good, nil, "TLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := open(t, dial.Config{Targets: []string{c.target}, TLS: c.tls})
			_, err := empty(t, conn)
			if c.explained == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(dial.Explain(err.Error()), c.explained) {
				t.Errorf("error %v is explained as %q, want …%s…", err, dial.Explain(fmt.Sprint(err)), c.explained)
			}
		})
	}
}

func TestTLSFiles(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.pem")
	if err := os.WriteFile(bad, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tls  dial.TLS
		want string
	}{
		{dial.TLS{CAFile: "/no/such"}, "read CA certificates"},
		{dial.TLS{CAFile: bad}, "no PEM certificate in it"},
		{dial.TLS{CertFile: bad}, "belong together"},
		{dial.TLS{CertFile: bad, KeyFile: bad}, "load client certificate"},
	} {
		if _, err := dial.Open(dial.Config{Name: "b", Targets: []string{"h:1"}, TLS: &c.tls}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Open with %+v: %v, want …%s…", c.tls, err, c.want)
		}
	}
}

// TestReconnect is about a backend that comes back: the pause between attempts is capped at five seconds.
func TestReconnect(t *testing.T) {
	l := tcp(t)
	addr := l.Addr().String()
	stop := start(t, l, nil)
	c := open(t, dial.Config{Targets: []string{addr}})
	if _, err := empty(t, c); err != nil {
		t.Fatal(err)
	}
	stop()
	eventually(t, "the loss is noticed", func() bool { return c.GetState() != connectivity.Ready })
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	start(t, l, nil)
	eventually(t, "the backend answers again", func() bool { _, err := empty(t, c); return err == nil })
}
