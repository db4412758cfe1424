package lock

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Effect is what a change means for agents and for safety.
type Effect string

// The effects, the gravest first.
const (
	// Breaks means that calls or results that were right are no longer.
	Breaks Effect = "breaks"
	// Loosens means that something is allowed, or shown, that was not.
	Loosens Effect = "loosens"
	// Changes means that agents are told something else, and nothing that they did stops to work.
	Changes Effect = "changes"
	// Tightens means that less is allowed. It is the only effect for which a tool is not quarantined.
	Tightens Effect = "tightens"
)

var effects = []Effect{Breaks, Loosens, Changes, Tightens}

// Change is one difference between two locks.
type Change struct {
	Effect Effect `json:"effect"`
	// Method is the tool's, as pkg.Service/Method; of a type's change, the first one that reaches it.
	Method string `json:"method"`
	// Tool is the tool's name as agents see it.
	Tool string `json:"tool"`
	// Others are further methods to which the same change of a type applies.
	Others []string `json:"others,omitempty"`
	// Type is the full name of the message or enum that has changed; "" for changes of the tool itself.
	Type string `json:"type,omitempty"`
	// Text says what has changed.
	Text string `json:"text"`

	// place is where the lock holds what has changed: beginnings of lines, each within the one before.
	place []string
}

// held says whether the change has to be reviewed before the tool is served.
func (c Change) held() bool { return c.Effect != Tightens }

// Compare returns what has changed from before to after, sorted by method, tools first gone or new, then by effect.
func Compare(before, after *File) []Change {
	var out []Change
	byText := map[string]int{}
	methods := map[string]bool{}
	for m := range before.Tools {
		methods[m] = true
	}
	for m := range after.Tools {
		methods[m] = true
	}
	for _, m := range slices.Sorted(mapKeys(methods)) {
		was, is := before.Tools[m], after.Tools[m]
		switch {
		case is == nil:
			out = append(out, Change{Effect: Breaks, Method: m, Tool: was.Tool, Text: fmt.Sprintf("the tool %q is gone", was.Tool), place: toolPlace(m)})
			continue
		case was == nil:
			out = append(out, Change{Effect: Loosens, Method: m, Tool: is.Tool, Text: fmt.Sprintf("the tool %q is new", is.Tool)})
			continue
		case was.Hash == is.Hash:
			continue
		}
		for _, c := range compareTools(m, was, is, before.Types[was.Backend], after.Types[is.Backend]) {
			k := c.Type + "\x00" + string(c.Effect) + "\x00" + c.Text
			if at, known := byText[k]; known && c.Type != "" {
				out[at].Others = append(out[at].Others, m)
				continue
			}
			if c.Type != "" {
				byText[k] = len(out)
			}
			out = append(out, c)
		}
	}
	return out
}

func mapKeys(m map[string]bool) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// comparison compares two definitions of one tool.
type comparison struct {
	method, tool string
	backend      string // in the lock
	was, is      map[string]*Type
	place        []string // of the next change, within the tool or type
	seen         map[[3]string]bool
	out          []Change
}

func (c *comparison) add(e Effect, typ, format string, args ...any) {
	place := toolPlace(c.method)
	if typ != "" && c.was[typ] != nil {
		place = []string{member("types"), member(c.backend), member(typ)}
	}
	if typ == "" || c.was[typ] != nil {
		place = append(place, c.place...)
	}
	c.place = nil
	c.out = append(c.out, Change{Effect: e, Method: c.method, Tool: c.tool, Type: typ, Text: fmt.Sprintf(format, args...), place: place})
}

// at says where the next change is, within the tool or type.
func (c *comparison) at(place ...string) *comparison {
	c.place = place
	return c
}

// member is how the line of an object's member begins.
func member(name string) string { return string(encode(name)) + ": " }

// inPolicy is the place of a member of the policy.
func inPolicy(name string) []string { return []string{member("policy"), member(name)} }

func toolPlace(method string) []string { return []string{member("tools"), member(method)} }

