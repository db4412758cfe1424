package gateway

import (
	"net/http"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/transcode"
)

const (
	ifMatchHeader = "If-Match"
	etagField     = "etag"
	// hashMark stands in an ETag between the resource's own etag and the hash of the answer. No encoded etag has it.
	hashMark = '~'
)

// etags are the fields named etag of a method (AIP-154): what a request says that it was decided on, and what a reply is.
type etags struct {
	request, reply *transcode.Scalar
	path           string // of request
}

// newEtags finds a method's fields: that of the request, or of the one resource in it that has one; and that of what is shown of the reply.
func newEtags(m *catalog.Method, responseBody string) (e etags) {
	if m.Kind().Client {
		return e
	}
	in := m.Desc.Input()
	if hasEtag(in) {
		e.path = etagField
	} else {
		found := 0
		for i := range in.Fields().Len() {
			if fd := in.Fields().Get(i); fd.Kind() == protoreflect.MessageKind && !fd.IsList() && !fd.IsMap() && hasEtag(fd.Message()) {
				found++
				e.path = string(fd.Name()) + "." + etagField
			}
		}
		if found > 1 {
			e.path = "" // which of them is not said
		}
	}
	if e.path != "" {
		e.request, _ = transcode.NewScalar(in, e.path)
	}
	path := etagField
	if responseBody != "" {
		path = responseBody + "." + etagField
	}
	if s, err := transcode.NewScalar(m.Desc.Output(), path); err == nil && !m.Kind().Server {
		if _, fd, err := fieldAt(m.Desc.Output(), path); err == nil && isEtag(fd) {
			e.reply = s
		}
	}
	return e
}

func hasEtag(md protoreflect.MessageDescriptor) bool {
	return isEtag(md.Fields().ByName(etagField))
}

func isEtag(fd protoreflect.FieldDescriptor) bool {
	return fd != nil && fd.Kind() == protoreflect.StringKind && fd.Cardinality() != protoreflect.Repeated
}

// appendIfMatch fills the request's etag from If-Match (RFC 9110 section 13.1.1), or says why the precondition cannot hold or be told to the backend. Those of GET and HEAD are
// compared with the answer.
func (m match) appendIfMatch(wire []byte, x *exchange) ([]byte, error) {
	given := x.r.Header[ifMatchHeader]
	if len(given) == 0 || reads(x.r) {
		return wire, nil
	}
	header := strings.Join(given, ",")
	if m.etags.request == nil {
		return nil, unmatchable("this method takes no etag, so that nothing could keep the precondition; leave the header out")
	}
	tags, ok := parseEtags(header)
	if !ok {
		return nil, unmatchable(`write it like If-Match: "abc", with the ETag of a GET or the resource's etag in quotes`)
	}
	if tags == nil {
		return wire, nil // *: whether there is such a resource is for the backend to say, with NOT_FOUND
	}
	var strong []string
	for _, t := range tags {
		if !t.weak {
			strong = append(strong, t.value())
		}
	}
	switch {
	case len(strong) == 0:
		return nil, refuse(http.StatusPreconditionFailed, codes.Aborted, "If-Match: weak etags never match; give the strong one of a GET")
	case len(strong) > 1:
		return nil, unmatchable("the request takes one etag; give the one that was read last")
	}
	if body, ok := m.etags.request.AppendText(nil, wire); ok && len(body) > 0 {
		if string(body) != strong[0] {
			return nil, unmatchable("the request's field " + quote(m.etags.path) + " says " + quote(string(body)) + "; give one of the two, or both the same")
		}
		x.conditional = true
		return wire, nil
	}
	x.conditional = true
	return m.method.Request().AppendParam(wire, m.etags.path, []string{strong[0]})
}

func unmatchable(why string) error {
	return &transcode.Error{Path: ifMatchHeader, Problem: why}
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// overtaken says whether a call failed because its If-Match does not hold any more: whatever the backend itself answers with ABORTED (AIP-154).
func overtaken(st *status.Status) bool {
	if st.Code() != codes.Aborted && st.Code() != codes.FailedPrecondition {
		return false
	}
	for _, d := range st.Proto().GetDetails() {
		var info errdetails.ErrorInfo
		if !d.MessageIs(&info) || d.UnmarshalTo(&info) != nil {
			continue
		}
		if info.GetDomain() == call.Domain {
			return false // the mesh's own: the backend was not asked, or goes on
		}
		if info.GetReason() == "ETAG_MISMATCH" {
			return true
		}
	}
	return st.Code() == codes.Aborted
}

// failedMatch says whether the If-Match of a GET does not hold for its answer: neither its whole ETag nor the resource's own part of it is among those given.
func failedMatch(r *http.Request, answer http.Header) bool {
	given := r.Header[ifMatchHeader]
	if len(given) == 0 || !reads(r) {
		return false
	}
	tags, ok := parseEtags(strings.Join(given, ","))
	if ok && tags == nil {
		return false
	}
	whole := strings.Trim(answer.Get("ETag"), `"`)
	own, _, _ := strings.Cut(whole, string(hashMark))
	for _, t := range tags {
		if !t.weak && (t.opaque == whole || t.opaque == own) {
			return false
		}
	}
	return true
}

// entityTag is one of RFC 9110 section 8.8.3.
type entityTag struct {
	opaque string // between the quotes
	weak   bool
}

// value is the resource's own etag: that before the mark, decoded.
func (t entityTag) value() string {
	own, _, _ := strings.Cut(t.opaque, string(hashMark))
	return decodeEtag(own)
}

// parseEtags reads a list of entity tags; nil for *.
func parseEtags(header string) (tags []entityTag, ok bool) {
	rest := strings.TrimSpace(header)
	if rest == "*" {
		return nil, true
	}
	tags = []entityTag{}
	for {
		rest = strings.TrimLeft(rest, " \t,") // empty elements are allowed: RFC 9110 section 5.6.1.2
		if rest == "" {
			return tags, len(tags) > 0
		}
		var t entityTag
		rest, t.weak = strings.CutPrefix(rest, "W/")
		if rest, ok = strings.CutPrefix(rest, `"`); !ok {
			return nil, false
		}
		if t.opaque, rest, ok = strings.Cut(rest, `"`); !ok || strings.IndexFunc(t.opaque, func(r rune) bool { return r <= ' ' || r == 0x7f }) >= 0 {
			return nil, false
		}
		tags = append(tags, t)
		if rest = strings.TrimLeft(rest, " \t"); rest != "" && rest[0] != ',' {
			return nil, false
		}
	}
}

// encodeEtag writes a resource's etag so that it can stand in an entity tag before the mark; decodeEtag is its inverse.
func encodeEtag(s string) string {
	const hex = "0123456789ABCDEF"
	plain := func(c byte) bool {
		return c > ' ' && c < 0x7f && c != '"' && c != '%' && c != hashMark && c != ',' && c != '\\'
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

func decodeEtag(s string) string {
	digit := func(c byte) int { return strings.IndexByte("0123456789ABCDEF", c) }
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && digit(s[i+1]) >= 0 && digit(s[i+2]) >= 0 {
			b.WriteByte(byte(digit(s[i+1])<<4 | digit(s[i+2])))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
