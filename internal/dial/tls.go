package dial

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
	expcreds "google.golang.org/grpc/experimental/credentials"
)

// TLS says how to encrypt the connection to a backend. The zero value checks the server against the system's roots.
type TLS struct {
	// CAFile holds the PEM certificates that the server's must descend from, instead of the system's.
	CAFile string
	// CertFile and KeyFile are the client's own certificate and key, in PEM, for mutual TLS.
	CertFile, KeyFile string
	// ServerName is the name to check in the server's certificate. Default: the target's host.
	ServerName string
	// InsecureSkipVerify accepts any certificate. It leaves the connection open to anyone on the way.
	InsecureSkipVerify bool
	// AllowNoALPN accepts servers and load balancers that do not negotiate "h2" by ALPN, which gRPC demands.
	AllowNoALPN bool
}

func (t *TLS) config() (*tls.Config, error) {
	cfg := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA certificates: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA certificates from %q: no PEM certificate in it", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("client certificate and key belong together: only one of them is given")
	}
	if t.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
			return nil, fmt.Errorf("load client certificate %q with key %q: %w", t.CertFile, t.KeyFile, err)
		}
		// Read again for each handshake, so that a certificate that was renewed on disk is used without a restart.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			return &pair, err
		}
	}
	return cfg, nil
}

func (t *TLS) credentials() (credentials.TransportCredentials, error) {
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}
	if t.AllowNoALPN {
		return expcreds.NewTLSWithALPNDisabled(cfg), nil
	}
	return credentials.NewTLS(cfg), nil
}
