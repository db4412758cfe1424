package mesh

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/toolway/toolway/internal/nearmiss"
)

// Duration is a time.Duration that YAML writes as "1m30s".
type Duration time.Duration

// UnmarshalYAML reads "1m30s".
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("%q is not a duration: write it as 500ms, 30s or 5m", n.Value)
	}
	if v < 0 {
		return fmt.Errorf("duration %q is negative", n.Value)
	}
	*d = Duration(v)
	return nil
}

// Load reads a configuration file. Unknown keys, and values of the wrong kind, are errors that name the line, the key and, where there is
// one, the key that was meant. Relative paths in the file are relative to the file.
func Load(path string) (Config, error) {
	var c Config
	b, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read configuration: %w", err)
	}
	if err := parse(b, &c); err != nil {
		return c, fmt.Errorf("configuration %q: %w", path, err)
	}
	dir := filepath.Dir(path)
	for i := range c.Backends {
		b := &c.Backends[i]
		for j := range b.Descriptors {
			b.Descriptors[j] = relativeTo(dir, b.Descriptors[j])
		}
		if b.TLS != nil {
			b.TLS.CA, b.TLS.Cert, b.TLS.Key = relativeTo(dir, b.TLS.CA), relativeTo(dir, b.TLS.Cert), relativeTo(dir, b.TLS.Key)
		}
	}
	c.Data, c.MCP.StateKeyFile = relativeTo(dir, c.Data), relativeTo(dir, c.MCP.StateKeyFile)
	if c.Audit.isPath() {
		c.Audit.File = relativeTo(dir, c.Audit.File)
	}
	c.Lock = relativeTo(dir, c.Lock)
	c.relativeAuth(dir)
	return c, nil
}

func relativeTo(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// parse reads one YAML document into c. None, or one of comments only, means all defaults.
func parse(b []byte, c *Config) error {
	docs := yaml.NewDecoder(bytes.NewReader(b))
	var doc, more yaml.Node
	if err := docs.Decode(&doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return plain(err)
	}
	if err := docs.Decode(&more); err == nil {
		return fmt.Errorf("line %d: a second document: one file holds one configuration", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return plain(err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	if err := fits(doc.Content[0], reflect.TypeFor[Config](), ""); err != nil {
		return err
	}
	return plain(doc.Decode(c))
}

// plain takes the library's name off an error.
func plain(err error) error {
	if err == nil {
		return nil
	}
	var kinds *yaml.TypeError
	if errors.As(err, &kinds) {
		return errors.New(strings.Join(kinds.Errors, "; "))
	}
	return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
}

// fits checks that a node has the form that t wants, before it is decoded, so that what is wrong is told in the file's terms.
func fits(n *yaml.Node, t reflect.Type, path string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[Duration]() {
		if err := new(Duration).UnmarshalYAML(n); err != nil {
			return at(n, path, err.Error())
		}
		return nil
	}
	if t == reflect.TypeFor[Match]() && n.Kind != yaml.MappingNode {
		t = reflect.TypeFor[Strings]()
	}
	if t == reflect.TypeFor[Strings]() && n.Kind == yaml.ScalarNode {
		t = reflect.TypeFor[string]()
	}
	switch {
	case t == reflect.TypeFor[yaml.Node](): // anything
		return nil
	case t.Kind() == reflect.Map:
		if n.Kind != yaml.MappingNode {
			return at(n, path, "want keys and values, got "+form(n))
		}
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return fitsStruct(n, t, path)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return at(n, path, "want a list, such as [a, b], got "+form(n))
		}
		for i, item := range n.Content {
			if err := fits(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		return nil
	}
	want, tags := "text", []string(nil)
	switch t.Kind() {
	case reflect.Bool:
		want, tags = "true or false", []string{"!!bool"}
	case reflect.Int, reflect.Int64:
		want, tags = "a whole number", []string{"!!int"}
	case reflect.Float64:
		want, tags = "a number", []string{"!!int", "!!float"}
	}
	if n.Kind != yaml.ScalarNode || tags != nil && !slices.Contains(tags, n.Tag) {
		return at(n, path, "want "+want+", got "+form(n))
	}
	return nil
}

func fitsStruct(n *yaml.Node, t reflect.Type, path string) error {
	if n.Kind != yaml.MappingNode {
		return at(n, path, "want keys and values, got "+form(n))
	}
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		if !t.Field(i).IsExported() {
			continue
		}
		fields[t.Field(i).Tag.Get("yaml")] = t.Field(i).Type
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field, known := fields[key.Value]
		if !known {
			msg := fmt.Sprintf("unknown key %q", key.Value)
			here := make([]string, 0, len(fields))
			for name := range fields {
				here = append(here, name)
			}
			slices.Sort(here)
			if near := nearmiss.Find(key.Value, slices.Values(here)); near != "" {
				msg += fmt.Sprintf("; did you mean %q?", near)
			} else {
				msg += "; here may stand " + strings.Join(here, ", ")
			}
			return at(key, path, msg)
		}
		if err := fits(value, field, strings.TrimPrefix(path+"."+key.Value, ".")); err != nil {
			return err
		}
	}
	return nil
}

// form names what a node is.
func form(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	}
	return fmt.Sprintf("%q", n.Value)
}

func at(n *yaml.Node, path, msg string) error {
	where := fmt.Sprintf("line %d, column %d: ", n.Line, n.Column)
	if path != "" {
		where += path + ": "
	}
	return errors.New(where + msg)
}
