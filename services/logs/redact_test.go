package logs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	"github.com/toolway/toolway/services/logs"
)

// What is taken out, and, as important, what looks like it and is not.
func TestRedact(t *testing.T) {
	// Put together here, so that no scanner of this repository finds a secret.
	join := func(parts ...string) string { return strings.Join(parts, "") }
	jwt := join("eyJ", "hbGciOiJIUzI1NiJ9", ".", "eyJzdWIiOiIxMjM0In0", ".", "dozjgNryP4J3jVmNHl0w5N")
	key := join("-----BEGIN RSA ", "PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA ", "PRIVATE KEY-----")
	tests := []struct{ name, text, want string }{
		{"bearer", "Authorization: Bearer abc123def456ghi789", "Authorization: Bearer [REDACTED:bearer-token]"},
		{"JWT", "got " + jwt + ", expired", "got [REDACTED:jwt], expired"},
		{"bearer JWT", "bearer " + jwt, "bearer [REDACTED:jwt]"},
		{"basic", "Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic [REDACTED:basic-credential]"},
		{"AWS key", "key " + join("AKIA", "IOSFODNN7EXAMPLE") + " is old", "key [REDACTED:aws-access-key] is old"},
		{"AWS secret", "aws_secret_access_key=" + join("wJalrXUtnFEMI/K7MDENG/", "bPxRfiCYEXAMPLEKEY"), "aws_secret_access_key=[REDACTED:aws-secret-key]"},
		{"GitHub", "push with " + join("ghp_", strings.Repeat("a1B2", 9)), "push with [REDACTED:token]"},
		{"private key", "loaded " + key + " from disk", "loaded [REDACTED:private-key] from disk"},
		{"private key cut off", "loaded " + key[:40], "loaded [REDACTED:private-key]"},
		{"URL", "dial postgres://shop:s3cr3t@db:5432/shop?x=1", "dial postgres://shop:[REDACTED:url-password]@db:5432/shop?x=1"},
		{"two URLs", "a://u:pppp@h b://u:qqqq@h", "a://u:[REDACTED:url-password]@h b://u:[REDACTED:url-password]@h"},
		{"query string", "GET /login?user=a&password=hunter2&x=1", "GET /login?user=a&password=[REDACTED:password]&x=1"},
		{"JSON", `{"user":"a","password": "hunter2"}`, `{"user":"a","password": "[REDACTED:password]"}`},
		{"JSON in JSON", `{\"api_key\":\"hunter22\"}`, `{\"api_key\":\"[REDACTED:password]\"}`},
		{"environment", "DB_PASSWORD=hunter2", "DB_PASSWORD=[REDACTED:password]"},
		{"e-mail", "mail to jane.doe+shop@example.co.uk, again", "mail to [REDACTED:email], again"},
		{"card", "card 4111111111111111 declined", "card [REDACTED:card-number] declined"},
		{"card in groups", "card 4111 1111 1111 1111.", "card [REDACTED:card-number]."},
		{"American Express", "3782-822463-10005", "[REDACTED:card-number]"},

		{"words about tokens", "unexpected token '}' in JSON at position 5; token expired", ""},
		{"rules for passwords", "password: must have at least 8 characters", ""},
		{"no password", "password=null secret=<hidden> api_key=**** password=${DB_PASSWORD}", ""},
		{"words after bearer", "Bearer authentication_is_required here, the bearer of this letter", ""},
		{"words after basic", "Basic authentication failed, basic understanding", ""},
		{"URL without a password", "GET http://payment:8080/charge and ssh://git@host/x", ""},
		{"unit", "getty@tty1.service started; image@sha256:abc; git@github.com:x/y", ""},
		{"times and ids", "at 1764507600000 1764507600000000 1764507600000000000 id 4111111111111112", ""},
		{"part of a word", "id=x4111111111111111 trace 4bf92f3577b34da6a3ce929d0e0e4736", ""},
		{"floats", "took 0.41111111111 s", ""},
		{"public key", "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----", ""},
	}
	client, _ := start(t, openEmbedded(t), logs.Options{})
	now := time.Now()
	var entries []*logsv1.LogEntry
	for i, test := range tests {
		entries = append(entries, entry(now.Add(-time.Minute), test.text, "n", fmt.Sprint(i), "detail", test.text))
	}
	ingest(t, client, entries...)
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			resp, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{Query: fmt.Sprintf("n:=%d", i)})
			if err != nil || len(resp.Entries) != 1 {
				t.Fatalf("SearchLogs = %v, %v", resp, err)
			}
			want := test.want
			if want == "" {
				want = test.text
			}
			got := resp.Entries[0]
			if got.Message != want || got.Fields["detail"] != want {
				t.Errorf("entry of %q = %q and %q, want %q", test.text, got.Message, got.Fields["detail"], want)
			}
			if count := 2 * strings.Count(want, "[REDACTED:"); int(got.Redactions) != count {
				t.Errorf("redactions = %d, want %d", got.Redactions, count)
			}
		})
	}
}

