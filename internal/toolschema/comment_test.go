package toolschema_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/toolschema"
)

// commented returns a message whose leading comment is text.
func commented(t *testing.T, text string) protoreflect.MessageDescriptor {
	t.Helper()
	return message(t, &descriptorpb.FileDescriptorProto{
		Name:        proto.String("c.proto"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M")}},
		SourceCodeInfo: &descriptorpb.SourceCodeInfo{Location: []*descriptorpb.SourceCodeInfo_Location{
			{Path: []int32{4, 0}, Span: []int32{0, 0, 1}, LeadingComments: proto.String(text)},
		}},
	})
}

func TestComment(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"lines join", " A thing.\n It has\n two lines.\n", "A thing. It has two lines."},
		{"paragraphs stay", " One.\n\n Two.\n", "One.\nTwo."},
		{"list items stay", " Kinds:\n - a\n - b\n   and c\n 1. d\n", "Kinds:\n- a\n- b and c\n1. d"},
		{"buf pragma", " buf:lint:ignore RPC_REQUEST_STANDARD_NAME\n Gets it.\n", "Gets it."},
		{"nolint", " Gets it.\n nolint:lll\n // nolint\n", "Gets it."},
		{"api-linter", " Gets it. (-- api-linter: core::0131=disabled\n     aip.dev/not-precedent: because. --) More.\n", "Gets it. More."},
		{"kubernetes markers", " Gets it.\n +optional\n +kubebuilder:validation:Minimum=1\n", "Gets it."},
		{"gotags", ` Gets it.` + "\n" + ` @gotags: json:"x"` + "\n", "Gets it."},
		{"note to maintainers", " Gets it.\n TODO(joe): remove this\n when done.\n\n Really.\n", "Gets it.\nReally."},
		{"exclude", " @exclude\n Secret.\n", ""},
		{"envoy marks", " Gets it. [#not-implemented-hide:]\n [#next-free-field: 7]\n", "Gets it."},
		{"rulers", " =====\n Gets it.\n -----\n", "Gets it."},
		{"code fence", " Use:\n ```\n x = 1\n ```\n Done.\n", "Use:\nx = 1\nDone."},
		{"heading", " # Title\n Text.\n", "Title Text."},
		{"bold", " Is **very** big, __init__ and a ** b.\n", "Is very big, init and a ** b."},
		{"link", " See [the docs](https://x.example/a(b)) now.\n", "See the docs now."},
		{"reference link", " See [Book][google.example.Book] and [`a`][x.y].\n", "See Book and `a`."},
		{"reference over lines", " See [Book]\n [google.example.Book].\n", "See Book."},
		{"image", " Look ![alt](https://x.example/y.png) here.\n", "Look alt here."},
		{"link targets", " Text [a][b].\n [b]: https://x.example/\n", "Text a."},
		{"character classes stay", " Like `[a-z][a-z0-9]*`.\n", "Like `[a-z][a-z0-9]*`."},
		{"autolink", " See <https://x.example/>.\n", "See https://x.example/."},
		{"html", " A <b>bold</b> <a href=\"https://x\">link</a>.<br/>Next &lt;tag&gt;.<!-- hidden --><script>evil()</script>\n", "A bold link.\nNext <tag>."},
		{"placeholders stay", " Form: projects/<project>/x if a < b > c.\n", "Form: projects/<project>/x if a < b > c."},
		{"controls", " a\x00b\x1bc\x7fd\te\r\n", "abcd e"},
		{"invisible", " pass\u200bword\u2060 \ufeff\u00adx\u034f\u3164\n", "password x"},
		{"direction marks", " \u202eevil\u202c \u2066iso\u2069 \u200fr\n", "evil iso r"},
		{"tag characters", " Hi\U000E0001\U000E0049\U000E0067\U000E006E\U000E007F there\n", "Hi there"},
		{"variation selectors", " a\ufe0fb\U000E0100c\n", "abc"},
		{"private use", " a\ue000b\U000F0000c\n", "abc"},
		{"escaped invisible", " a&#x200b;b &#8238;c\n", "ab c"},
		{"other scripts stay", " Größe 日本語 שלום 😀.\n", "Größe 日本語 שלום 😀."},
		{"no text", " \n \n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := toolschema.Comment(commented(t, c.in), 0); got != c.want {
				t.Errorf("Comment(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func TestCommentBound(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"One two three. Four five six. Seven.", 30, "One two three. Four five six."},
		{"One two three. Four, five six. Seven.", 20, "One two three."},
		{"One. Twotwotwo threethreethree", 25, "One. Twotwotwo…"},
		{"Uses e.g. this and i.e. that thing.", 20, "Uses e.g. this and…"},
		{"日本語日本語日本語", 5, "日本語日…"},
		{"One two three.\n\nExample:\n\nmessage M { int32 a = 1; }", 27, "One two three."},
		{"Sizes:\n- small", 8, "Sizes:"},
		{"Short.", 6, "Short."},
	} {
		got := toolschema.Comment(commented(t, c.in), c.limit)
		if got != c.want || utf8.RuneCountInString(got) > c.limit {
			t.Errorf("Comment(%q, %d) = %q, want %q", c.in, c.limit, got, c.want)
		}
	}
	if got := toolschema.Comment(commented(t, strings.Repeat("word ", 1000)), 0); utf8.RuneCountInString(got) > 1024 || len(got) < 1000 {
		t.Errorf("Comment by default has %d runes, want just below 1024", utf8.RuneCountInString(got))
	}
}

func FuzzComment(f *testing.F) {
	f.Add(" A [b](c) <d> **e** (-- f --)\n", 10)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if !utf8.ValidString(text) {
			return
		}
		limit = 1 + max(0, limit%2000)
		got := toolschema.Comment(commented(t, text), limit)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > limit {
			t.Errorf("Comment(%q, %d) = %q", text, limit, got)
		}
	})
}
