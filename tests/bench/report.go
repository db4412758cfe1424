package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// table is a part of the report.
type table struct {
	title string
	head  []string
	rows  [][]string
	notes []string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// text is t for a terminal.
func (t *table) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "== %s\n", t.title)
	width := make([]int, len(t.head))
	lines := append([][]string{t.head}, t.rows...)
	for _, cells := range lines {
		for i, c := range cells {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, cells := range lines {
		for i, c := range cells {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i == 0 {
				b.WriteString("  " + c + pad)
			} else {
				b.WriteString("  " + pad + c)
			}
		}
		b.WriteByte('\n')
	}
	for _, n := range t.notes {
		b.WriteString("  " + n + "\n")
	}
	return b.String()
}

// markdown is t for a document.
func (t *table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", t.title)
	row := func(cells []string) {
		b.WriteByte('|')
		for _, c := range cells {
			b.WriteString(" " + strings.ReplaceAll(c, "|", "\\|") + " |")
		}
		b.WriteByte('\n')
	}
	row(t.head)
	b.WriteString("|---|" + strings.Repeat("---:|", len(t.head)-1) + "\n")
	for _, cells := range t.rows {
		row(cells)
	}
	for i, n := range t.notes {
		if i == 0 {
			b.WriteByte('\n')
		}
		b.WriteString(n + "\n")
	}
	return b.String()
}

// document is a file with places for sections, each between the lines "<!-- bench:NAME -->" and "<!-- /bench:NAME -->".
type document struct {
	path string
	text []byte
}

// openDocument reads a document. The empty path is none: what is written to it is dropped.
func openDocument(path string) (*document, error) {
	if path == "" {
		return &document{}, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the document to write to: %w", err)
	}
	return &document{path, b}, nil
}

func (d *document) place(name string) (from, to int, err error) {
	begin, end := "<!-- bench:"+name+" -->\n", "<!-- /bench:"+name+" -->"
	from = bytes.Index(d.text, []byte(begin))
	if from < 0 {
		return 0, 0, fmt.Errorf("%s has no line %q: add it, and %q below", d.path, strings.TrimSpace(begin), end)
	}
	from += len(begin)
	n := bytes.Index(d.text[from:], []byte(end))
	if n < 0 {
		return 0, 0, fmt.Errorf("%s has no line %q after %q", d.path, end, strings.TrimSpace(begin))
	}
	return from, from + n, nil
}

// section is what a place holds now.
func (d *document) section(name string) (string, error) {
	if d.path == "" {
		return "", nil
	}
	from, to, err := d.place(name)
	if err != nil {
		return "", err
	}
	return string(d.text[from:to]), nil
}

// put writes a section and saves the document, so that what was measured stays if a later part fails.
func (d *document) put(name, section string) error {
	if d.path == "" {
		return nil
	}
	from, to, err := d.place(name)
	if err != nil {
		return err
	}
	d.text = bytes.Join([][]byte{d.text[:from], []byte(section), d.text[to:]}, nil)
	return os.WriteFile(d.path, d.text, 0o644)
}

// putTables prints tables and writes them to a section.
func (d *document) putTables(name string, tables ...*table) error {
	var b strings.Builder
	for _, t := range tables {
		fmt.Println(t.text())
		b.WriteString("\n" + t.markdown())
	}
	return d.put(name, b.String()+"\n")
}
