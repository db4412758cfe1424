package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/rules"
)

// decide asks all rules about a call with one request.
func decide(s *rules.Set, m *catalog.Method, in rules.Input) rules.Decision {
	of := s.For(m)
	if of == nil {
		return rules.Decision{Allowed: true}
	}
	msg := in.Request
	in.Request = nil
	d := of.Before(&in)
	if (d.Allowed || d.Open) && of.LooksAtRequest() {
		in.Request = msg
		d = of.Message(&in, d)
	}
	return d
}

func TestExpressions(t *testing.T) {
	ann := &identity.Principal{ID: "idp#ann", Tenant: "acme", Scopes: []string{"logs:read", "ops"}, How: "jwt",
		Claims: map[string]any{"team": "sre", "level": float64(3), "groups": []any{"a", "b"}, "address": map[string]any{"city": "Bern"}}}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	friday := time.Date(2026, 7, 3, 22, 30, 0, 0, time.UTC) // in Berlin it is Saturday, half past midnight
	for _, c := range []struct {
		when   string
		method string
		req    proto.Message
		holds  bool
	}{
		{`principal.id == "idp#ann" && principal.tenant == "acme" && principal.how == "jwt"`, unary, nil, true},
		{`"ops" in principal.scopes`, unary, nil, true},
		{`principal.scopes.exists(s, s.startsWith("admin"))`, unary, nil, false},
		{`principal.claims.team == "sre" && principal.claims.level >= 3 && "b" in principal.claims.groups && principal.claims.address.city == "Bern"`, unary, nil, true},
		{`has(principal.claims.boss)`, unary, nil, false},
		{`method.name == "grpc.testing.TestService/UnaryCall" && method.service == "grpc.testing.TestService" && method.backend == "echo" && method.tool == "test_unary_call"`, unary, nil, true},
		{`method.read_only`, unary, nil, false},
		{`method.read_only && !method.destructive && size(method.labels) == 0`, search, nil, true},
		{`door == "grpc"`, unary, nil, true},
		{`time.weekday == "saturday" && time.hour == 0 && time.minute == 30 && time.date == "2026-07-04"`, unary, nil, true},
		{`time.now > timestamp("2026-07-03T22:00:00Z")`, unary, nil, true},
		{`request.response_size > 100`, unary, &testpb.SimpleRequest{ResponseSize: 101}, true},
		{`request.responseSize > 100`, unary, &testpb.SimpleRequest{ResponseSize: 100}, false},
		{`has(request.payload) && size(request.payload.body) == 2`, unary, &testpb.SimpleRequest{Payload: &testpb.Payload{Body: []byte("ab")}}, true},
		{`request.query.matches("^level:") && request.start_time < time.now - duration("24h")`, search,
			&logsv1.SearchLogsRequest{Query: "level:ERROR", StartTime: timestamppb.New(friday.Add(-48 * time.Hour))}, true},
		{`request.page_size + 1 > 5 || request.query == ""`, search, &logsv1.SearchLogsRequest{Query: "x", PageSize: 3}, false},
		{``, unary, nil, true},
	} {
		set, err := rules.New(rules.Config{Zone: berlin, Rules: []rules.Rule{{Name: "r", When: c.when}}})
		if err != nil {
			t.Errorf("%s: %v", c.when, err)
			continue
		}
		m := method(t, c.method)
		in := rules.Input{Principal: ann, Door: "grpc", Now: friday}
		if c.req != nil {
			in.Request = request(t, m, c.req)
		}
		if d := decide(set, m, in); d.Err != nil || d.Allowed == c.holds || c.holds && d.Rule != "r" {
			t.Errorf("%s: %+v, want allowed = %v", c.when, d, !c.holds)
		}
	}
}

// TestMistakes are told when the rules are read, as far as no request is needed.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		config rules.Config
		want   string
	}{
		{rules.Config{Rules: []rules.Rule{{Name: "r", When: `principal.tennant == "x"`}}}, `rule "r": when: line 1, column 10: toolway.Principal has no field "tennant"; did you mean "tenant"?`},
		{rules.Config{Rules: []rules.Rule{{Name: "r", When: `princpal.id == "x"`}}}, `there is no "princpal"; did you mean "principal"?`},
		{rules.Config{Rules: []rules.Rule{{Name: "r", When: `principal.id`}}}, `want an expression that is true or false, got one of type string`},
		{rules.Config{Rules: []rules.Rule{{Name: "r", When: `principal.id == 3`}}}, `no matching overload`},
		{rules.Config{Rules: []rules.Rule{{Name: "r", When: `principal.id ==`}}}, `Syntax error`},
		{rules.Config{Rules: []rules.Rule{{When: `true`}}}, `it has no name`},
		{rules.Config{Rules: []rules.Rule{{Name: "r"}, {Name: "r"}}}, `two rules are named "r"`},
		{rules.Config{Rules: []rules.Rule{{Name: "r", Allow: true}}}, `allows what is allowed already`},
		{rules.Config{Rules: []rules.Rule{{Name: "r", Hide: true, When: `request.x`}}}, `hide is for rules about principal`},
		{rules.Config{Rules: []rules.Rule{{Name: "r", Hide: true, When: `time.hour > 8`}}}, `hide is for rules about principal`},
		{rules.Config{Deny: true}, `no rule allows anything`},
		{rules.Config{Hide: true}, `by default all is allowed`},
	} {
		if _, err := rules.New(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config.Rules, err, c.want)
		}
	}
}

