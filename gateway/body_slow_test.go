package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/toolway/toolway/gateway"
)

// TestSlowBodyIsDropped pins that a caller who never finishes a body does not keep a connection for ever.
func TestSlowBodyIsDropped(t *testing.T) {
	g := newGateway(t, &backend{}, func(c *gateway.Config) { c.StallTimeout = 50 * time.Millisecond })
	srv := httptest.NewServer(g)
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /library.v1.Library/GetBook HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status = %d, want 408", res.StatusCode)
	}
}