// compareTools returns what has changed, the gravest first. It finds at least one change in definitions whose hashes differ.
func compareTools(method string, was, is *Tool, wasTypes, isTypes map[string]*Type) []Change {
	c := &comparison{method: method, tool: is.Tool, backend: was.Backend, was: wasTypes, is: isTypes, seen: map[[3]string]bool{}}
	if was.Tool != is.Tool {
		c.at(member("tool")).add(Breaks, "", "the tool's name changed from %q to %q", was.Tool, is.Tool)
	}
	c.text("title", was.Title, is.Title)
	c.text("description", was.Description, is.Description)
	c.hints(was.Hints, is.Hints)
	c.policy(was.Policy, is.Policy)
	c.sensitive(was.Sensitive, is.Sensitive)
	c.routes(was.Routes, is.Routes)
	c.side("request", was.Request, is.Request)
	c.side("response", was.Response, is.Response)
	if len(c.out) == 0 && was.Hash != is.Hash { // names of types that agents do not see
		c.add(Changes, "", "the definition changed from %s to %s, by names of types alone", was.Hash, is.Hash)
	}
	slices.SortStableFunc(c.out, func(a, b Change) int {
		return cmp.Compare(slices.Index(effects, a.Effect), slices.Index(effects, b.Effect))
	})
	return c.out
}

// text compares what agents read.
func (c *comparison) text(what, was, is string) {
	if was != is {
		c.at(member(what)).add(Changes, "", "the %s changed from %q to %q", what, was, is)
	}
}

func (c *comparison) hints(was, is Hints) {
	for _, h := range []struct {
		name    string
		was, is bool
		safe    bool // the value that makes agents more careful
	}{
		{"readOnly", was.ReadOnly, is.ReadOnly, false}, {"destructive", was.Destructive, is.Destructive, true},
		{"idempotent", was.Idempotent, is.Idempotent, false}, {"openWorld", was.OpenWorld, is.OpenWorld, true},
	} {
		if h.was != h.is {
			e := Loosens
			if h.is == h.safe {
				e = Tightens
			}
			c.at(member("annotations"), member(h.name)).add(e, "", "the annotation %s changed from %v to %v", h.name, h.was, h.is)
		}
	}
}

var approvals = []string{"", "confirm", "approver"}

func (c *comparison) policy(was, is Policy) {
	c.list("scope", inPolicy("scopes"), was.Scopes, is.Scopes, Tightens, Loosens)
	c.list("label", inPolicy("labels"), was.Labels, is.Labels, Loosens, Tightens)
	if was.Approval != is.Approval {
		e := Tightens
		if slices.Index(approvals, is.Approval) < slices.Index(approvals, was.Approval) {
			e = Loosens
		}
		c.at(inPolicy("approval")...).add(e, "", "approval changed from %s to %s", cmp.Or(was.Approval, "none"), cmp.Or(is.Approval, "none"))
	} else if was.ApproverScope != is.ApproverScope {
		c.at(inPolicy("approver_scope")...).add(Loosens, "", "the approver's scope changed from %q to %q", was.ApproverScope, is.ApproverScope)
	}
	c.more("cost", "cost", max(1, was.Cost), max(1, is.Cost), false)
	c.more("retry", "retry", number(was.Retry), number(is.Retry), true)
	c.more("idempotency key required", "key_required", number(was.KeyRequired), number(is.KeyRequired), false)
	c.more("priority", "priority", priority(was.Priority), priority(is.Priority), true)
	c.period("cache_ttl", was.CacheTTL, is.CacheTTL, 0)
	c.period("max_timeout", was.MaxTimeout, is.MaxTimeout, forever)
	c.period("timeout", was.Timeout, is.Timeout, forever)
	for _, l := range []struct {
		name    string
		was, is int
	}{{"max_bytes", was.MaxBytes, is.MaxBytes}, {"max_items", was.MaxItems, is.MaxItems}, {"max_depth", was.MaxDepth, is.MaxDepth}} {
		if l.was != l.is {
			e := Loosens
			if l.is > 0 && (l.was == 0 || l.is < l.was) {
				e = Tightens
			}
			c.at(inPolicy(l.name)...).add(e, "", "the result's %s changed from %s to %s", l.name, limit(l.was), limit(l.is))
		}
	}
	keyMember := "key_template"
	if was.KeyTemplate == "" {
		keyMember = "key_field"
	}
	c.named("idempotency key", keyMember, cmp.Or(was.KeyTemplate, was.KeyField), cmp.Or(is.KeyTemplate, is.KeyField))
	c.named("stream's cursor field", "cursor_field", was.CursorField, is.CursorField)
	c.named("stream's event id field", "event_id_field", was.EventIDField, is.EventIDField)
	c.named("stream's event type field", "event_type_field", was.EventTypeField, is.EventTypeField)
	c.doors(was.Doors, is.Doors)
}

