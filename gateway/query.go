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
	var oneofs map[protoreflect.FullName]string
	paths := make(map[string]string, len(params))
	for _, p := range params {
		if path := protoPath(md, p.name); path != "" {
			if other, ok := paths[path]; ok {
				return dst, false, &transcode.Error{Path: p.name, Problem: "given twice, as " + quote(other) + " too"}
			}
			paths[path] = p.name
		}
		first, _, _ := strings.Cut(p.name, ".")
		fd := fieldNamed(md, first)
		if fd != nil {
			if err := r.mayQuery(fd, p.name); err != nil {
				return dst, false, err
			}
			masked = masked || fd == r.updateMask
			if one := fd.ContainingOneof(); one != nil && !one.IsSynthetic() {
				if other, ok := oneofs[one.FullName()]; ok && other != string(fd.Name()) {
					return dst, false, &transcode.Error{Path: p.name, Problem: "the oneof " + quote(string(one.Name())) + " is already set by " + quote(other)}
				}
				if oneofs == nil {
					oneofs = map[protoreflect.FullName]string{}
				}
				oneofs[one.FullName()] = string(fd.Name())
			}
		}
		if dst, err = tc.AppendParam(dst, p.name, p.values); err != nil {
			return dst, false, err
		}
	}
	return dst, masked, nil
}

// mayQuery refuses a query parameter for a field that the path or the body sets: google/api/http.proto leaves only the others to the query.
func (r *route) mayQuery(fd protoreflect.FieldDescriptor, name string) error {
	path := protoPath(r.method.Desc.Input(), name)
	if r.bodyField != nil {
		if path == r.body || strings.HasPrefix(path, r.body+".") {
			return &transcode.Error{Path: name, Problem: "not a query parameter of this route; the body is the field " + quote(r.body)}
		}
		if one := fd.ContainingOneof(); one != nil && !one.IsSynthetic() && one == r.bodyField.ContainingOneof() && fd != r.bodyField {
			return &transcode.Error{Path: name, Problem: "the oneof " + quote(string(one.Name())) + " is already set by the body"}
		}
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
