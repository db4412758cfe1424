package incidents

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"

	"google.golang.org/grpc/metadata"
)

// trace is the W3C trace that the calls of a diagnosis belong to.
type trace struct {
	ID    string `json:"id"`    // 32 lower-case hex digits, not all zero
	Flags string `json:"flags"` // 2 lower-case hex digits
}

// traceOf is the trace of the call that starts a diagnosis, so that both are found by one id, or a new one that is sampled.
func traceOf(ctx context.Context) trace {
	if values := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(values) == 1 {
		if t, ok := parseTraceparent(values[0]); ok {
			return t
		}
	}
	return trace{ID: randomHex(16), Flags: "01"}
}

// parseTraceparent reads a traceparent header (W3C Trace Context, 3.2.2). Later versions may have more after the flags.
func parseTraceparent(s string) (trace, bool) {
	parts := strings.Split(s, "-")
	if len(parts) < 4 || parts[0] == "00" && len(parts) != 4 || parts[0] == "ff" {
		return trace{}, false
	}
	for i, length := range []int{2, 32, 16, 2} {
		if !isHex(parts[i], length) {
			return trace{}, false
		}
	}
	if strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == "" {
		return trace{}, false
	}
	return trace{ID: parts[1], Flags: parts[3]}, true
}

func isHex(s string, length int) bool {
	return len(s) == length && strings.Trim(s, "0123456789abcdef") == ""
}

// parent is the traceparent of one call: a span of its own in the trace.
func (t trace) parent() string {
	return "00-" + t.ID + "-" + randomHex(8) + "-" + t.Flags
}

// randomHex returns n random bytes as hex digits. crypto/rand does not fail.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
