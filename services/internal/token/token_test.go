package token_test

import (
	"testing"

	"github.com/toolway/toolway/services/internal/token"
)

func TestToken(t *testing.T) {
	s := token.Encode('c', []byte("where"))
	if b, err := token.Decode('c', s); err != nil || string(b) != "where" {
		t.Fatalf("Decode(%q) = %q, %v, want what was encoded", s, b, err)
	}
	for _, other := range []string{"", s + "\n", "\r" + s, s[:3] + "\n" + s[3:], s + "=", s[:len(s)-1], s + "A", "!" + s, " " + s, token.Encode('p', []byte("where"))} {
		if b, err := token.Decode('c', other); err == nil {
			t.Errorf("Decode(%q) = %q, want an error", other, b)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add("Y3doZXJl")
	f.Fuzz(func(t *testing.T, s string) {
		if b, err := token.Decode('c', s); err == nil && token.Encode('c', b) != s {
			t.Errorf("Decode(%q) = %q, which is %q", s, b, token.Encode('c', b))
		}
	})
}