// named compares a value that tightens when it comes, and loosens when it changes or goes.
func (c *comparison) named(what, name, was, is string) {
	c.at(inPolicy(name)...)
	defer c.at()
	switch {
	case was == is:
	case was == "":
		c.add(Tightens, "", "the %s is new: %q", what, is)
	case is == "":
		c.add(Loosens, "", "the %s is gone: it was %q", what, was)
	default:
		c.add(Loosens, "", "the %s changed from %q to %q", what, was, is)
	}
}

// doors compares the doors that rules name. Where none does, the door's own rule holds, which the lock does not know.
func (c *comparison) doors(was, is *[]string) {
	c.at(inPolicy("doors")...)
	defer c.at()
	switch {
	case was == nil && is == nil:
	case was != nil && is != nil:
		c.list("door", inPolicy("doors"), *was, *is, Loosens, Tightens)
	case is == nil:
		c.add(Loosens, "", "no rule names the doors any more: they were %s", words(*was))
	case len(*is) == 0:
		c.add(Tightens, "", "no door exposes it any more")
	default:
		c.add(Loosens, "", "a rule names the doors now: %s", words(*is))
	}
}

// list compares sets of names, which are at a place; added and removed are the effects.
func (c *comparison) list(what string, place, was, is []string, added, removed Effect) {
	for _, v := range is {
		if !slices.Contains(was, v) {
			c.at(place...).add(added, "", "the %s %q is new", what, v)
		}
	}
	for _, v := range was {
		if !slices.Contains(is, v) {
			c.at(slices.Concat(place, []string{string(encode(v))})...).add(removed, "", "the %s %q is gone", what, v)
		}
	}
}

// more compares numbers of a member of the policy; looser says whether more of it is.
func (c *comparison) more(what, name string, was, is int, looser bool) {
	if was == is {
		return
	}
	e := Tightens
	if is > was == looser {
		e = Loosens
	}
	show := func(n int) string {
		switch what {
		case "retry", "idempotency key required":
			return fmt.Sprint(n == 1)
		case "priority":
			return [...]string{"low", "normal", "high"}[n+1]
		}
		return fmt.Sprint(n)
	}
	c.at(inPolicy(name)...).add(e, "", "%s changed from %s to %s", what, show(was), show(is))
}

const forever = time.Duration(1<<63 - 1)

// period compares durations of which longer is looser; none stands for one that is not set.
func (c *comparison) period(what, was, is string, none time.Duration) {
	if was == is {
		return
	}
	read := func(s string) time.Duration {
		d, err := time.ParseDuration(s)
		if err != nil {
			return none
		}
		return d
	}
	e := Tightens
	if read(is) > read(was) {
		e = Loosens
	}
	c.at(inPolicy(what)...).add(e, "", "%s changed from %s to %s", what, cmp.Or(was, "none"), cmp.Or(is, "none"))
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func priority(s string) int { return slices.Index([]string{"low", "", "high"}, s) - 1 }

func limit(n int) string {
	if n == 0 {
		return "the mesh's"
	}
	return fmt.Sprint(n)
}

func words(list []string) string { return cmp.Or(strings.Join(list, ", "), "none") }

// sensitive compares marked fields, by their lines.
func (c *comparison) sensitive(was, is []string) {
	read := func(lines []string) map[string]string {
		out := map[string]string{}
		for _, l := range lines {
			path, marks, _ := strings.Cut(l, ": ")
			out[path] = marks
		}
		return out
	}
	before, after := read(was), read(is)
	at := func(path string) *comparison {
		return c.at(member("sensitive"), strings.TrimSuffix(string(encode(path+": ")), `"`))
	}
	for _, l := range is {
		path, marks, _ := strings.Cut(l, ": ")
		switch old, known := before[path]; {
		case !known:
			at(path).add(Tightens, "", "the field %s is %s now", path, marks)
		case old != marks:
			e := Loosens
			if strings.HasPrefix(marks, old+", ") || strings.Replace(old, "sensitive", "redacted", 1) == marks {
				e = Tightens
			}
			at(path).add(e, "", "the field %s was %s, and is %s", path, old, marks)
		}
	}
	for _, l := range was {
		if path, marks, _ := strings.Cut(l, ": "); after[path] == "" {
			at(path).add(Loosens, "", "the field %s is no longer %s", path, marks)
		}
	}
}

func (c *comparison) routes(was, is []string) {
	c.list("HTTP rule", []string{member("routes")}, was, is, Loosens, Breaks)
	if len(was) == len(is) && !slices.Equal(was, is) && slices.Equal(slices.Sorted(slices.Values(was)), slices.Sorted(slices.Values(is))) {
		c.at(member("routes")).add(Changes, "", "the order of the HTTP rules changed: %s is the first now", is[0])
	}
}
