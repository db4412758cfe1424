package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
)

// Prompt is a message for a model that a service's option declares.
type Prompt struct {
	// Name is [a-zA-Z][a-zA-Z0-9_-]*, at most MaxToolName characters, with the backend's tool prefix.
	Name string
	// Title is for people, Description for people and agents; Title is never empty. Both are bounded and cleaned.
	Title, Description string
	Arguments          []PromptArgument
	Messages           []PromptMessage
	// Service declares it.
	Service *Service
}

// PromptArgument is one value that a prompt takes.
type PromptArgument struct {
	Name, Title, Description string
	Required                 bool
	// ResourceType is the google.api.resource type whose names complete it, Enum the enum whose values do; both may be unset.
	ResourceType string
	Enum         protoreflect.EnumDescriptor
}

// PromptMessage is one message of a prompt.
type PromptMessage struct {
	// Role is "user" or "assistant".
	Role string
	// Text is what is said; or else Resource names what is put there.
	Text, Resource PromptText
}

// PromptText is text with arguments in it.
type PromptText []PromptPiece

// PromptPiece is Text, or the value of the Argument.
type PromptPiece struct{ Text, Argument string }

// With returns the text with the values of the arguments.
func (t PromptText) With(values map[string]string) string {
	var b strings.Builder
	for _, p := range t {
		b.WriteString(p.Text)
		if p.Argument != "" {
			b.WriteString(values[p.Argument])
		}
	}
	return b.String()
}

// Prompts returns what agents may use now, sorted by name: nothing withdrawn.
func (s *Snapshot) Prompts() []*Prompt { return s.prompts }

// Prompt returns the prompt of the name, or nil. Withdrawn ones are found (see Backend.State).
func (s *Snapshot) Prompt(name string) *Prompt { return s.byPrompt[name] }

// promptInfo is a prompt before its name is settled.
type promptInfo struct {
	Prompt
	long string
}

// The bounds of a prompt.
const (
	maxPromptArguments = 32
	maxPromptMessages  = 64
	maxPromptText      = 16 << 10
)

// derivePrompts returns the prompts that a service declares, and what is wrong with the others.
func derivePrompts(sd protoreflect.ServiceDescriptor, prefix string, files *Files) (out []*promptInfo, findings []Finding) {
	so, _ := sd.Options().(*descriptorpb.ServiceOptions)
	svc, _ := proto.GetExtension(so, toolwayv1.E_Service).(*toolwayv1.ServiceOptions)
	for _, opt := range svc.GetPrompts() {
		p, err := promptOf(opt, prefix, files)
		if err == nil && slices.ContainsFunc(out, func(o *promptInfo) bool { return o.Name == p.Name }) {
			err = fmt.Errorf("the service has two of this name")
		}
		if err != nil {
			findings = append(findings, Finding{
				Code: "prompt-invalid", Severity: SeverityWarning, Subject: prefix + cut(clean(opt.GetName(), false), maxTitle),
				Message: fmt.Sprintf("prompt %q of %s is not served: %v; mend the prompts option", cut(opt.GetName(), maxTitle), sd.FullName(), err),
			})
			continue
		}
		p.long = cutToolName(p.Name, sd.FullName())
		out = append(out, p)
	}
	return out, findings
}

func promptOf(opt *toolwayv1.Prompt, prefix string, files *Files) (*promptInfo, error) {
	p := &promptInfo{Prompt: Prompt{Name: prefix + opt.GetName(), Description: cut(clean(opt.GetDescription(), true), MaxDescription)}}
	switch {
	case opt.GetName() == "" || !validToolName(p.Name):
		return nil, fmt.Errorf("a name is [a-zA-Z][a-zA-Z0-9_-]*, at most %d characters with the prefix", MaxToolName)
	case len(opt.GetArguments()) > maxPromptArguments:
		return nil, fmt.Errorf("it has more than %d arguments", maxPromptArguments)
	case len(opt.GetMessages()) == 0 || len(opt.GetMessages()) > maxPromptMessages:
		return nil, fmt.Errorf("it has %d messages: want 1 to %d", len(opt.GetMessages()), maxPromptMessages)
	}
	p.Title = titleOf(opt.GetTitle(), opt.GetName())
	names := map[string]bool{}
	for _, o := range opt.GetArguments() {
		a, err := argumentOf(o, files)
		if err != nil {
			return nil, err
		}
		if names[a.Name] {
			return nil, fmt.Errorf("argument %q occurs twice", a.Name)
		}
		names[a.Name] = true
		p.Arguments = append(p.Arguments, a)
	}
	for i, o := range opt.GetMessages() {
		m := PromptMessage{Role: "user"}
		if o.GetRole() == toolwayv1.PromptMessage_ROLE_ASSISTANT {
			m.Role = "assistant"
		}
		if (o.GetText() == "") == (o.GetResource() == "") {
			return nil, fmt.Errorf("messages[%d] has to have either a text or a resource", i)
		}
		var err error
		if m.Text, err = parseText(o.GetText(), true, names); err == nil {
			m.Resource, err = parseText(o.GetResource(), false, names)
		}
		if err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		p.Messages = append(p.Messages, m)
	}
	return p, nil
}

