package mesh

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"
)

// filesEvery is how often the files of a listener's certificate are looked at.
const filesEvery = 10 * time.Second

// serverTLS serves a listener's certificate, and reads it again when its files change: certificates of workloads last hours.
type serverTLS struct {
	conf   ServerTLS
	protos []string

	mu      sync.Mutex
	current *tls.Config
	changed [3]time.Time // of the files, as they were read
	looked  time.Time
}

// open returns the TLS configuration of a listener that speaks the protocols; nil without TLS.
func (t *ServerTLS) open(listener string, protos ...string) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	s := &serverTLS{conf: *t, protos: protos}
	first, err := s.read()
	if err != nil {
		return nil, fmt.Errorf("%s.tls: %w", listener, err)
	}
	s.current, s.changed, s.looked = first, s.times(), time.Now()
	out := first.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.config(), nil }
	return out, nil
}

// read reads the files.
func (s *serverTLS) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(s.conf.Cert, s.conf.Key)
	if err != nil {
		return nil, fmt.Errorf("load certificate %q with key %q: %w", s.conf.Cert, s.conf.Key, err)
	}
	out := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: s.protos}
	if s.conf.ClientCA == "" {
		return out, nil
	}
	if out.ClientCAs, err = roots(s.conf.ClientCA); err != nil {
		return nil, fmt.Errorf("client_ca: %w", err)
	}
	out.ClientAuth = tls.VerifyClientCertIfGiven
	if s.conf.RequireClientCert {
		out.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return out, nil
}

func (s *serverTLS) times() (out [3]time.Time) {
	for i, path := range []string{s.conf.Cert, s.conf.Key, s.conf.ClientCA} {
		if info, err := os.Stat(path); err == nil {
			out[i] = info.ModTime()
		}
	}
	return out
}

// config returns the configuration of the files as they are. While they do not fit together, as between two writes, it is the last good one.
func (s *serverTLS) config() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) < filesEvery {
		return s.current
	}
	s.looked = time.Now()
	if changed := s.times(); changed != s.changed {
		if next, err := s.read(); err == nil {
			s.current, s.changed = next, changed
		}
	}
	return s.current
}

func roots(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("no PEM certificate in %q", path)
	}
	return pool, nil
}

// transportWithRoots is for documents of a server whose certificate descends from roots of its own.
func transportWithRoots(path string) (http.RoundTripper, error) {
	pool, err := roots(path)
	if err != nil {
		return nil, err
	}
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("net/http's default transport has been replaced")
	}
	t := base.Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}