func TestRedactFieldsByName(t *testing.T) {
	client, _ := start(t, openEmbedded(t), logs.Options{})
	ingest(t, client, entry(time.Now(), "m", "db.password", "abc", "authorization", "opaque", "token", "}", "password_policy", "8 letters", "request.api_key", "null"))
	got := tail(t, client, &logsv1.TailLogsRequest{StartTime: entry(time.Now().Add(-time.Minute), "").Time}, 1)[0].Entry
	want := map[string]string{"db.password": "[REDACTED:password]", "authorization": "[REDACTED:password]", "token": "}", "password_policy": "8 letters", "request.api_key": "null"}
	for name, value := range want {
		if got.Fields[name] != value {
			t.Errorf("field %q = %q, want %q", name, got.Fields[name], value)
		}
	}
	if got.Redactions != 2 {
		t.Errorf("redactions = %d, want 2", got.Redactions)
	}
}

// Pages go on after an entry whose text was changed on its way out, and what is stored is as it was.
func TestRedactChangesNoOrder(t *testing.T) {
	engine := openEmbedded(t)
	client, _ := start(t, engine, logs.Options{})
	at := time.Now().Add(-time.Minute)
	var entries []*logsv1.LogEntry
	for i := range 9 {
		entries = append(entries, entry(at, fmt.Sprintf("to user%d@example.com", i)))
	}
	ingest(t, client, entries...)
	count := 0
	for _, page := range searchAll(t, client, &logsv1.SearchLogsRequest{PageSize: 2}, nil) {
		for _, e := range page {
			if e.Message != "to [REDACTED:email]" {
				t.Errorf("message = %q", e.Message)
			}
			count++
		}
	}
	if count != 9 {
		t.Errorf("%d entries on all pages, want 9", count)
	}
	plain, _, err := engine.Select(within(t), logs.Selection{Filter: `"user3@example.com"`, Start: at.Add(-time.Second), End: at.Add(time.Second), At: at, Limit: 5, MaxBytes: 1 << 20})
	if err != nil || len(plain) != 1 {
		t.Errorf("stored = %v, %v, want the address as it was", plain, err)
	}
}

func TestRedactChosen(t *testing.T) {
	const text = "to jane@example.com password=hunter2 order SHOP-123456"
	sent := entry(time.Now(), text)
	for _, test := range []struct {
		kinds []string
		more  map[string]string
		want  string
	}{
		{nil, nil, text},
		{[]string{"secrets"}, nil, "to jane@example.com password=[REDACTED:password] order SHOP-123456"},
		{[]string{"pii"}, map[string]string{"order": `SHOP-(\d+)`}, "to [REDACTED:email] password=hunter2 order SHOP-[REDACTED:order]"},
	} {
		redactor, err := logs.NewRedactor(test.kinds, test.more)
		if err != nil {
			t.Fatal(err)
		}
		client, _ := start(t, openEmbedded(t), logs.Options{Redact: redactor})
		ingest(t, client, proto.CloneOf(sent))
		resp, err := client.SearchLogs(within(t), &logsv1.SearchLogsRequest{})
		if err != nil || len(resp.Entries) != 1 || resp.Entries[0].Message != test.want {
			t.Errorf("%v, %v: entries = %v, %v, want %q", test.kinds, test.more, resp.GetEntries(), err, test.want)
		}
	}
	for _, bad := range []struct {
		kinds []string
		more  map[string]string
	}{{[]string{"everything"}, nil}, {nil, map[string]string{"x": "("}}, {nil, map[string]string{"x": "a*"}}} {
		if _, err := logs.NewRedactor(bad.kinds, bad.more); err == nil {
			t.Errorf("NewRedactor(%v, %v) = nil error, want one", bad.kinds, bad.more)
		}
	}
}
