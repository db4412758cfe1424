package mesh

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writePair writes a certificate with a serial number, and its key.
func writePair(t *testing.T, dir string, serial int64) *ServerTLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "mesh"}, NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	out := &ServerTLS{Cert: filepath.Join(dir, "c.pem"), Key: filepath.Join(dir, "k.pem")}
	for file, b := range map[string]*pem.Block{out.Cert: {Type: "CERTIFICATE", Bytes: raw}, out.Key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(serial, 0) // file systems may be too coarse to tell two writes apart
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestCertificateIsRenewed pins that a listener serves a certificate which was renewed on disk, and the last good one while what is there does not fit.
func TestCertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	s := &serverTLS{conf: *writePair(t, dir, 1), protos: []string{"h2"}}
	var err error
	if s.current, err = s.read(); err != nil {
		t.Fatal(err)
	}
	s.changed = s.times()
	serial := func() int64 {
		s.looked = time.Time{} // a while ago
		c := s.config()
		leaf, err := x509.ParseCertificate(c.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Errorf("serial %d, want 1", got)
	}
	writePair(t, dir, 2)
	if got := serial(); got != 2 {
		t.Errorf("after a renewal: serial %d, want 2", got)
	}
	if err := os.WriteFile(s.conf.Key, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != 2 {
		t.Errorf("between two writes: serial %d, want 2", got)
	}
	writePair(t, dir, 3)
	if got := serial(); got != 3 {
		t.Errorf("afterwards: serial %d, want 3", got)
	}
	conf, err := (&ServerTLS{Cert: s.conf.Cert, Key: s.conf.Key, ClientCA: s.conf.Cert, RequireClientCert: true}).open("grpc", "h2")
	if err != nil || conf.ClientAuth != tls.RequireAndVerifyClientCert || conf.GetConfigForClient == nil || conf.NextProtos[0] != "h2" {
		t.Errorf("open = %+v, %v", conf, err)
	}
	if _, err := (&ServerTLS{Cert: s.conf.Cert, Key: "/nowhere"}).open("grpc"); err == nil {
		t.Error("open without a key = nil, want an error")
	}
}
