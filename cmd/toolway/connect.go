package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"strings"

	"github.com/toolway/toolway/internal/mesh"
	"github.com/toolway/toolway/internal/relay"
)

// connect relays between a stdio host and the mesh at url.
func connect(ctx context.Context, url, view, tokenFile string, logging mesh.Log, in io.Reader, out io.Writer) error {
	log, err := logger(logging, os.Stderr)
	if err != nil {
		return err
	}
	if view != "" {
		url = strings.TrimSuffix(url, "/") + "/" + view
	}
	who := credential(tokenFile)
	told := http.Header{}
	if err := who(told); err != nil { // a file that is not there now is a mistake, not a token that is being replaced
		return err
	}
	if u, err := neturl.Parse(url); err == nil && u.Scheme == "http" && len(told) > 0 && !onThisMachine(u.Hostname()) {
		return errInTheClear
	}
	r, err := relay.New(relay.Config{URL: url, Logger: log, Credential: who})
	if err != nil {
		return fmt.Errorf("--connect: %w", err)
	}
	return r.Run(ctx, in, out)
}

var errInTheClear = errors.New("a credential is not sent in the clear to another machine: reach the mesh by TLS, as https://host/mcp or grpcs://host:port")

// onThisMachine says whether a host name or address is that of this machine's loopback.
func onThisMachine(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// credential sets the headers that say who calls: the token in a file, which is read for every request so that it may be replaced, else that
// of the environment.
func credential(tokenFile string) func(http.Header) error {
	token, key := os.Getenv("TOOLWAY_TOKEN"), os.Getenv("TOOLWAY_API_KEY")
	return func(h http.Header) error {
		token := token
		if tokenFile != "" {
			raw, err := os.ReadFile(tokenFile)
			if err != nil {
				return fmt.Errorf("--token-file: %w", err)
			}
			token = strings.TrimSpace(string(raw))
		}
		if token != "" {
			h.Set("Authorization", "Bearer "+token)
		}
		if key != "" {
			h.Set("X-API-Key", key)
		}
		return nil
	}
}
