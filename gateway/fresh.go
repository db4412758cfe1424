package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/toolway/toolway/internal/call"
)

// maxOwnEtag is the longest etag of a resource that goes into a header.
const maxOwnEtag = 1 << 10

// The headers of an answer that was given before.
const (
	cacheHeader = "Toolway-Cache"
	staleHeader = "Toolway-Stale"
)

// fresh sets the headers that say how old an answer is, how long it may be used again and, of a GET, what it is (RFC 9110 section 8.8.3,
// RFC 9111). own is the resource's own etag, if it has one. It says whether the caller has the same answer already, so that 304 will do.
func fresh(h http.Header, r *http.Request, f *call.Freshness, body, own []byte) (same bool) {
	if f.Cached {
		h.Set("Age", seconds(f.Age))
		h.Set(cacheHeader, "hit")
		if f.Stale {
			h.Set(staleHeader, "true")
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	if f.Remaining > 0 {
		h.Set("Cache-Control", "private, max-age="+seconds(f.Age+f.Remaining))
		h.Add("Vary", "Authorization, Cookie, X-Api-Key") // one browser, another person
	} else {
		h["Cache-Control"] = revalidate
	}
	sum := sha256.Sum256(body)
	tag := append(make([]byte, 0, 64), '"')
	// The hash stays: a resource's own etag need not change with all that is shown of it. A weak one says nothing that could be matched.
	if value := string(own); value != "" && !strings.HasPrefix(value, "W/") && len(value) <= maxOwnEtag {
		tag = append(append(tag, encodeEtag(value)...), hashMark)
	}
	etag := string(append(hex.AppendEncode(tag, sum[:12]), '"'))
	h["Etag"] = []string{etag}
	given := header(r, "If-None-Match")
	return given != "" && matchesETag(given, etag)
}

// revalidate is what an answer to a GET says that must not be used again unasked; adding to it copies it.
var revalidate = []string{"private, no-cache"}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
