package call_test

import (
	"testing"

	"github.com/toolway/toolway/internal/call"
)

func TestPlainText(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain text\n\tof two lines": "plain text\n\tof two lines", "größe 中文 ½ 👍🏽": "größe 中文 ½ 👍🏽",
		"a\u202eb\u202cc\u2066d\u2069": "abcd", "i\U000E0041g\U000E007Fn": "ign", "a\u200bb\ufeffc\u2060d\u200e\u200f": "abcd",
		"a\x00b\x07c\x7fd\u0085e\r\n": "abcde\n", "\x1b[31mred\x1b[0m, \x1bx, \x1b[": "red, x, [", "a\xffb": "a\ufffdb",
		"\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645": "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", // Persian, needs the non-joiner
		"👩\u200d💻":                         "👩\u200d💻",
		"ig\u200dno\u200cre \u200d\u200d.": "ignore .", "é\u200d\u200dé": "é\u200dé",
	} {
		if got := call.PlainText(in); got != want {
			t.Errorf("PlainText(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzPlainText(f *testing.F) {
	f.Add("a\x1b[31m\u202e\u200d\xff")
	f.Fuzz(func(t *testing.T, in string) {
		once := call.PlainText(in)
		if twice := call.PlainText(once); twice != once {
			t.Errorf("PlainText(PlainText(%q)) = %q, want %q", in, twice, once)
		}
	})
}
