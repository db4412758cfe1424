package matrix_test

// elsewhere are the policies of the chain that have no row, and why.
var elsewhere = map[string]string{
	"recover": "no caller can make the mesh panic: TestRecover of interceptors does, and the row \"every call\" shows that it stands outermost",
	"resume":  "it says where a stream that broke goes on, and decides nothing: TestResumeCursor of interceptors, TestResumeWithoutGap of gateway",
	"task":    "a call becomes a task where its caller asks for one, which each door has its own words for: tests/durable",
	"hedge":   "when a second attempt begins is a matter of time: TestHedge of interceptors has a clock of its own",
}

// readerKey is the API key that the configurations know by its hash.
const readerKey = "tw_of-a-reader-in-a-test"

const readerAuth = `auth:
  api_keys: [{name: reader, sha256: fdce2d6ea3e19c539e672c86c4581afab50be8a82480b2bc1125810d1e363ed8, tenant: acme, scopes: ["probe:read"]}]
`

const oneBackend = "backends: [{name: probe, targets: [BACKEND]}]\n"

var policies = []policy{
	{
		name: "every", covers: []string{"observe", "audit", "errors"},
		head:   "A call that no policy has anything against, and one that its backend refuses: its status passes as it is.",
		config: oneBackend,
		steps: []step{
			{name: "a call", methods: every, json: `{"id":"one","text":"hello","plan":{"count":1}}`, want: "OK"},
			{name: "the backend refuses", methods: every, json: `{"id":"two","plan":{"code":5}}`, want: "NOT_FOUND PLANNED"},
		},
	},
	{
		name: "in-flight", covers: []string{"in-flight"},
		head:   "A mesh that takes one call at a time, while one is under way. It stands before the audit, so a flood leaves no records; it is counted in toolway.refusals.",
		config: oneBackend + "limits: {in_flight: 1}\n",
		held:   `{"id":"held-{method}","plan":{"hang":true}}`,
		steps: []step{
			{name: "one call more", methods: every, json: `{"text":"hello"}`, want: "UNAVAILABLE OVERLOADED", unrecorded: true},
		},
	},
	{
		name: "deadline", covers: []string{"deadline"},
		head:   "A method whose cap leaves no time for the backend.",
		config: oneBackend + "policy:\n  - {match: probe.v1.Probe, max_timeout: 1ns}\n",
		steps: []step{
			{name: "a call", methods: every, json: `{"text":"hello"}`, want: "DEADLINE_EXCEEDED DEADLINE_SPENT", unasked: true},
		},
	},
	{
		name: "authenticate", covers: []string{"authenticate"},
		head:   "A mesh that knows its callers by API keys.",
		config: oneBackend + readerAuth,
		steps: []step{
			{name: "nobody", methods: every, json: `{"text":"hello"}`, want: "UNAUTHENTICATED MISSING_CREDENTIALS"},
			{name: "an unknown key", methods: every, json: `{"text":"hello"}`, credential: "tw_made-up", want: "UNAUTHENTICATED UNKNOWN_API_KEY"},
			{name: "a known key", methods: every, json: `{"text":"hello","plan":{"count":1}}`, credential: readerKey, want: "OK"},
		},
	},
	{
		name: "authorise", covers: []string{"authorise"},
		head:   "A service that needs a scope which the caller does not have.",
		config: oneBackend + readerAuth + "policy:\n  - {match: probe.v1.Probe, scopes: [\"probe:write\"]}\n",
		steps: []step{
			{name: "a scope is missing", methods: every, json: `{"text":"hello"}`, credential: readerKey, want: "PERMISSION_DENIED INSUFFICIENT_SCOPE"},
		},
	},
	{
		name: "rules", covers: []string{"rules"},
		head: "A rule about the request.",
		config: oneBackend + `rules:
  list:
    - {name: short-texts, match: probe.v1.Probe/*, when: size(request.text) > 5, message: texts have at most 5 characters}
`,
		steps: []step{
			{name: "a short text", methods: every, json: `{"text":"hello","plan":{"count":1}}`, want: "OK"},
			{name: "a long text", methods: every, json: `{"text":"hello, world"}`, want: "PERMISSION_DENIED POLICY_DENIED"},
			{name: "a stream whose second message is too long", methods: []string{"Collect"}, json: `{"text":"hello"}` + "\n" + `{"text":"hello, world"}`, want: "PERMISSION_DENIED POLICY_DENIED"},
		},
	},
	{
		name: "shed", covers: []string{"shed"},
		head:   "A backend that is given one unary call at a time, while one is under way.",
		config: oneBackend + "limits: {shed: {on: true, min: 1, initial: 1, max: 1, wait: 1ms}}\n",
		held:   `{"id":"held-{method}","plan":{"hang":true}}`,
		steps: []step{
			{name: "one call more", methods: []string{"Ask"}, json: `{"id":"more"}`, want: "UNAVAILABLE OVERLOADED"},
		},
	},
	{
		name: "rate-limit", covers: []string{"rate limit"},
		head: "Methods that may be called four times in a long while, for this test has four doors.",
		config: oneBackend + `limits:
  methods: [{methods: ["probe.v1.Probe/*"], rate: {per_second: 0.001, burst: 4}}]
`,
		steps: []step{
			{name: "the first call of each door", methods: every, json: `{"text":"hello","plan":{"count":1}}`, want: "OK"},
			{name: "one call more", methods: every, json: `{"text":"hello"}`, want: "RESOURCE_EXHAUSTED RATE_LIMITED"},
		},
	},
	{
		name: "bulkhead", covers: []string{"bulkhead"},
		head: "Methods of which one call may be under way, while one is.",
		config: oneBackend + `limits:
  methods: [{methods: ["probe.v1.Probe/*"], bound: {max: 1}}]
`,
		held: `{"id":"held-{method}","plan":{"hang":true}}`,
		steps: []step{
			{name: "one call more", methods: every, json: `{"text":"hello"}`, want: "UNAVAILABLE BULKHEAD_FULL"},
		},
	},
	{
		name: "quarantine", covers: []string{"quarantine"},
		head:     "Methods that do less harm than they did when they were locked, or so it is said now. See docs/lock.md.",
		reviewed: oneBackend + "lock: toolway.lock\n",
		config:   oneBackend + "lock: toolway.lock\npolicy:\n  - {match: probe.v1.Probe, read_only: true}\n",
		steps: []step{
			{name: "a call", methods: every, json: `{"text":"hello"}`, want: "FAILED_PRECONDITION TOOL_QUARANTINED"},
		},
	},
	{
		name: "validate", covers: []string{"validate"},
		head:      "A contract in which the field text has the rule (buf.validate.field).string.max_len = 12.",
		config:    "backends: [{name: probe, targets: [BACKEND], descriptors: [probe.binpb]}]\n",
		described: true,
		steps: []step{
			{name: "a valid request", methods: every, json: `{"text":"hello, world","plan":{"count":1}}`, want: "OK"},
			{name: "an invalid request", methods: every, json: `{"text":"hello, world!"}`, want: "INVALID_ARGUMENT INVALID_REQUEST"},
			{name: "a stream whose second message is invalid", methods: []string{"Collect"}, json: `{"text":"hello"}` + "\n" + `{"text":"hello, world!"}`, want: "INVALID_ARGUMENT INVALID_REQUEST"},
		},
	},
	{
		name: "data-flow", covers: []string{"data_flow"},
		head: "What Ask has given is for no other method.",
		config: oneBackend + `policy:
  - {match: probe.v1.Probe/Ask, fields: [{path: text, data_label: pii}]}
data_flow: {rules: [{name: probe keeps pii, from: {label: pii, backends: [probe]}, to: {backends: [probe]}}]}
`,
		steps: []step{
			{name: "a value is given", methods: []string{"Ask"}, json: `{"plan":{"size":12}}`, want: "OK"},
			{name: "it is passed on", methods: []string{"Label", "Watch", "Collect", "Chat"}, json: `{"id":"about xxxxxxxxxxxx, you know"}`, want: "PERMISSION_DENIED DATA_FLOW_FORBIDDEN"},
		},
	},
	{
		name: "idempotency", covers: []string{"idempotency"},
		head:   "Methods that want an idempotency key.",
		config: oneBackend + "policy:\n  - {match: [probe.v1.Probe/Ask, probe.v1.Probe/Watch], idempotency: {required: true}}\n",
		steps: []step{
			{name: "no key", methods: plain, json: `{"text":"hello"}`, want: "INVALID_ARGUMENT IDEMPOTENCY_KEY_REQUIRED"},
			{name: "the first call with a key", methods: plain, json: `{"text":"hello","plan":{"count":2}}`, key: "order-7-{door}", want: "OK"},
			{name: "the same call again: a replay", methods: plain, json: `{"text":"hello","plan":{"count":2}}`, key: "order-7-{door}", want: "OK"},
			{name: "another request with the key", methods: plain, json: `{"text":"bye"}`, key: "order-7-{door}", want: "INVALID_ARGUMENT IDEMPOTENCY_KEY_REUSED"},
			{name: "a call that fails", methods: plain, json: `{"plan":{"code":5}}`, key: "order-8-{door}", want: "NOT_FOUND PLANNED"},
			{name: "the failed call again: a replay", methods: plain, json: `{"plan":{"code":5}}`, key: "order-8-{door}", want: "NOT_FOUND PLANNED"},
		},
	},
	{
		name: "approval", covers: []string{"approval"},
		head: "Methods that another principal has to approve.",
		config: oneBackend + `policy:
  - {match: [probe.v1.Probe/Label, probe.v1.Probe/Watch], approval: approver, approver_scope: probe:approve}
approvals: {url: "http://mesh.example.com"}
`,
		steps: []step{
			{name: "a call that nobody has approved", methods: []string{"Label", "Watch"}, json: `{"id":"{door}"}`, want: "FAILED_PRECONDITION APPROVAL_REQUIRED"},
			{name: "approved, the same call again", methods: []string{"Label", "Watch"}, json: `{"id":"{door}"}`, decide: "approve", want: "OK"},
			{name: "once more: an approval is for one call", methods: []string{"Label", "Watch"}, json: `{"id":"{door}"}`, want: "FAILED_PRECONDITION APPROVAL_REQUIRED"},
			{name: "refused, the same call again", methods: []string{"Label", "Watch"}, json: `{"id":"{door}"}`, decide: "refuse", want: "PERMISSION_DENIED APPROVAL_REFUSED"},
		},
	},
	{
		name: "confirm", covers: []string{"approval"},
		head:   "Methods that the person at the caller's side has to confirm, called by clients that cannot ask.",
		config: oneBackend + "policy:\n  - {match: [probe.v1.Probe/Ask, probe.v1.Probe/Watch], approval: confirm}\n",
		steps: []step{
			{name: "a call that nobody has confirmed", methods: plain, json: `{"id":"{door}","text":"x","plan":{"count":1}}`, want: "FAILED_PRECONDITION CONFIRMATION_REQUIRED"},
			{name: "the same call with the person's word", methods: plain, json: `{"id":"{door}","text":"x","plan":{"count":1}}`, confirm: true, want: "OK"},
		},
	},
	{
		name: "cache", covers: []string{"cache"},
		head:   "A read whose answer may be reused: what one door has fetched, another finds.",
		config: oneBackend + "policy:\n  - {match: probe.v1.Probe/Ask, read_only: true, cache_ttl: 1h}\n",
		steps: []step{
			{name: "a read of each door's own", methods: []string{"Ask"}, json: `{"id":"{door}","text":"hello"}`, want: "OK"},
			{name: "the same again", methods: []string{"Ask"}, json: `{"id":"{door}","text":"hello"}`, want: "OK"},
			{name: "what the gRPC door has fetched", methods: []string{"Ask"}, json: `{"id":"grpc","text":"hello"}`, want: "OK"},
		},
	},
	{
		name: "redact", covers: []string{"redact"},
		head:   "Fields that no caller sees, and that stay out of logs and audit.",
		config: oneBackend + "policy:\n  - {match: probe.v1.Probe, fields: [{path: text, redact_result: true}]}\n",
		steps: []step{
			{name: "a call", methods: every, json: `{"id":"one","text":"hunter2","plan":{"count":1}}`, want: "OK"},
		},
	},
	{
		name: "retry", covers: []string{"retry"},
		head: "A backend that cannot be reached. Nothing was executed, so it is tried again, whatever the method.",
		config: `backends: [{name: probe, targets: ["127.0.0.1:1"], descriptors: [probe.binpb]}]
attempts: {retry: {base_delay: 1ms, max_delay: 1ms, budget: {burst: 100}}, breaker: {off: true}}
`,
		described: true,
		steps: []step{
			{name: "a call", methods: plain, json: `{"text":"hello"}`, want: "UNAVAILABLE BACKEND_UNAVAILABLE"},
		},
	},
	{
		name: "breaker", covers: []string{"breaker"},
		head:   "A backend that has failed often enough to be left alone.",
		config: oneBackend + "attempts: {breaker: {min_attempts: 4, open: 1h}}\n",
		steps: []step{
			{name: "calls that fail, one at each door", methods: []string{"Ask"}, json: `{"plan":{"code":14}}`, want: "UNAVAILABLE PLANNED"},
			{name: "calls after that", methods: every, json: `{"text":"hello"}`, want: "UNAVAILABLE CIRCUIT_OPEN"},
		},
	},
}
