package dial_test

import (
	"strings"
	"testing"

	"github.com/toolway/toolway/internal/dial"
)

func TestCause(t *testing.T) {
	for in, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`: "connection refused",
		`last connection error: connection error: desc = "transport: authentication handshake failed: EOF"`:            "the connection was closed",
		`error reading from server: EOF`: "the connection was closed",
		`error reading from server: read tcp 127.0.0.1:5->127.0.0.1:1: read: connection reset by peer`:                                               "connection reset by peer",
		`closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: code: NO_ERROR, debug data: ""`: "the connection was closed",
		`stream terminated by RST_STREAM with error code: REFUSED_STREAM`:                                                                            "the stream was reset with REFUSED_STREAM",
		"still connecting":            "still connecting",
		"":                            "",
		`connection error: desc = "`:  `"`,
		`desc = "\xzz"`:               `"\xzz"`,
		"name resolver error: dns: x": "dns: x",
	} {
		if got := dial.Cause(in); got != want {
			t.Errorf("Cause(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestUnknownName has a mistyped host: grpc-go's balancer says only that it has no children to pick from.
func TestUnknownName(t *testing.T) {
	for _, blind := range []bool{false, true} {
		for _, targets := range [][]string{{"no-such-host.invalid:1"}, {"no-such-host.invalid:1", "nor-this.invalid:1"}} {
			c := open(t, dial.Config{Targets: targets, IgnoreHealth: blind})
			if _, err := empty(t, c); err == nil {
				t.Fatal("a call has succeeded")
			}
			why := c.Why()
			if strings.Contains(why, "children") || !strings.Contains(why, "no-such-host.invalid") || !strings.Contains(why, "resolves to no address; check the host name") {
				t.Errorf("targets %q: Why() = %q, want the name and the mend", targets, why)
			}
		}
	}
}