// TestFieldsOfRequests are checked against each method, and a rule that does not fit refuses its calls.
func TestFieldsOfRequests(t *testing.T) {
	set, err := rules.New(rules.Config{Rules: []rules.Rule{{Name: "size", When: `request.responseSise > 3`, Match: func(m *catalog.Method) bool { return m.FullMethod == unary }}}})
	if err != nil {
		t.Fatal(err)
	}
	problems := set.Check(snapshot(t))
	if len(problems) != 1 || !strings.Contains(problems[0].Error(), `rule "size" does not fit grpc.testing.TestService/UnaryCall`) ||
		!strings.Contains(problems[0].Error(), `grpc.testing.SimpleRequest has no field "responseSise"; did you mean "responseSize"?`) {
		t.Errorf("problems = %v", problems)
	}
	m := method(t, unary)
	if d := decide(set, m, rules.Input{Request: request(t, m, &testpb.SimpleRequest{})}); d.Allowed || d.Err == nil || d.Rule != "size" {
		t.Errorf("decision = %+v, want a refusal", d)
	}
}

// TestFailuresRefuse has a rule that cannot be decided, and one that would take too long.
func TestFailuresRefuse(t *testing.T) {
	list := "[" + strings.Repeat("1,", 99) + "1]"
	for _, when := range []string{`principal.claims.team == "x"`, list + `.all(a, ` + list + `.all(b, ` + list + `.all(c, a + b + c > 0)))`} {
		deny, err := rules.New(rules.Config{Rules: []rules.Rule{{Name: "r", When: when}}})
		if err != nil {
			t.Fatal(err)
		}
		if d := decide(deny, method(t, unary), rules.Input{}); d.Allowed || d.Err == nil {
			t.Errorf("%.40s: a rule that denies: %+v", when, d)
		}
		allow, err := rules.New(rules.Config{Deny: true, Rules: []rules.Rule{{Name: "r", When: when, Allow: true}, {Name: "ok", Allow: true, When: `door == "mcp"`}}})
		if err != nil {
			t.Fatal(err)
		}
		if d := decide(allow, method(t, unary), rules.Input{Door: "grpc"}); d.Allowed {
			t.Errorf("%.40s: a rule that allows: %+v", when, d)
		}
		if d := decide(allow, method(t, unary), rules.Input{Door: "mcp"}); !d.Allowed || d.Rule != "ok" {
			t.Errorf("%.40s: beside a rule that allows: %+v", when, d)
		}
	}
}

