package lock

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// WriteText writes changes for people: a block for each tool, the gravest change first.
func WriteText(w io.Writer, changes []Change) error {
	var b strings.Builder
	counts := map[Effect]int{}
	last := ""
	for _, c := range changes {
		if c.Method != last {
			if last != "" {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "%s (%s)\n", c.Tool, c.Method)
			last = c.Method
		}
		fmt.Fprintf(&b, "  %-8s  %s%s\n", c.Effect, c.Text, also(c.Others))
		counts[c.Effect]++
	}
	if len(changes) == 0 {
		b.WriteString("nothing has changed\n")
	} else {
		b.WriteByte('\n')
		for i, e := range effects {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%d %s", counts[e], map[Effect]string{Breaks: "breaking", Loosens: "loosening", Changes: "other", Tightens: "tightening"}[e])
		}
		b.WriteString("; toolway lock accepts them\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// also names further methods, a few of them.
func also(methods []string) string {
	const few = 3
	switch {
	case len(methods) == 0:
		return ""
	case len(methods) > few:
		return fmt.Sprintf(" (also %s and %d more)", strings.Join(methods[:few], ", "), len(methods)-few)
	}
	return " (also " + strings.Join(methods, ", ") + ")"
}

// WriteGitHub writes changes as workflow commands of GitHub Actions: errors for what breaks or loosens, warnings for other changes, notices
// for what tightens; each at the line that holds it in the lock, whose text is given, or where that would be.
func WriteGitHub(w io.Writer, path string, text []byte, changes []Change) error {
	var b strings.Builder
	lines := bytes.Split(text, []byte("\n"))
	for _, c := range changes {
		level := "error"
		switch c.Effect {
		case Changes:
			level = "warning"
		case Tightens:
			level = "notice"
		}
		fmt.Fprintf(&b, "::%s file=%s,line=%d,title=%s::%s\n", level, property.Replace(path), lineOf(lines, c.place),
			property.Replace(fmt.Sprintf("%s %s", c.Tool, c.Effect)), escaped.Replace(c.Text+also(c.Others)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// What workflow commands cannot carry as it is.
var (
	escaped  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// lineOf returns the number of the line that is at a place, or of the last one on the way there that is in the text; 1 where there is none.
func lineOf(lines [][]byte, place []string) int {
	found, outer := -1, -1 // the line, and how far it is indented
	for _, prefix := range place {
		at, inner := -1, -1
		for i := found + 1; i < len(lines) && at < 0; i++ {
			line := bytes.TrimLeft(lines[i], " ")
			indent := len(lines[i]) - len(line)
			if found >= 0 && indent <= outer {
				break
			}
			if inner < 0 && indent > 0 {
				inner = indent
			}
			if indent == inner && bytes.HasPrefix(line, []byte(prefix)) {
				at = i
			}
		}
		if at < 0 {
			break
		}
		found, outer = at, inner
	}
	return max(found, 0) + 1
}
