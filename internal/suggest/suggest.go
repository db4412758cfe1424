// Package suggest writes a policy for contracts that say little about themselves: which methods look like reads, writes and deletions, and
// why. It is for people to review: nothing is granted by a name until an operator has taken the suggestion over.
package suggest

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/catalog"
)

// kind is what a method looks like.
type kind int

const (
	unknown kind = iota
	read
	adds
	sets
	deletes
	said // the contract says so itself
)

// guess is what a method looks like, and why.
type guess struct {
	method *catalog.Method
	kind   kind
	why    []string
	// keyField is a request field that is there to make a repeated call take effect once.
	keyField string
}

// class is a group of methods for which the same rule is suggested.
var classes = []struct {
	kind   kind
	title  string
	values []string
}{
	{read, "read, as it seems: agents may call them without asking, and the mesh may repeat them", []string{"read_only: true"}},
	{adds, "add something, as it seems, and overwrite nothing; repeating them adds it again", []string{"read_only: false", "destructive: false", "idempotent: false"}},
	{sets, "set something, as it seems: they overwrite, and repeating them changes nothing more", []string{"read_only: false", "destructive: true", "idempotent: true"}},
	{deletes, "delete or stop something, as it seems", []string{"read_only: false", "destructive: true", "# approval: confirm"}},
}

