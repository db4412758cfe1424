package runbooks

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of front matter.
const (
	maxFrontMatter = 16 << 10
	maxItems       = 50
	maxItemBytes   = 200
)

// document is a runbook's file, taken apart.
type document struct {
	title    string
	content  string
	front    frontMatter
	mistakes []mistake
}

// mistake is something that was left out of a document.
type mistake struct {
	line int
	text string
}

// frontMatter is what may stand before the content. Other keys are other programs' affair.
type frontMatter struct {
	Title    text  `yaml:"title"`
	Services texts `yaml:"services"`
	Alerts   texts `yaml:"alerts"`
	Tags     texts `yaml:"tags"`
}

// text is a short text, also where YAML sees a number or a date.
type text string

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *text) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch {
	case node.Kind != yaml.ScalarNode:
		return fmt.Errorf("line %d: this has to be a text", node.Line)
	case node.Tag == "!!null":
		return nil
	case len(node.Value) > maxItemBytes:
		return fmt.Errorf("line %d: this has %d bytes; at most %d are kept", node.Line, len(node.Value), maxItemBytes)
	}
	*t = text(strings.Join(strings.Fields(node.Value), " "))
	return nil
}

// texts is a list of short texts, or one alone.
type texts []string

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *texts) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	items := []*yaml.Node{node}
	switch node.Kind {
	case yaml.SequenceNode:
		items = node.Content
	case yaml.ScalarNode:
	default:
		return fmt.Errorf("line %d: this has to be a list of texts, such as [checkout, payment]", node.Line)
	}
	if len(items) > maxItems {
		return fmt.Errorf("line %d: this has %d items; at most %d are kept", node.Line, len(items), maxItems)
	}
	for _, item := range items {
		var one text
		if err := one.UnmarshalYAML(item); err != nil {
			return err
		}
		if one != "" {
			*t = append(*t, string(one))
		}
	}
	return nil
}

// parse takes a file apart. Whatever is in it, there is a title; what is wrong with the front matter loses only that.
func parse(name string, file []byte) document {
	var d document
	if valid := bytes.ToValidUTF8(file, []byte("\uFFFD")); len(valid) != len(file) || !bytes.Equal(valid, file) {
		d.mistakes = append(d.mistakes, mistake{text: "not UTF-8: what is not is shown as \uFFFD; save it as UTF-8"})
		file = valid
	}
	file = bytes.TrimPrefix(file, []byte("\uFEFF"))
	front, rest, whole := splitFront(file)
	d.content = strings.TrimLeft(string(rest), "\r\n")
	switch {
	case !whole:
		d.mistakes = append(d.mistakes, mistake{1, "front matter has no end: close it with a line of ---"})
	case len(front) > maxFrontMatter:
		d.mistakes = append(d.mistakes, mistake{1, fmt.Sprintf("front matter ignored: it has %d bytes; at most %d are read", len(front), maxFrontMatter)})
	case len(front) > 0:
		f, err := parseFront(front)
		if err != nil {
			d.mistakes = append(d.mistakes, mistakeOf(err))
		}
		d.front = f
	}
	d.title = string(d.front.Title)
	if d.title == "" {
		d.title = heading(d.content)
	}
	if d.title == "" {
		d.title = name[strings.LastIndexByte(name, '.')+1:]
	}
	if d.title == "" {
		d.title = name
	}
	return d
}

// parseFront reads front matter, all of it or nothing.
func parseFront(front []byte) (frontMatter, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(front, &node); err != nil {
		return frontMatter{}, err
	}
	if node.Kind != yaml.DocumentNode {
		return frontMatter{}, nil // nothing but space and comments
	}
	if kind := node.Content[0].Kind; kind != yaml.MappingNode {
		return frontMatter{}, fmt.Errorf("line %d: there have to be keys with values, such as title: Disk full", node.Content[0].Line)
	}
	var f frontMatter
	if err := node.Decode(&f); err != nil {
		return frontMatter{}, err
	}
	return f, nil
}

// splitFront cuts the front matter off. whole is false if it begins and does not end; then all is rest.
func splitFront(file []byte) (front, rest []byte, whole bool) {
	line, after, _ := bytes.Cut(file, []byte("\n"))
	if string(bytes.TrimRight(line, " \t\r")) != "---" {
		return nil, file, true
	}
	for at := 0; at < len(after); {
		line, _, _ := bytes.Cut(after[at:], []byte("\n"))
		end := min(at+len(line)+1, len(after))
		if mark := string(bytes.TrimRight(line, " \t\r")); mark == "---" || mark == "..." {
			return after[:at], after[end:], true
		}
		at = end
	}
	return nil, file, false
}

// yamlLine is how the parser says where.
var yamlLine = regexp.MustCompile(`line (\d+): `)

// mistakeOf counts the line of the parser's error, which it counts below the opening ---, in the file.
func mistakeOf(err error) mistake {
	m := mistake{text: strings.TrimPrefix(err.Error(), "yaml: ")}
	if at := yamlLine.FindStringSubmatchIndex(m.text); at != nil {
		if n, err := strconv.Atoi(m.text[at[2]:at[3]]); err == nil {
			m.line = n + 1
		}
		m.text = m.text[:at[0]] + m.text[at[1]:]
		// Errors of its grammar, other than those of its words, it counts from 0.
		if strings.HasPrefix(m.text, "did not find expected") {
			m.line++
		}
	}
	m.text = "front matter ignored: " + strings.Join(strings.Fields(m.text), " ")
	return m
}

// heading is the text of the first heading outside code.
func heading(content string) string {
	fence := ""
	for line := range strings.Lines(content) {
		line = strings.TrimSpace(line)
		if mark := fenceOf(line); mark != "" && (fence == "" || strings.HasPrefix(mark, fence)) {
			if fence == "" {
				fence = mark
			} else {
				fence = ""
			}
			continue
		}
		words := strings.TrimLeft(line, "#")
		if level := len(line) - len(words); fence != "" || level == 0 || level > 6 || !strings.HasPrefix(words, " ") {
			continue
		}
		if title := cut(plain(strings.TrimRight(words, "# ")), maxItemBytes); title != "" {
			return title
		}
	}
	return ""
}

// fenceOf is the run of marks that begins or ends a block of code; "" if the line does not.
func fenceOf(line string) string {
	for _, mark := range []string{"`", "~"} {
		if n := len(line) - len(strings.TrimLeft(line, mark)); n >= 3 {
			return strings.Repeat(mark, n)
		}
	}
	return ""
}