// TestDenyWins has both defaults, with rules about the caller and about the request.
func TestDenyWins(t *testing.T) {
	big := rules.Rule{Name: "big", When: `request.response_size > 10`, Match: func(m *catalog.Method) bool { return m.FullMethod == unary }, Message: "too big"}
	ops := rules.Rule{Name: "ops", When: `"ops" in principal.scopes`, Allow: true}
	small := rules.Rule{Name: "small", When: `request.response_size < 5`, Match: big.Match, Allow: true}
	for _, c := range []struct {
		name   string
		rules  []rules.Rule
		deny   bool
		scopes []string
		size   int32
		want   string // the rule that decides, "-" the default
		ok     bool
	}{
		{"allowed by default", []rules.Rule{big}, false, nil, 1, "", true},
		{"denied", []rules.Rule{big}, false, nil, 11, "big", false},
		{"denied by default", []rules.Rule{big, ops}, true, nil, 1, "", false},
		{"allowed", []rules.Rule{big, ops}, true, []string{"ops"}, 1, "ops", true},
		{"allowed and denied", []rules.Rule{ops, big}, true, []string{"ops"}, 11, "big", false},
		{"allowed by its request", []rules.Rule{small, ops, big}, true, nil, 4, "small", true},
		{"not allowed by its request", []rules.Rule{small, ops, big}, true, nil, 7, "", false},
	} {
		set, err := rules.New(rules.Config{Rules: c.rules, Deny: c.deny})
		if err != nil {
			t.Fatal(err)
		}
		m := method(t, unary)
		d := decide(set, m, rules.Input{Principal: &identity.Principal{Scopes: c.scopes}, Request: request(t, m, &testpb.SimpleRequest{ResponseSize: c.size})})
		if d.Allowed != c.ok || d.Rule != c.want || d.Rule == "big" && d.Message != "too big" || d.Hidden {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

// TestStreamsOfRequests cannot be let in by their messages.
func TestStreamsOfRequests(t *testing.T) {
	set, err := rules.New(rules.Config{Deny: true, Rules: []rules.Rule{{Name: "r", Allow: true, When: `size(request.response_parameters) < 3`, Match: func(m *catalog.Method) bool { return m.FullMethod == duplex }}}})
	if err != nil {
		t.Fatal(err)
	}
	in := rules.Input{}
	if d := set.For(method(t, duplex)).Before(&in); d.Allowed || d.Open {
		t.Errorf("decision = %+v", d)
	}
	if p := set.Check(snapshot(t)); len(p) != 1 || !strings.Contains(p[0].Error(), "cannot let in a call that streams its requests") {
		t.Errorf("problems = %v", p)
	}
}

func TestVisibility(t *testing.T) {
	testing := func(m *catalog.Method) bool { return strings.HasPrefix(m.FullMethod, "/grpc.testing.") }
	ann := &identity.Principal{ID: "ann", Tenant: "acme", Scopes: []string{"ops"}}
	bob := &identity.Principal{ID: "bob", Tenant: "umbrella"}
	for _, c := range []struct {
		name   string
		config rules.Config
		sees   []*identity.Principal // those who see the testing service
	}{
		{"hidden", rules.Config{Rules: []rules.Rule{{Name: "r", Match: testing, When: `!("ops" in principal.scopes)`, Hide: true}}}, []*identity.Principal{ann}},
		{"denied, not hidden", rules.Config{Rules: []rules.Rule{{Name: "r", Match: testing}}}, []*identity.Principal{ann, bob, nil, identity.Anonymous}},
		{"a rule that fails hides", rules.Config{Rules: []rules.Rule{{Name: "r", Match: testing, When: `principal.claims.x == 1`, Hide: true}}}, nil},
		{"tenancy", rules.Config{Tenancies: []rules.Tenancy{{Match: testing, Tenants: []string{"acme"}}}}, []*identity.Principal{ann, identity.Anonymous}},
		{"two tenancies", rules.Config{Tenancies: []rules.Tenancy{{Match: testing, Tenants: []string{"acme", "umbrella"}}, {Match: testing, Tenants: []string{"umbrella"}}}}, []*identity.Principal{bob, identity.Anonymous}},
		{"what nothing allows", rules.Config{Deny: true, Hide: true, Rules: []rules.Rule{{Name: "r", Allow: true, When: `"ops" in principal.scopes`}}}, []*identity.Principal{ann}},
		{"what a request may allow", rules.Config{Deny: true, Hide: true, Rules: []rules.Rule{{Name: "r", Allow: true, Match: func(m *catalog.Method) bool { return m.FullMethod == unary }, When: `request.response_size > 0`}}}, []*identity.Principal{ann, bob, nil, identity.Anonymous}},
	} {
		set, err := rules.New(c.config)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, p := range []*identity.Principal{ann, bob, nil, identity.Anonymous} {
			m := method(t, unary)
			sees := set.Visible(p, "mcp", m)
			if want := slices.Contains(c.sees, p); sees != want {
				t.Errorf("%s: %v sees it = %v, want %v", c.name, p, sees, want)
			}
			in := rules.Input{Principal: p, Door: "mcp"}
			if of := set.For(m); of != nil {
				if d := of.Before(&in); d.Hidden == sees {
					t.Errorf("%s: %v: Visible = %v, but the call's decision is %+v", c.name, p, sees, d)
				}
			}
			if !set.Visible(p, "mcp", method(t, search)) && !c.config.Deny {
				t.Errorf("%s: %v does not see a method that no rule is about", c.name, p)
			}
		}
	}
}

func TestNothingToDo(t *testing.T) {
	set, err := rules.New(rules.Config{Rules: []rules.Rule{{Name: "r", Match: func(m *catalog.Method) bool { return m.FullMethod == unary }}}})
	if err != nil {
		t.Fatal(err)
	}
	if set.For(method(t, search)) != nil || set.For(method(t, unary)) == nil {
		t.Error("a method without rules has some, or the reverse")
	}
	var none *rules.Set
	if none.For(method(t, unary)) != nil || !none.Visible(nil, "mcp", method(t, unary)) {
		t.Error("no set has rules")
	}
}

func BenchmarkDecide(b *testing.B) {
	ann := &identity.Principal{ID: "idp#ann", Tenant: "acme", Scopes: []string{"logs:read", "ops"}}
	for name, when := range map[string]string{"principal": `principal.tenant != "acme" || !("ops" in principal.scopes)`, "request": `request.response_size > 100`, "time": `time.weekday in ["saturday", "sunday"]`} {
		b.Run(name, func(b *testing.B) {
			set, err := rules.New(rules.Config{Rules: []rules.Rule{{Name: "r", When: when}}})
			if err != nil {
				b.Fatal(err)
			}
			m := method(b, unary)
			of, msg := set.For(m), request(b, m, &testpb.SimpleRequest{ResponseSize: 3})
			now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
			b.ReportAllocs()
			for b.Loop() {
				in := rules.Input{Principal: ann, Door: "grpc", Now: now}
				d := of.Before(&in)
				if of.LooksAtRequest() {
					in.Request = msg
					d = of.Message(&in, d)
				}
				if !d.Allowed {
					b.Fatal(d)
				}
			}
		})
	}
}