func argumentOf(o *toolwayv1.PromptArgument, files *Files) (PromptArgument, error) {
	a := PromptArgument{
		Name: o.GetName(), Title: titleOf(o.GetTitle(), o.GetName()), Description: cut(clean(o.GetDescription(), true), MaxDescription),
		Required: o.GetRequired(), ResourceType: o.GetResourceType(),
	}
	if !validToolName(a.Name) {
		return a, fmt.Errorf("argument %q: a name is [a-zA-Z][a-zA-Z0-9_-]*, at most %d characters", cut(a.Name, maxTitle), MaxToolName)
	}
	if name := o.GetEnumType(); name != "" {
		d, err := files.FindDescriptorByName(protoreflect.FullName(name))
		ed, ok := d.(protoreflect.EnumDescriptor)
		if err != nil || !ok {
			return a, fmt.Errorf("argument %q: the backend has no enum %q", a.Name, cut(name, maxTitle))
		}
		a.Enum = ed
	}
	return a, nil
}

// titleOf returns the title or the name in words.
func titleOf(title, name string) string {
	if t := cut(clean(title, false), maxTitle); t != "" {
		return t
	}
	w := strings.Join(words(name), " ")
	if w == "" {
		return name
	}
	return strings.ToUpper(w[:1]) + w[1:]
}

// parseText parses a text with {argument}, where {{ and }} stand for braces.
func parseText(s string, lines bool, arguments map[string]bool) (PromptText, error) {
	if len(s) > maxPromptText {
		return nil, fmt.Errorf("it is longer than %d bytes", maxPromptText)
	}
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("it is not UTF-8")
	}
	var out PromptText
	var text strings.Builder
	flush := func() {
		if t := plain(text.String(), lines); t != "" {
			out = append(out, PromptPiece{Text: t})
		}
		text.Reset()
	}
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			i = len(s)
		}
		text.WriteString(s[:i])
		switch s = s[i:]; {
		case s == "":
		case strings.HasPrefix(s, "{{"), strings.HasPrefix(s, "}}"):
			text.WriteByte(s[0])
			s = s[2:]
		case s[0] == '}':
			return nil, fmt.Errorf("a } opens nothing; write }} for a brace")
		default:
			name, rest, closed := strings.Cut(s[1:], "}")
			if !closed || !arguments[name] {
				return nil, fmt.Errorf("{%s} is no argument; write {{ for a brace", cut(name, maxTitle))
			}
			flush()
			out = append(out, PromptPiece{Argument: name})
			s = rest
		}
	}
	flush()
	return out, nil
}

// ownPrompts gives the backend the prompts of its service. One whose name is taken is served under its long name.
func (b *builder) ownPrompts(s *Service, infos []*promptInfo) {
	for _, info := range infos {
		p := info.Prompt
		p.Service = s
		if owner := b.byPrompt[p.Name]; owner != nil {
			b.find(s.Backend, "prompt-clash", SeverityError, p.Name, "prompt name %q of %s (backend %q) is taken: %s (backend %q) comes first and has it; the prompt is listed as %q instead; %s another name on one of them",
				p.Name, s.Desc.FullName(), s.Backend.Name, owner.Service.Desc.FullName(), owner.Service.Backend.Name, info.long, mendClash(s.Backend, owner.Service.Backend))
			if p.Name = info.long; b.byPrompt[p.Name] != nil {
				continue
			}
		}
		b.byPrompt[p.Name] = &p
		if s.Backend.State != Down {
			b.prompts = append(b.prompts, &p)
		}
	}
	slices.SortFunc(b.prompts, func(x, y *Prompt) int { return cmp.Compare(x.Name, y.Name) })
}
