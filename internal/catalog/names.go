package catalog

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// MaxToolName is the longest tool name in characters: hosts put prefixes before it, and model APIs refuse more than 64.
const MaxToolName = 48

var (
	toolName         = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]*$`)
	versionComponent = regexp.MustCompile(`^v[0-9]+[a-z0-9]*$`)
	nameHash         = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
)

// validToolName says whether name may be shown to agents as it is.
func validToolName(name string) bool { return len(name) <= MaxToolName && toolName.MatchString(name) }

// defaultToolName derives the name of md from md and prefix alone, so that it never depends on what else is registered.
func defaultToolName(prefix string, md protoreflect.MethodDescriptor) string {
	name := prefix + wholeToolName(md)
	if len(name) <= MaxToolName {
		return name
	}
	return cutToolName(name, md.FullName())
}

// longToolName is the name under which a tool can always be called, whatever else is registered: it ends in a hash of the full name.
func longToolName(prefix string, md protoreflect.MethodDescriptor) string {
	return cutToolName(prefix+wholeToolName(md), md.FullName())
}

func wholeToolName(md protoreflect.MethodDescriptor) string {
	service := snake(string(md.Parent().Name()))
	if short := strings.TrimSuffix(service, "_service"); short != "" {
		service = short
	}
	name := strings.Trim(service+"_"+snake(string(md.Name())), "_")
	if v := packageVersion(md.ParentFile().Package()); v != "" && v != "v1" {
		name += "_" + v
	}
	if name == "" || name[0] < 'a' || name[0] > 'z' {
		return "t_" + name
	}
	return name
}

func cutToolName(name string, full protoreflect.FullName) string {
	sum := sha256.Sum256([]byte(full))
	hash := nameHash.EncodeToString(sum[:5])
	if room := MaxToolName - len(hash) - 1; len(name) > room {
		name = name[:room]
	}
	return strings.TrimRight(name, "_-") + "_" + hash
}

// packageVersion returns the last component of pkg that is a version, such as "v2" or "v1beta1", or "".
func packageVersion(pkg protoreflect.FullName) string {
	for p := pkg; p != ""; p = p.Parent() {
		if c := string(p.Name()); versionComponent.MatchString(c) {
			return c
		}
	}
	return ""
}

// snake turns an identifier into snake case; a run of capitals is one word: GetHTTPStatus becomes get_http_status, ListVMsByZone
// list_vms_by_zone.
func snake(ident string) string {
	var b strings.Builder
	for _, w := range words(ident) {
		if b.Len() > 0 {
			b.WriteByte('_')
		}
		b.WriteString(strings.ToLower(w))
	}
	return b.String()
}

// words splits an identifier at underscores and at changes of case. Only ASCII letters and digits are kept.
func words(ident string) []string {
	var out []string
	start := 0
	flush := func(end int) {
		if end > start {
			out = append(out, ident[start:end])
		}
		start = end
	}
	for i := range len(ident) {
		c := ident[i]
		switch {
		case !isLower(c) && !isUpper(c) && !isDigit(c):
			flush(i)
			start = i + 1
		case i > start && isUpper(c) && startsWord(ident, i):
			flush(i)
		}
	}
	flush(len(ident))
	return out
}

// startsWord says whether the capital at i, which follows a letter or digit, begins a new word.
func startsWord(ident string, i int) bool {
	if !isUpper(ident[i-1]) {
		return true
	}
	if i+1 >= len(ident) || !isLower(ident[i+1]) {
		return false
	}
	plural := ident[i+1] == 's' && (i+2 == len(ident) || !isLower(ident[i+2]))
	return !plural
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// Words splits an identifier at underscores and changes of case: "GetHTTPStatus" is "Get", "HTTP", "Status".
func Words(ident string) []string { return words(ident) }
