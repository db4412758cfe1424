package logs

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Redactor takes secrets and personal data out of entries that are returned. The zero value takes nothing out. It may be used concurrently.
//
// It works on results, not on what is stored: entries that other shippers put into a store are covered, a mistake of a pattern destroys nothing,
// and a better pattern covers what is stored already. It keeps secrets from models and pages by accident; whoever may search can still find
// out by searching whether a text is there.
type Redactor struct{ patterns []pattern }

// Kinds of patterns.
const (
	// RedactSecrets are passwords, keys and tokens.
	RedactSecrets = "secrets"
	// RedactPII are e-mail addresses and card numbers.
	RedactPII = "pii"
)

// pattern is one thing to take out.
type pattern struct {
	name string
	// may says whether the pattern could fit, much quicker than it would find out; nil: always look.
	may func(text string) bool
	// where finds candidates; its last group, or the whole, is what is taken out.
	where *regexp.Regexp
	// really decides about a candidate; nil takes every one.
	really func(value string) bool
}

// NewRedactor returns a redactor for kinds of patterns (see [RedactSecrets]), and for more patterns by name: regular expressions whose last group,
// or the whole without one, is taken out.
func NewRedactor(kinds []string, more map[string]string) (*Redactor, error) {
	r := &Redactor{}
	for _, kind := range kinds {
		patterns, known := builtin[kind]
		if !known {
			return nil, fmt.Errorf("kind of redaction %q is not known; use %s or %s", kind, RedactSecrets, RedactPII)
		}
		r.patterns = append(r.patterns, patterns...)
	}
	names := make([]string, 0, len(more))
	for name := range more {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		where, err := regexp.Compile(more[name])
		if err != nil {
			return nil, fmt.Errorf("pattern %q to redact: %w", name, err)
		}
		if where.MatchString("") {
			return nil, fmt.Errorf("pattern %q to redact fits the empty text; make it say what it looks for", name)
		}
		r.patterns = append(r.patterns, pattern{name: name, where: where})
	}
	return r, nil
}

// entry returns e without what is to be taken out, and how many times something was. e itself is not changed.
func (r *Redactor) entry(e Entry) (Entry, int) {
	if len(r.patterns) == 0 {
		return e, 0
	}
	message, count := r.text(e.Message)
	e.Message = message
	copied := false
	for name, value := range e.Fields {
		redacted, n := r.field(name, value)
		if n == 0 {
			continue
		}
		if count += n; !copied {
			fields := make(map[string]string, len(e.Fields))
			for k, v := range e.Fields {
				fields[k] = v
			}
			e.Fields, copied = fields, true
		}
		e.Fields[name] = redacted
	}
	return e, count
}

// field is text for a field's value; one that is called a secret is one, whatever it looks like.
func (r *Redactor) field(name, value string) (string, int) {
	if secretName.MatchString(name) && !harmless(value) && slices.ContainsFunc(r.patterns, func(p pattern) bool { return p.name == "password" }) {
		return placeholder("password"), 1
	}
	return r.text(value)
}

func (r *Redactor) text(s string) (string, int) {
	count := 0
	for _, p := range r.patterns {
		if p.may != nil && !p.may(s) {
			continue
		}
		var out strings.Builder
		from := 0
		for _, at := range p.where.FindAllStringSubmatchIndex(s, -1) {
			start, end := at[len(at)-2], at[len(at)-1]
			if start < 0 {
				start, end = at[0], at[1]
			}
			if strings.HasPrefix(s[start:end], "[REDACTED:") || p.really != nil && !p.really(s[start:end]) {
				continue
			}
			out.WriteString(s[from:start])
			out.WriteString(placeholder(p.name))
			from = end
			count++
		}
		if from > 0 {
			out.WriteString(s[from:])
			s = out.String()
		}
	}
	return s, count
}

// placeholder stands where something was, and says of what kind it was.
func placeholder(name string) string { return "[REDACTED:" + name + "]" }

// secretName is the last part of a field's name where the value is a secret. "token" alone is not among them: parsers have tokens too.
var secretName = regexp.MustCompile(`(?i)(^|[._-])(password|passwd|passphrase|secret|client_?secret|api_?key|private_?key|access_?token|refresh_?token|id_?token|auth_?token|session_?token|authorization|cookie|set-cookie)$`)