// Write writes a configuration with a policy for the methods of s that say nothing about what they do. It loads as it is.
func Write(w io.Writer, s *catalog.Snapshot) error {
	var b bytes.Buffer
	groups := map[string]map[kind][]guess{}
	var services []string
	counts := map[kind]int{}
	for _, m := range s.Methods() {
		if m.Service.Infrastructure || m.Service.Mesh {
			continue
		}
		g := look(m)
		counts[g.kind]++
		name := string(m.Service.Desc.FullName())
		if groups[name] == nil {
			groups[name] = map[kind][]guess{}
			services = append(services, name)
		}
		groups[name][g.kind] = append(groups[name][g.kind], g)
	}
	fmt.Fprintf(&b, "# A suggestion by toolway check --suggest, from the contracts alone. It is a guess: review every line, then use it with --config.\n"+
		"# Beside each method stands what speaks for the guess. Where only the name does, look twice: a name promises nothing.\n"+
		"# Of %d methods: %d read, %d add, %d set, %d delete, %d are not clear (they stay writes that may destroy), %d say it themselves.\n",
		len(s.Methods())-ours(s), counts[read], counts[adds], counts[sets], counts[deletes], counts[unknown], counts[said])
	slices.Sort(services)
	if counts[read]+counts[adds]+counts[sets]+counts[deletes] == 0 {
		b.WriteString("policy: []\n")
	} else {
		b.WriteString("policy:\n")
	}
	for _, name := range services {
		for _, c := range classes {
			rules(&b, name, c.title, c.values, groups[name][c.kind])
		}
		if left := groups[name][unknown]; len(left) > 0 {
			fmt.Fprintf(&b, "\n  # %s, not clear:\n", name)
			for _, g := range left {
				fmt.Fprintf(&b, "  #   %s%s\n", g.method.FullMethod[1:], reasons(g.why))
			}
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func ours(s *catalog.Snapshot) int {
	n := 0
	for _, m := range s.Methods() {
		if m.Service.Infrastructure || m.Service.Mesh {
			n++
		}
	}
	return n
}

// rules writes the rule of one class of a service, and one more for each idempotency key.
func rules(b *bytes.Buffer, service, title string, values []string, guesses []guess) {
	if len(guesses) == 0 {
		return
	}
	fmt.Fprintf(b, "\n  # %s: methods that %s.\n  - match:\n", service, title)
	for _, g := range guesses {
		fmt.Fprintf(b, "      - %s%s\n", g.method.FullMethod[1:], reasons(g.why))
	}
	for _, v := range values {
		fmt.Fprintf(b, "    %s\n", v)
	}
	byField := map[string][]guess{}
	for _, g := range guesses {
		if g.keyField != "" {
			byField[g.keyField] = append(byField[g.keyField], g)
		}
	}
	fields := make([]string, 0, len(byField))
	for f := range byField {
		fields = append(fields, f)
	}
	slices.Sort(fields)
	for _, f := range fields {
		fmt.Fprintf(b, "\n  # Their requests have %s: the backend takes a repeated call for the same one.\n  - match:\n", f)
		for _, g := range byField[f] {
			fmt.Fprintf(b, "      - %s\n", g.method.FullMethod[1:])
		}
		fmt.Fprintf(b, "    idempotency: {key_field: %s}\n", f)
	}
}

func reasons(why []string) string {
	if len(why) == 0 {
		return ""
	}
	return "  # " + strings.Join(why, ", ")
}

// verbs by what they say; the first word of a method's name is looked up.
var verbs = map[kind][]string{
	read: {"get", "list", "search", "find", "query", "read", "lookup", "describe", "show", "fetch", "watch", "count", "check", "stat", "stats", "status", "ping",
		"tail", "explain", "exists", "has", "is", "inspect", "view", "download", "select", "scan", "range", "poll", "peek", "retrieve", "discover", "resolve",
		"estimate", "compare", "diff", "preview", "health", "version", "info", "subscribe", "batchget", "aggregate", "recommend", "facet", "scroll"},
	adds: {"create", "add", "insert", "append", "send", "publish", "submit", "post", "record", "import", "upload", "clone", "copy", "register", "report", "push", "snapshot"},
	sets: {"update", "set", "put", "replace", "upsert", "patch", "modify", "edit", "rename", "move", "enable", "tag", "label", "assign", "configure", "apply", "grant", "alter", "overwrite", "write"},
	deletes: {"delete", "remove", "drop", "purge", "destroy", "wipe", "kill", "terminate", "truncate", "revoke", "clear", "cancel", "stop", "disable", "reset", "evict",
		"unregister", "deregister", "erase", "abort", "expire", "flush", "shutdown", "undeploy", "unload", "detach"},
}

// strong are verbs that say the same wherever they stand, for names that begin with a noun: RoleAdd, MemberList.
var strong = []string{"get", "list", "status", "add", "create", "delete", "remove", "revoke", "update", "grant", "put"}

var batch = []string{"batch", "bulk", "multi", "mass"}

// byName says what a name looks like, and which word says so: the first one, else a strong verb further on.
func byName(name string) (kind, string) {
	words := catalog.Words(name)
	if len(words) > 1 && slices.Contains(batch, strings.ToLower(words[0])) {
		words = words[1:]
	}
	for i, w := range words {
		w = strings.ToLower(w)
		if i > 0 && !slices.Contains(strong, w) {
			continue
		}
		for _, k := range []kind{read, adds, sets, deletes} {
			if slices.Contains(verbs[k], w) {
				return k, w
			}
		}
	}
	return unknown, ""
}

// look says what a method looks like. Its contract's own word, an option or idempotency_level, leaves nothing to guess.
func look(m *catalog.Method) guess {
	g := guess{method: m}
	if saysItself(m) {
		g.kind = said
		return g
	}
	in, out := m.Desc.Input(), m.Desc.Output()
	named, word := byName(string(m.Desc.Name()))
	if word != "" {
		g.why = append(g.why, fmt.Sprintf("name %q", word))
	}
	verb := ""
	if len(m.Bindings) > 0 {
		verb = m.Bindings[0].Verb
		switch verb {
		case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE":
			g.why = append(g.why, "HTTP "+verb)
		default:
			verb = ""
		}
	}
	g.kind = settle(named, verb)
	if g.kind == unknown && verb == "GET" {
		g.why = append(g.why, "which contradict each other")
	}
	lists := hasText(in, "page_token") && hasText(out, "next_page_token")
	switch {
	case lists && (g.kind == unknown || g.kind == read) && named != deletes:
		g.kind, g.why = read, append(g.why, "pages through results")
	case out.FullName() == "google.longrunning.Operation":
		g.why = append(g.why, "starts a long-running operation")
		if g.kind == read {
			g.kind = unknown
		}
	case out.FullName() == "google.protobuf.Empty" && g.kind == read && verb != "GET":
		g.kind, g.why = unknown, append(g.why, "but returns nothing")
	}
	if g.kind == read {
		return g
	}
	g.evidenceOfWrites(in)
	return g
}

// settle weighs the name against the HTTP verb. Where they contradict each other nothing is settled.
func settle(named kind, verb string) kind {
	switch verb {
	case "GET", "HEAD":
		if named == unknown || named == read {
			return read
		}
		return unknown
	case "DELETE":
		return deletes
	case "PUT", "PATCH":
		if named == read {
			return unknown
		}
		return cmp.Or(named, sets)
	}
	return named
}

// evidenceOfWrites notes fields that say what repeating a write does.
func (g *guess) evidenceOfWrites(in protoreflect.MessageDescriptor) {
	for _, name := range []string{"request_id", "idempotency_key", "client_request_token", "client_token"} {
		if hasText(in, name) && !g.method.Desc.IsStreamingClient() {
			g.keyField = name
			g.why = append(g.why, name)
			break
		}
	}
	if hasText(in, "etag") || nested(in, "etag") {
		g.why = append(g.why, "etag")
	}
	if in.Fields().ByName("update_mask") != nil {
		g.why = append(g.why, "update_mask")
	}
	for _, name := range []protoreflect.Name{"validate_only", "dry_run"} {
		if in.Fields().ByName(name) != nil {
			g.why = append(g.why, string(name)+" tries it out")
		}
	}
}

// saysItself says whether the contract, or the configuration that is in force, says what the method does by more than an HTTP verb.
func saysItself(m *catalog.Method) bool {
	for _, name := range []string{"read_only", "destructive", "idempotent"} {
		if from := m.Policy.From[name]; from != "" && !strings.HasPrefix(from, "HTTP verb") {
			return true
		}
	}
	return false
}

func hasText(md protoreflect.MessageDescriptor, name string) bool {
	fd := md.Fields().ByName(protoreflect.Name(name))
	return fd != nil && fd.Kind() == protoreflect.StringKind && fd.Cardinality() != protoreflect.Repeated
}

// nested says whether a message that the request holds has the text field.
func nested(md protoreflect.MessageDescriptor, name string) bool {
	for i := range md.Fields().Len() {
		if fd := md.Fields().Get(i); fd.Message() != nil && !fd.IsList() && !fd.IsMap() && hasText(fd.Message(), name) {
			return true
		}
	}
	return false
}
