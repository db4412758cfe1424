package interceptors

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// InFlight bounds all calls under way, before anything is done for them: no signature is checked and nothing logged for a call that is refused, only
// counted. Of the bound, methods of low priority get four fifths and those of normal priority nine tenths, so that what is left is for those of high
// priority. Health checks and reflection count, but are never refused. A refusal is UNAVAILABLE with OVERLOADED.
func InFlight(o Options) Policy {
	limit := int64(o.Limits.InFlight)
	switch {
	case limit < 0:
		return Policy{Name: "in-flight", For: nothing}
	case limit == 0:
		limit = defaultInFlight
	}
	refused := newRefusal(o, codes.Unavailable, "OVERLOADED", "in_flight", "the mesh has too much to do; nothing was done, so wait, then call again")
	var n atomic.Int64
	return inHalves("in-flight", func(m *catalog.Method) *halves {
		share := limit
		switch {
		case m.Service != nil && m.Service.Infrastructure:
			share = 1 << 62
		case m.Policy.Priority == catalog.PriorityLow:
			share = max(1, limit*4/5)
		case m.Policy.Priority == catalog.PriorityNormal:
			share = max(1, limit*9/10)
		}
		return &halves{
			enter: func(c *call.Call, stream grpc.ServerStream) (grpc.ServerStream, error) {
				if now := n.Add(1); now > share {
					n.Add(-1)
					c.Decide("in-flight", "refused", strconv.FormatInt(share, 10)+" calls are under way")
					return nil, refused.err(fmt.Sprintf("%d calls are under way already, which is all that the mesh takes of this priority", share), time.Second)
				}
				return stream, nil
			},
			leave: func(_ *call.Call, _ grpc.ServerStream, err error) error {
				n.Add(-1)
				return err
			},
		}
	})
}

// defaultInFlight is far above what two cores can work on at a time, and at some 50 KiB a call still bounds memory to half a GiB.
const defaultInFlight = 10_000

func nothing(*catalog.Method) grpc.StreamServerInterceptor { return nil }
