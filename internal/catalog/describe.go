package catalog

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/toolschema"
)

const (
	// MaxDescription is the longest tool description in characters.
	MaxDescription = 1024
	maxTitle       = 128
)

// title returns the option's title or the method's name in words.
func title(md protoreflect.MethodDescriptor, opt *toolwayv1.MethodOptions) string {
	if t := cut(clean(opt.GetTitle(), false), maxTitle); t != "" {
		return t
	}
	w := strings.Join(words(string(md.Name())), " ")
	if w == "" {
		w = string(md.Name())
	}
	r, n := utf8.DecodeRuneInString(w)
	return cut(string(unicode.ToUpper(r))+w[n:], maxTitle)
}

// describe returns what agents read about a method: the option, the comment or a generated sentence, always ending in the full name, so
// that a name that was cut can be traced. Examples come before that; they are bounded by the caller. comment says whether a person wrote it.
func describe(md protoreflect.MethodDescriptor, opt *toolwayv1.MethodOptions, deprecated bool, examples []string) (text string, comment bool) {
	text, comment = clean(opt.GetDescription(), true), true
	if text == "" {
		text = clean(toolschema.Comment(md, MaxDescription), true)
	}
	if text == "" {
		text, comment = sentence(md), false
	}
	if deprecated && !strings.HasPrefix(strings.ToLower(text), "deprecated") {
		text = "Deprecated. " + text
	}
	tail := "\n\nCalls " + cut(string(md.FullName()), MaxDescription/2) + "."
	switch len(examples) {
	case 0:
	case 1:
		tail = "\n\nExample: " + examples[0] + tail
	default:
		tail = "\n\nExamples:\n" + strings.Join(examples, "\n") + tail
	}
	return cut(text, MaxDescription-utf8.RuneCountInString(tail)) + tail, comment
}

func sentence(md protoreflect.MethodDescriptor) string {
	takes, returns := "", ""
	if md.IsStreamingClient() {
		takes = "a stream of "
	}
	if md.IsStreamingServer() {
		returns = "a stream of "
	}
	return fmt.Sprintf("%s: a method of the service %s. Takes %s%s, returns %s%s.", title(md, nil), cut(string(md.Parent().Name()), 96),
		takes, cut(string(md.Input().Name()), 96), returns, cut(string(md.Output().Name()), 96))
}

// clean takes control, invisible and direction-changing characters out of text that a backend wrote, and trims it.
func clean(s string, lines bool) string { return strings.TrimSpace(plain(s, lines)) }

// plain is clean without the trimming.
func plain(s string, lines bool) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' && lines:
			return r
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsGraphic(r) || unicode.Is(unicode.Variation_Selector, r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
			return -1
		}
		return r
	}, s)
}

// cut bounds s to limit characters, at a word's end where one is near, and marks the cut.
func cut(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	r := []rune(s)[:limit-1]
	for i := len(r) - 1; i > len(r)*3/4; i-- {
		if unicode.IsSpace(r[i]) {
			r = r[:i]
			break
		}
	}
	return strings.TrimRightFunc(string(r), unicode.IsSpace) + "…"
}
