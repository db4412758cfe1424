package mesh_test

import (
	"strings"
	"testing"
	"time"
)

// TestConfigOfOnce has the blocks that decide whether a call runs, and runs once.
func TestConfigOfOnce(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"keys", "idempotency: {ttl: 48h, max_bytes: 1048576, max_answer_bytes: 1000, methods: [acme.*]}\n", ""},
		{"little room", "idempotency: {max_bytes: 1000}\n", ""},
		{"keys forgotten at once", "idempotency: {ttl: 1s}\n", "idempotency.ttl 1s is shorter than anybody retries"},
		{"negative room", "idempotency: {max_bytes: -1}\n", "a limit cannot be negative"},
		{"answers above their room", "idempotency: {max_bytes: 1000, max_answer_bytes: 251}\n", "is above 250, which is all that one caller gets"},
		{"a share of more than there is", "idempotency: {share: 1.5}\n", "idempotency.share 1.5 is not between 0 and 1"},
		{"answers in the room of one caller", "idempotency: {max_bytes: 1000, share: 1, max_answer_bytes: 1000}\n", ""},
		{"no pattern", "idempotency: {methods: [a b]}\n", `idempotency.methods: pattern "a b" names no methods`},
		{"approvals", "approvals: {url: \"https://mesh.example.com\", pending: 1h, use: 10m, max: 5, self: false}\n", ""},
		{"negative approvals", "approvals: {max: -1}\n", "approvals.max: a limit cannot be negative"},
		{"an address without a scheme", "approvals: {url: mesh.example.com}\n", `approvals.url "mesh.example.com" is no address of the HTTP door`},
		{"an address with a query", "approvals: {url: \"https://mesh.example.com?x=1\"}\n", "is no address of the HTTP door"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf, err := load(t, c.yaml)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // a normalised configuration stays as it is
				err = conf.Normalise()
				if c.want == "" && err != nil {
					t.Error(err)
				}
				if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("Normalise = %v, want %q", err, c.want)
				}
			}
		})
	}
}

func TestDefaultsOfOnce(t *testing.T) {
	c, err := load(t, "{}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Normalise(); err != nil {
		t.Fatal(err)
	}
	if i := c.Idempotency; time.Duration(i.TTL) != 24*time.Hour || i.MaxBytes != 64<<20 || i.MaxAnswerBytes != 1<<20 || len(i.Methods) != 0 {
		t.Errorf("idempotency = %+v", i)
	}
	if a := c.Approvals; a.URL != "http://127.0.0.1:8080" || time.Duration(a.Pending) != 15*time.Minute || time.Duration(a.Use) != 5*time.Minute || a.Max != 10_000 || !*a.Self {
		t.Errorf("approvals = %+v", a)
	}
	for _, yaml := range []string{"http: {addr: \"off\"}\n", "http: {addr: \"127.0.0.1:0\"}\n", "http: {addr: \"0.0.0.0:80\"}\n"} {
		c, err := load(t, yaml)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Normalise(); err == nil && c.Approvals.URL != "" {
			t.Errorf("%s: approvals.url = %q, want none", yaml, c.Approvals.URL)
		}
	}
}
