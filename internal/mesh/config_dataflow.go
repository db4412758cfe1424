package mesh

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/nearmiss"
)

// DataFlow says which backend's data must not go to which.
type DataFlow struct {
	// Rules, at most 64. Without any nothing is remembered.
	Rules []DataFlowRule `yaml:"rules"`
	// MinBytes is the length below which a value is not told from others. Default 8.
	MinBytes int `yaml:"min_bytes"`
	// Remember is for how long a value is known after it was given. Default 1h.
	Remember Duration `yaml:"remember"`
	// MaxValues bounds the values that are known. Default 100,000.
	MaxValues int `yaml:"max_values"`
}

// DataFlowRule forbids one way.
type DataFlowRule struct {
	// Name is the rule's in refusals and logs. Default "data_flow.rules[0]" and so on.
	Name string `yaml:"name"`
	// From says whose values of which fields are meant.
	From DataFlowFrom `yaml:"from"`
	// To says who must not get them.
	To DataFlowTo `yaml:"to"`
	// Action is "refuse" or "log". Default refuse.
	Action string `yaml:"action"`
}

// DataFlowFrom is where values come from.
type DataFlowFrom struct {
	// Label is a data_label, "sensitive" for sensitive fields without one, or "*" for both. Default "*".
	Label string `yaml:"label"`
	// Backends are the backends that give the values. Default: all.
	Backends []string `yaml:"backends"`
}

// DataFlowTo is where values must not go.
type DataFlowTo struct {
	// Backends must not get the values; "*" is every other than the one that gave them.
	Backends []string `yaml:"backends"`
}

// normalise needs the names of the backends.
func (d *DataFlow) normalise(backends []Backend) error {
	const maxRules = 64
	switch {
	case len(d.Rules) > maxRules:
		return fmt.Errorf("data_flow.rules: %d rules, and at most %d are kept apart; join some by naming several backends in one", len(d.Rules), maxRules)
	case d.MinBytes < 0 || d.MaxValues < 0:
		return fmt.Errorf("data_flow.min_bytes and max_values: a bound cannot be negative; leave it out for the default")
	}
	for i := range d.Rules {
		r := &d.Rules[i]
		where := fmt.Sprintf("data_flow.rules[%d]", i)
		if r.Name == "" {
			r.Name = where
		}
		if r.From.Label == "" {
			r.From.Label = "*"
		}
		switch r.Action {
		case "":
			r.Action = "refuse"
		case "refuse", "log":
		default:
			return fmt.Errorf("%s.action %q: want refuse or log", where, r.Action)
		}
		if len(r.To.Backends) == 0 {
			return fmt.Errorf("%s.to.backends is empty: name the backends that must not get the data, or \"*\" for every other", where)
		}
		for _, side := range []struct {
			key   string
			names []string
		}{{"from", r.From.Backends}, {"to", r.To.Backends}} {
			for _, name := range side.names {
				if name == "*" && side.key == "to" {
					continue
				}
				if err := known(name, backends); err != nil {
					return fmt.Errorf("%s.%s.backends: %w", where, side.key, err)
				}
			}
		}
	}
	return nil
}

// known says that there is no backend of that name.
func known(name string, backends []Backend) error {
	names := make([]string, len(backends))
	for i := range backends {
		names[i] = backends[i].Name
	}
	if slices.Contains(names, name) {
		return nil
	}
	if near := nearmiss.Find(name, slices.Values(names)); near != "" {
		return fmt.Errorf("there is no backend %q; did you mean %q?", name, near)
	}
	return fmt.Errorf("there is no backend %q; there are %s", name, strings.Join(names, ", "))
}

func (d *DataFlow) options() interceptors.DataFlowOptions {
	o := interceptors.DataFlowOptions{MinBytes: d.MinBytes, Remember: time.Duration(d.Remember), MaxValues: d.MaxValues}
	for _, r := range d.Rules {
		o.Rules = append(o.Rules, interceptors.DataFlowRule{Name: r.Name, Label: r.From.Label, From: r.From.Backends, To: r.To.Backends, LogOnly: r.Action == "log"})
	}
	return o
}
