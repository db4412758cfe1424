package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// mesh says how to reach the mesh's gRPC door, and as whom.
type mesh struct {
	addr       string
	tokenFile  string
	tls        bool
	ca         string
	cert, key  string
	serverName string
}

// dial returns a connection to the mesh, which is made when it is first needed.
func (m mesh) dial() (*grpc.ClientConn, error) {
	host, _, err := net.SplitHostPort(m.addr)
	if err != nil {
		return nil, fmt.Errorf("--mesh %q: %w; want host:port", m.addr, err)
	}
	secure, err := m.transport()
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		// A connection that is dead without having ended is found out while a call waits on it. The mesh takes pings from 10 s on.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	}
	if m.tokenFile != "" {
		plaintext := secure.Info().SecurityProtocol == "insecure"
		if plaintext && !loopback(host) {
			return nil, fmt.Errorf("--mesh-token-file would be sent to %q in the clear; use --mesh-tls", m.addr)
		}
		if _, err := (token{file: m.tokenFile}).read(); err != nil {
			return nil, err
		}
		options = append(options, grpc.WithPerRPCCredentials(token{file: m.tokenFile, secure: !plaintext}))
	}
	conn, err := grpc.NewClient(m.addr, options...)
	if err != nil {
		return nil, fmt.Errorf("--mesh %q: %w", m.addr, err)
	}
	return conn, nil
}

func (m mesh) transport() (credentials.TransportCredentials, error) {
	if !m.tls && m.ca == "" && m.cert == "" {
		if m.key != "" || m.serverName != "" {
			return nil, errors.New("--mesh-key and --mesh-server-name are for TLS; add --mesh-tls")
		}
		return insecure.NewCredentials(), nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: m.serverName}
	if m.ca != "" {
		pem, err := os.ReadFile(m.ca)
		if err != nil {
			return nil, fmt.Errorf("--mesh-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--mesh-ca %q has no certificate in PEM", m.ca)
		}
	}
	if (m.cert == "") != (m.key == "") {
		return nil, errors.New("--mesh-cert and --mesh-key go together; give both or none")
	}
	if m.cert != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(m.cert, m.key)
			if err != nil {
				return nil, fmt.Errorf("--mesh-cert: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		// Read again for each handshake, so that it may be replaced.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return credentials.NewTLS(config), nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// token sends the content of a file as bearer token. The mesh takes API keys so too.
type token struct {
	file   string
	secure bool
}

func (t token) read() (string, error) {
	b, err := os.ReadFile(t.file)
	if err != nil {
		return "", fmt.Errorf("--mesh-token-file: %w", err)
	}
	text := strings.TrimSpace(string(b))
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("--mesh-token-file %q has no token: want one line of printable characters", t.file)
	}
	return text, nil
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := t.read()
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + text}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (t token) RequireTransportSecurity() bool { return t.secure }
