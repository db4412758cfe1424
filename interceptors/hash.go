package interceptors

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/transcode"
)

// Hash is a SHA-256.
type Hash [sha256.Size]byte

// canonicals holds *[]byte for canonical forms.
var canonicals = sync.Pool{New: func() any { return new([]byte) }}

// requestHash returns the hash of the canonical form of the call's one request: the same through every door and from every encoder. A
// request that is no message of its type is refused.
func requestHash(c *call.Call, stream grpc.ServerStream) (Hash, error) {
	f, err := call.Request(stream)
	if err != nil {
		return Hash{}, err
	}
	buf := canonicals.Get().(*[]byte)
	out, err := c.Method.Request().AppendCanonical((*buf)[:0], f.Bytes())
	sum := Hash(sha256.Sum256(out))
	if cap(out) <= pooledScratch {
		*buf = out[:0]
	}
	canonicals.Put(buf)
	var bad *transcode.Error
	if errors.As(err, &bad) {
		return Hash{}, call.Error(codes.InvalidArgument, "MALFORMED_REQUEST", bad.Error(), "hint", "the bytes are no message of that type; check which version of the contract the caller was built with")
	}
	return sum, err
}

// hashOf returns the hash of several texts: no two different lists of texts are hashed as the same bytes.
func hashOf(texts ...string) Hash {
	var room [256]byte
	b := room[:0]
	for _, s := range texts {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return sha256.Sum256(b)
}

// who returns the tenant and the id of a principal, which is nobody if it is nil.
func who(p *identity.Principal) (tenant, id string) {
	if p == nil {
		return "", ""
	}
	return p.Tenant, p.ID
}
