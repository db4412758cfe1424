package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/toolway/toolway/tests/internal/run"
)

// proxy is a running program that callers go through.
type proxy struct {
	process
	addr string // where callers connect
	stop func()
}

// startPeer builds and starts bench/peers/NAME before a backend.
func startPeer(name, backend string) (*proxy, error) {
	bin, err := run.Package("peer-"+name, "./bench/peers/"+name)
	if err != nil {
		return nil, err
	}
	p, err := run.Spawn(nil, bin, "-backend", backend)
	if err != nil {
		return nil, err
	}
	out := &proxy{process: process{pid: p.PID()}, stop: p.Kill}
	err = p.Await(func(line string) bool {
		if a, ok := strings.CutPrefix(line, "admin "); ok {
			out.admin = a
		}
		if a, ok := strings.CutPrefix(line, "listening "); ok {
			out.addr = a
		}
		return out.addr != "" && out.admin != ""
	})
	if err != nil {
		p.Kill()
		return nil, err
	}
	return out, nil
}

// nginxConf is the plainest that passes gRPC on over connections that are kept. It has no figures of its own beyond what keeps it from closing
// connections, or refusing streams, in the middle of a run.
const nginxConf = `worker_processes auto;
pid %[1]s/pid;
error_log stderr warn;
daemon off;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  client_max_body_size 0;
  keepalive_requests 1000000000;
  upstream backend { server %[3]s; keepalive 128; keepalive_requests 1000000000; }
  server {
    listen %[2]s http2;
    http2_max_concurrent_streams 1024;
    location / { grpc_pass grpc://backend; }
  }
}
`

// errNoNginx says that nginx is not on this machine.
var errNoNginx = errors.New("nginx is not installed: on Debian, apt-get install nginx")

// startNginx runs nginx with grpc_pass before a backend, or returns errNoNginx.
func startNginx(backend string) (*proxy, error) {
	bin, err := exec.LookPath("nginx")
	if err != nil {
		return nil, errNoNginx
	}
	dir, err := os.MkdirTemp("", "toolway-bench-")
	if err != nil {
		return nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) } // it is below the temporary directory
	addr, err := freeAddr()
	if err != nil {
		remove()
		return nil, err
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir, addr, backend), 0o600); err != nil {
		remove()
		return nil, err
	}
	p, err := run.Spawn(nil, bin, "-p", dir, "-c", conf)
	if err != nil {
		remove()
		return nil, err
	}
	stop := func() {
		_ = p.Stop() // SIGTERM, so that the master ends its workers
		remove()
	}
	up := run.Poll(run.Patience, func() bool {
		c, err := new(net.Dialer).DialContext(context.Background(), "tcp", addr)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
	if !up {
		stop()
		return nil, fmt.Errorf("nginx does not listen on %s\n%s", addr, p.Log())
	}
	return &proxy{process: process{pid: p.PID()}, addr: addr, stop: stop}, nil
}

// freeAddr is a loopback address whose port was free a moment ago: nginx cannot be asked for any free one.
func freeAddr() (string, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// versions are those of the programs that are compared, from the module that builds them.
func versions(ctx context.Context) (string, error) {
	module, err := run.Module()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "google.golang.org/grpc", "google.golang.org/protobuf", "github.com/grpc-ecosystem/grpc-gateway/v2",
		"connectrpc.com/vanguard", "github.com/modelcontextprotocol/go-sdk")
	cmd.Dir = module
	b, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(b)) {
		all = append(all, strings.TrimSpace(line))
	}
	if b, err := exec.CommandContext(ctx, "nginx", "-v").CombinedOutput(); err == nil {
		_, v, _ := strings.Cut(strings.TrimSpace(string(b)), "nginx/")
		all = append(all, "nginx "+v)
	} else {
		all = append(all, "no nginx")
	}
	return strings.Join(all, ", "), nil
}
