package mesh

import (
	"slices"
	"testing"
)

// TestLaxIsVisible pins that an operator sees which checks of TLS are off (C86).
func TestLaxIsVisible(t *testing.T) {
	c := Config{Backends: []Backend{{Name: "a", TLS: &TLS{AllowNoALPN: true, InsecureSkipVerify: true}}, {Name: "b", TLS: &TLS{}}, {Name: "c"}}}
	if got := c.lax("a"); !slices.Equal(got, []string{"allow_no_alpn", "insecure_skip_verify"}) {
		t.Errorf("lax(a) = %q", got)
	}
	if got := slices.Concat(c.lax("b"), c.lax("c")); len(got) != 0 {
		t.Errorf("lax(b), lax(c) = %q, want none", got)
	}
}
