// Package docs follows pages of docs/ as a reader would.
package docs

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Agrees says whether output is what a page shows of it: line by line, without blank lines, where … on the page stands for anything within a line.
func Agrees(output, shown string) bool {
	var parts []string
	for line := range strings.Lines(shown) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*"))
		}
	}
	var lines []string
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	ok, err := regexp.MatchString("^"+strings.Join(parts, "\n")+"$", strings.Join(lines, "\n"))
	return err == nil && ok
}

// Step is one thing that a page tells its reader to do.
type Step struct {
	// Line is where it stands on the page, from 1.
	Line int
	// File is the path of a file to write, with Text in it; "" for a command.
	File string
	// Text is the file's content, or the commands.
	Text string
	// Prints is what the commands print, if Shown.
	Prints string
	Shown  bool
}

// name is a line that says which file the block after it is.
var name = regexp.MustCompile("^`([^`]+)`:$")

// Steps reads a page: a block after a line that is only a file's name in backquotes and a colon is that file, a block of "sh" is a command, and a block
// of "text" after one is what it prints. Any other block is refused, so that nothing on the page goes unread.
func Steps(page string) (steps []Step, err error) {
	var (
		file, lang string
		block      []string
		start      int
	)
	inside := false
	for i, line := range strings.Split(page, "\n") {
		switch {
		case !inside && strings.HasPrefix(line, "```"):
			inside, lang, block, start = true, strings.TrimPrefix(line, "```"), nil, i+1
		case inside && line == "```":
			inside = false
			text := strings.Join(block, "\n") + "\n"
			last := len(steps) - 1
			switch {
			case file != "" && !filepath.IsLocal(file):
				return nil, fmt.Errorf("line %d: the file %q is not in the folder", start, file)
			case file != "":
				steps = append(steps, Step{Line: start, File: file, Text: text})
			case lang == "sh":
				steps = append(steps, Step{Line: start, Text: text})
			case lang == "text" && last >= 0 && steps[last].File == "" && !steps[last].Shown:
				steps[last].Prints, steps[last].Shown = text, true
			default:
				return nil, fmt.Errorf("line %d: a block of %q is neither a file with a name before it, nor commands, nor what commands print", start, lang)
			}
			file = ""
		case inside:
			block = append(block, line)
		case line != "":
			file = ""
			if m := name.FindStringSubmatch(line); m != nil {
				file = m[1]
			}
		}
	}
	if inside {
		return nil, fmt.Errorf("line %d: a block has no end", start)
	}
	if len(steps) == 0 {
		return nil, errors.New("the page has no steps")
	}
	return steps, nil
}