// builtin are the patterns by kind. Words alone are never enough: "token expired" and "password: must have 8 letters" say nothing secret, and a
// filter that takes them out breaks good results.
var builtin = map[string][]pattern{
	RedactSecrets: {
		{"private-key", has("PRIVATE KEY"), regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|$)`), nil},
		{"url-password", func(s string) bool { return strings.Contains(s, "://") && strings.Contains(s, "@") }, regexp.MustCompile(`\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@"'<>]*:([^\s/@"'<>]+)@`), secret},
		{"jwt", has("eyJ"), regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), nil},
		{"bearer-token", has("earer ", "EARER "), regexp.MustCompile(`(?i)\bbearer\s+([A-Za-z0-9._~+/-]{16,}=*)`), mixed},
		{"basic-credential", has("asic ", "ASIC "), regexp.MustCompile(`(?i)\bbasic\s+([A-Za-z0-9+/]{8,}={0,2})`), basic},
		{"aws-access-key", has("AKIA", "ASIA", "ABIA", "ACCA"), regexp.MustCompile(`\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b`), nil},
		{"aws-secret-key", has("ecret", "ECRET"), regexp.MustCompile(`(?i)\baws_?secret_?(?:access_?)?key\b["']?\s*[=:]\s*["']?([A-Za-z0-9/+]{40})\b`), nil},
		{"token", has("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AIza", "_live_", "npm_"), regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[0-9A-Za-z_-]{35}|[sr]k_live_[0-9A-Za-z]{20,}|npm_[A-Za-z0-9]{36})\b`), nil},
		// Only where the value is joined to the name, as in a query string, a command line or JSON.
		{"password", has("assword", "ASSWORD", "asswd", "ASSWD", "assphrase", "ASSPHRASE", "pwd", "PWD", "Pwd", "ecret", "ECRET", "key", "KEY", "Key", "oken", "OKEN"), regexp.MustCompile(`(?i)(?:\b|_)(?:password|passwd|passphrase|pwd|client_?secret|secret_?key|api[_-]?key|access_?token|refresh_?token|auth_?token|session_?token)(?:=|\\?"\s*:\s*)\\?["']?([^\s"'\\,;&)}\]]{4,})`), secret},
	},
	RedactPII: {
		{"email", has("@"), regexp.MustCompile(`[A-Za-z0-9._%+-]*[A-Za-z0-9_%+-]@(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{2,24}\b`), email},
		{"card-number", thirteenDigits, regexp.MustCompile(`\b(?:\d{13,19}|\d{4}(?: \d{4}){3}|\d{4}(?:-\d{4}){3}|\d{4} \d{6} \d{4,5}|\d{4}-\d{6}-\d{4,5})\b`), card},
	},
}

// has is true for texts with one of the parts.
func has(parts ...string) func(string) bool {
	return func(s string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(s, part) })
	}
}

// thirteenDigits says whether so many follow each other, with at most one space or - between two.
func thirteenDigits(s string) bool {
	run := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			if run++; run == 13 {
				return true
			}
		case (c == ' ' || c == '-') && i > 0 && s[i-1] >= '0' && s[i-1] <= '9':
		default:
			run = 0
		}
	}
	return false
}

// harmless says whether a value is only a word about a secret, or a mask.
func harmless(value string) bool {
	switch strings.ToLower(strings.Trim(value, "<>{}$*%[]x.")) {
	case "", "null", "nil", "none", "true", "false", "empty", "unset", "missing", "invalid", "required", "redacted", "masked", "hidden", "password", "secret", "token", "undefined":
		return true
	}
	// Variables of shells and templates.
	return strings.HasPrefix(value, "${") || strings.HasPrefix(value, "$(") || strings.HasPrefix(value, "{{") || strings.HasPrefix(value, "%(")
}

func secret(value string) bool { return !harmless(value) }

// mixed wants letters and digits, as random texts have and words have not.
func mixed(value string) bool {
	return strings.ContainsAny(value, "0123456789") && strings.ContainsFunc(value, func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' })
}

// basic wants base64 with a colon in it: a name and a password.
func basic(value string) bool {
	b, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		b, err = base64.RawStdEncoding.DecodeString(value)
	}
	return err == nil && strings.ContainsRune(string(b), ':')
}

// email leaves out what only looks like an address: units of systemd, hosts of private networks, users of git.
func email(value string) bool {
	name, host, _ := strings.Cut(value, "@")
	switch strings.ToLower(host[strings.LastIndexByte(host, '.')+1:]) {
	case "service", "socket", "timer", "target", "mount", "slice", "scope", "device", "path", "swap", "local", "localdomain", "internal", "lan", "svc", "go", "js", "ts", "py", "so", "png", "svg":
		return false
	}
	return name != "git"
}

// card wants the length and beginning of an issuer's numbers, and the check digit of ISO/IEC 7812-1 (Luhn).
func card(value string) bool {
	digits := strings.NewReplacer(" ", "", "-", "").Replace(value)
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0 && issued.MatchString(digits)
}

// issued is how the numbers of Visa, Mastercard, American Express, Discover, JCB and Diners Club begin, and how long they are.
var issued = regexp.MustCompile(`^(?:4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11})$`)
