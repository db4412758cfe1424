package mcpadapter

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// jsonPath writes a field path of a google.rpc.BadRequest, which is in proto names, in the names that agents use: "order_lines[2].item_id"
// becomes "orderLines[2].itemId". A path that does not lead through md stays as it is.
func jsonPath(md protoreflect.MessageDescriptor, path string) string {
	var out strings.Builder
	for rest := path; rest != ""; {
		if md == nil {
			return path
		}
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		fd := md.Fields().ByTextName(rest[:end])
		if fd == nil {
			return path
		}
		out.WriteString(fd.JSONName())
		if rest = rest[end:]; strings.HasPrefix(rest, "[") {
			end := subscript(rest)
			if end == 0 {
				return path
			}
			out.WriteString(rest[:end])
			rest = rest[end:]
		}
		if md = fd.Message(); fd.IsMap() {
			md = fd.MapValue().Message()
		}
		if rest == "" {
			break
		}
		if rest[0] != '.' || len(rest) == 1 {
			return path
		}
		out.WriteByte('.')
		rest = rest[1:]
	}
	return out.String()
}

// subscript is the length of the "[…]" at the start of s, whose text may be quoted; 0 if it does not end.
func subscript(s string) int {
	quoted := false
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ']' && !quoted:
			return i + 1
		}
	}
	return 0
}
