package mesh

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/nearmiss"
	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/mcpadapter"
)

// SearchView is the view that is always there: find, describe and call over the whole catalog.
const SearchView = "search"

// View is a set of tools with an endpoint of its own, /mcp/{name}. A method belongs to it if it fits every kind of condition that is given, by
// one of its values.
type View struct {
	// Name is unique: [a-z0-9][a-z0-9-]*, at most 63 characters.
	Name string `yaml:"name"`
	// Labels are labels of services, in their contract or by policy.
	Labels []string `yaml:"labels"`
	// Services are full names, or "pkg.*" for all of a package and the packages in it.
	Services []string `yaml:"services"`
	// Tools are tool names, or patterns with "*", such as "logs_*".
	Tools []string `yaml:"tools"`
	// Except are tool names or patterns that do not belong to it all the same.
	Except []string `yaml:"except"`
	// ReadOnly leaves out tools that change something.
	ReadOnly bool `yaml:"read_only"`
	// Search lists find_tools, describe_tool and call_tool in place of the view's tools, which an agent reaches by them.
	Search bool `yaml:"search"`
	// Profile is the subset of JSON Schema that the view's tools are listed with. Default: mcp.profile.
	Profile string `yaml:"profile"`
	// Instructions are shown to the model by hosts that do so. Default: none.
	Instructions string `yaml:"instructions"`
}

var viewName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// normaliseViews fills in defaults and adds the view that is always there.
func (m *MCP) normaliseViews() error {
	names := map[string]bool{}
	for i := range m.Views {
		v := &m.Views[i]
		if err := v.normalise(m.Profile); err != nil {
			return fmt.Errorf("mcp.views: %w", err)
		}
		if names[v.Name] {
			return fmt.Errorf("mcp.views: two views are named %q: rename one", v.Name)
		}
		names[v.Name] = true
	}
	if !names[SearchView] {
		m.Views = append(m.Views, View{Name: SearchView, Profile: m.Profile, Search: true})
		names[SearchView] = true
	}
	if m.View != "" && !names[m.View] {
		return fmt.Errorf("mcp.view: there is no view %q%s", m.View, didYouMean(m.View, names))
	}
	return nil
}

func didYouMean(name string, names map[string]bool) string {
	all := make([]string, 0, len(names))
	for n := range names {
		all = append(all, n)
	}
	slices.Sort(all)
	if near := nearmiss.Find(name, slices.Values(all)); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; there are " + strings.Join(all, ", ")
}

func (v *View) normalise(profile string) error {
	if !viewName.MatchString(v.Name) {
		return fmt.Errorf("name %q: want lower-case letters, digits and dashes, at most 63", v.Name)
	}
	if v.Profile == "" {
		v.Profile = profile
	}
	if _, err := toolschema.ParseProfile(v.Profile); err != nil {
		return fmt.Errorf("view %q: %w", v.Name, err)
	}
	for _, p := range slices.Concat(v.Tools, v.Except) {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("view %q: %q is no tool name or pattern: write one such as \"logs_*\"", v.Name, p)
		}
	}
	for _, s := range v.Services {
		if s == "" || strings.Contains(strings.TrimSuffix(s, ".*"), "*") && s != "*" {
			return fmt.Errorf("view %q: %q is no service: write a full name such as \"acme.v1.Orders\", or \"acme.*\"", v.Name, s)
		}
	}
	if v.matchesAll() && !v.Search && len(v.Except) == 0 {
		return fmt.Errorf("view %q has no condition: choose its tools by labels, services, tools or read_only; /mcp has all of them", v.Name)
	}
	return nil
}

// matchesAll says whether nothing chooses.
func (v *View) matchesAll() bool {
	return len(v.Labels) == 0 && len(v.Services) == 0 && len(v.Tools) == 0 && !v.ReadOnly
}

// has says whether a method belongs to the view.
func (v *View) has(m *catalog.Method) bool {
	switch {
	case v.ReadOnly && !m.Tool.Hints.ReadOnly,
		len(v.Labels) > 0 && !slices.ContainsFunc(v.Labels, func(l string) bool { return slices.Contains(m.Policy.Labels, l) }),
		len(v.Services) > 0 && !catalog.Listed(v.Services, string(m.Service.Desc.FullName())),
		len(v.Tools) > 0 && !anyPattern(v.Tools, m.Tool.Name):
		return false
	}
	return !anyPattern(v.Except, m.Tool.Name)
}

func anyPattern(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, name)
		return ok
	})
}

// view returns what the door of a view shows; nil is the view of all tools.
func (v *View) view() mcpadapter.View {
	switch {
	case v == nil:
		return mcpadapter.View{}
	case v.matchesAll() && len(v.Except) == 0:
		return mcpadapter.View{Search: v.Search}
	}
	return mcpadapter.View{Has: v.has, Search: v.Search}
}

// view returns the view of a name, or nil.
func (m *MCP) view(name string) *View {
	for i := range m.Views {
		if m.Views[i].Name == name {
			return &m.Views[i]
		}
	}
	return nil
}
