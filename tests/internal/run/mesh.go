package run

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Mesh is a running toolway serve.
type Mesh struct {
	*Process
	// GRPC, HTTP and Admin are the addresses of its listeners, as host:port.
	GRPC, HTTP, Admin string
}

// Serve starts toolway serve on free loopback ports with further arguments, and waits until it listens and is ready.
func Serve(args ...string) (*Mesh, error) { return ServeEnv(nil, args...) }

// ServeEnv is Serve with something added to the environment.
func ServeEnv(env []string, args ...string) (*Mesh, error) {
	m, err := Listen(env, args...)
	if err != nil {
		return nil, err
	}
	if err := m.Ready(); err != nil {
		m.Kill()
		return nil, err
	}
	return m, nil
}

// Listen is ServeEnv that does not wait for readiness.
func Listen(env []string, args ...string) (*Mesh, error) { return listen(nil, env, args...) }

// ServeBy is Serve by another program, such as unshare, that is given the command line as its last arguments and becomes the mesh.
func ServeBy(program []string, args ...string) (*Mesh, error) {
	m, err := listen(program, nil, args...)
	if err != nil {
		return nil, err
	}
	if err := m.Ready(); err != nil {
		m.Kill()
		return nil, err
	}
	return m, nil
}

func listen(program, env []string, args ...string) (*Mesh, error) {
	bin, err := Toolway()
	if err != nil {
		return nil, err
	}
	args = append([]string{bin, "serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-format", "json"}, args...)
	args = append(slices.Clip(program), args...)
	p, err := Spawn(env, args[0], args[1:]...)
	if err != nil {
		return nil, err
	}
	m := &Mesh{Process: p}
	err = p.Await(func(line string) bool {
		var l struct{ Msg, Door, Addr string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "listening" {
			switch l.Door {
			case "grpc":
				m.GRPC = l.Addr
			case "http":
				m.HTTP = l.Addr
			case "admin":
				m.Admin = l.Addr
			}
		}
		return m.GRPC != "" && m.HTTP != "" && m.Admin != ""
	})
	if err != nil {
		p.Kill()
		return nil, err
	}
	return m, nil
}

// Ready waits until /readyz says so.
func (m *Mesh) Ready() error {
	var last string
	ok := Poll(Patience, func() bool {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+m.Admin+"/readyz", http.NoBody)
		if err != nil {
			last = err.Error()
			return false
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			last = err.Error()
			return false
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		last = resp.Status + " " + string(b)
		return resp.StatusCode == http.StatusOK
	})
	if !ok {
		return fmt.Errorf("/readyz is not OK after %v: %s\n%s", Patience, last, m.Log())
	}
	return nil
}

// Poll calls f until it returns true or the time is over; it says which.
func Poll(timeout time.Duration, f func() bool) bool {
	for end := time.Now().Add(timeout); ; {
		if f() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Eventually fails the test if f does not become true.
func Eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	if !Poll(Patience, f) {
		t.Fatalf("%s: not so after %v", what, Patience)
	}
}

// URL is an address at the HTTP door.
func (m *Mesh) URL(path string) string { return "http://" + m.HTTP + path }

// Explain prints the process's log if the test fails.
func (p *Process) Explain(t testing.TB) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.name, p.Log())
		}
	})
}

// Start is Serve for one test, which stops it and fails if that is not clean.
func Start(t testing.TB, args ...string) *Mesh {
	t.Helper()
	m, err := Serve(args...)
	if err != nil {
		t.Fatal(err)
	}
	m.Explain(t)
	t.Cleanup(func() {
		select {
		case <-m.Exited():
			return // the test did it itself
		default:
		}
		if err := m.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return m
}

// Dial connects to a gRPC address without TLS. Messages may be up to 16 MiB.
func Dial(t testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16 << 20))}, opts...)
	cc, err := grpc.NewClient("passthrough:///"+addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// Child starts a backend from tests/backends that prints "listening ADDR", and returns it with the address.
func Child(name string, args ...string) (*Process, string, error) {
	bin, err := Backend(name)
	if err != nil {
		return nil, "", err
	}
	p, err := Spawn(nil, bin, args...)
	if err != nil {
		return nil, "", err
	}
	var addr string
	err = p.Await(func(line string) (ok bool) {
		addr, ok = strings.CutPrefix(line, "listening ")
		return ok
	})
	if err != nil {
		p.Kill()
		return nil, "", err
	}
	return p, addr, nil
}

// Prepare is for TestMain: it builds the binary and the backends named, so that no test's time is spent on it, and lets many tests run side
// by side whatever the number of processors, since they wait more than they work.
func Prepare(backends ...string) error {
	flag.Parse()
	if _, err := Toolway(); err != nil {
		return err
	}
	for _, name := range backends {
		if _, err := Backend(name); err != nil {
			return err
		}
	}
	if f := flag.Lookup("test.parallel"); f != nil {
		return f.Value.Set("16")
	}
	return nil
}
