package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
)

var timeoutUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// parseTimeout reads a Grpc-Timeout header: at most eight digits and a unit, as in gRPC over HTTP/2. "" means none.
func parseTimeout(s string) (d time.Duration, ok bool, err error) {
	if s == "" {
		return 0, false, nil
	}
	bad := refuse(http.StatusBadRequest, codes.InvalidArgument,
		fmt.Sprintf("header Grpc-Timeout %q: want at most eight digits and a unit of H, M, S, m, u or n, as in \"500m\"", s))
	unit, known := timeoutUnits[s[len(s)-1]]
	digits := s[:len(s)-1]
	if !known || len(digits) == 0 || len(digits) > 8 {
		return 0, false, bad
	}
	n, perr := strconv.ParseUint(digits, 10, 32)
	if perr != nil {
		return 0, false, bad
	}
	if n > uint64(maxDuration/unit) {
		return maxDuration, true, nil
	}
	return time.Duration(n) * unit, true, nil
}

const maxDuration = time.Duration(1<<63 - 1)
