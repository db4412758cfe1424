package gateway

import (
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/transcode"
)

// maxParams bounds the different query parameters of one request.
const maxParams = 200

// param is one query parameter with all its values, in the order of the query.
type param struct {
	name   string
	values []string
	path   string // of the field that it sets, in proto names; "" if there is none
}

// parseQuery decodes a raw query once; "+" is a space.
func parseQuery(raw string) ([]param, error) {
	var out []param
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "query parameter %q: malformed percent-encoding", key)
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "query parameter %q: malformed percent-encoding", name)
		}
		i := slices.IndexFunc(out, func(p param) bool { return p.name == name })
		if i < 0 {
			if len(out) == maxParams {
				return nil, status.Errorf(codes.InvalidArgument, "query: more than %d parameters", maxParams)
			}
			i = len(out)
			out = append(out, param{name: name})
		}
		out[i].values = append(out[i].values, value)
	}
	return out, nil
}

// appendQuery appends what the query sets. It reports whether it sets the route's update mask.
func (r *route) appendQuery(dst []byte, raw string) (out []byte, masked bool, err error) {
	if raw == "" {
		return dst, false, nil
	}
	params, err := parseQuery(raw)
	if err != nil {
		return dst, false, err
	}
	if r.body == wholeBody && len(params) > 0 {
		return dst, false, &transcode.Error{Path: params[0].name, Problem: "this route takes no query parameters; its JSON body is the whole request"}
	}
	md, tc := r.method.Desc.Input(), r.method.Request()
	var set oneofs
	for _, v := range r.template.vars {
		_ = set.claim(md, v.path, byPath)
	}
	if r.bodyField != nil {
		_ = set.claim(md, r.body, byBody)
	}
	for i := range params {
		p := &params[i]
		p.path = protoPath(md, p.name)
		for _, other := range params[:i] {
			if p.path != "" && other.path == p.path {
				return dst, false, &transcode.Error{Path: p.name, Problem: "given twice, as " + quote(other.name) + " too"}
			}
		}
		if err := r.mayQuery(p.path, p.name); err != nil {
			return dst, false, err
		}
		first, _, _ := strings.Cut(p.name, ".")
		if fd := fieldNamed(md, first); fd != nil {
			masked = masked || fd == r.updateMask
		}
		if problem := set.claim(md, p.path, p.name); problem != "" {
			return dst, false, &transcode.Error{Path: p.name, Problem: problem}
		}
		if dst, err = tc.AppendParam(dst, p.name, p.values); err != nil {
			return dst, false, err
		}
	}
	return dst, masked, nil
}

// oneofs holds which members of oneofs are set, and by what: path, body and query may not set two of one, for the last would clear the
// others. Keys are the path to the oneof. Most messages have none, and for them there is no map.
type oneofs map[string]oneofMember

type oneofMember struct {
	field protoreflect.Name
	by    string
}

// What sets a field, if not the parameter of that name; no field is called so.
const (
	byPath = "the path"
	byBody = "the body"
)

// claim notes the members of oneofs that stand on a field path, set by what by says. Where another member is set it returns the problem.
func (o *oneofs) claim(md protoreflect.MessageDescriptor, path, by string) string {
	at := 0 // where name begins
	for name := range strings.SplitSeq(path, ".") {
		if md == nil {
			return ""
		}
		fd := md.Fields().ByName(protoreflect.Name(name))
		if fd == nil {
			return ""
		}
		if one := fd.ContainingOneof(); one != nil && !one.IsSynthetic() {
			key := path[:at] + string(one.Name())
			if old, ok := (*o)[key]; !ok {
				if *o == nil {
					*o = oneofs{}
				}
				(*o)[key] = oneofMember{fd.Name(), by}
			} else if old.field != fd.Name() {
				if old.by != byPath && old.by != byBody {
					old.by = quote(old.by)
				}
				return "the oneof " + quote(string(one.Name())) + " is already set by " + old.by
			}
		}
		at += len(name) + 1
		md = fd.Message()
	}
	return ""
}

// mayQuery refuses a query parameter for a field that the path or the body sets: google/api/http.proto leaves only the others to the query.
func (r *route) mayQuery(path, name string) error {
	if r.bodyField != nil && (path == r.body || strings.HasPrefix(path, r.body+".")) {
		return &transcode.Error{Path: name, Problem: "not a query parameter of this route; the body is the field " + quote(r.body)}
	}
	for _, v := range r.template.vars {
		if path == v.path {
			return &transcode.Error{Path: name, Problem: "already set by the path"}
		}
	}
	return nil
}

// protoPath returns the field path that name, in proto or JSON names, means in md, or "".
func protoPath(md protoreflect.MessageDescriptor, name string) string {
	if !strings.Contains(name, ".") {
		if fd := fieldNamed(md, name); fd != nil {
			return string(fd.Name())
		}
		return ""
	}
	var out []string
	for part := range strings.SplitSeq(name, ".") {
		if md == nil {
			return ""
		}
		fd := fieldNamed(md, part)
		if fd == nil {
			return ""
		}
		out = append(out, string(fd.Name()))
		md = fd.Message()
	}
	return strings.Join(out, ".")
}

func quote(s string) string { return `"` + s + `"` }
