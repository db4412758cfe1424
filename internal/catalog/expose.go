package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// Doors are protocols by which callers come in, as a set.
type Doors uint8

// The doors.
const (
	DoorGRPC Doors = 1 << iota
	DoorMCP
	DoorHTTP
)

// AllDoors are all doors.
const AllDoors = DoorGRPC | DoorMCP | DoorHTTP

var doorNames = []string{"grpc", "mcp", "http"}

// Names returns the doors' names, "grpc", "mcp" and "http", in that order.
func (d Doors) Names() []string {
	out := []string{}
	for i, name := range doorNames {
		if d&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// String returns the doors' names with commas between, or "none".
func (d Doors) String() string {
	if d&AllDoors == 0 {
		return "none"
	}
	return strings.Join(d.Names(), ", ")
}

// ParseDoors reads doors' names.
func ParseDoors(names []string) (Doors, error) {
	var out Doors
next:
	for _, n := range names {
		for i, name := range doorNames {
			if n == name {
				out |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("door %q: want grpc, mcp or http", n)
	}
	return out, nil
}

// Expose says which methods a door shows and serves, besides those that a rule's doors settle.
type Expose int

const (
	// ExposeAll is all methods.
	ExposeAll Expose = iota
	// ExposeListed is the methods that Exposure.Listed names, and the mesh's own.
	ExposeListed
	// ExposeAnnotated is those, and methods whose contract has the option (toolway.v1.method).
	ExposeAnnotated
)

// String returns "all", "listed" or "annotated".
func (e Expose) String() string { return [...]string{"all", "listed", "annotated"}[e] }

// ParseExpose reads "all", "listed" or "annotated".
func ParseExpose(s string) (Expose, error) {
	for e := range ExposeAnnotated + 1 {
		if s == e.String() {
			return e, nil
		}
	}
	return 0, fmt.Errorf("exposure %q: want all, listed or annotated", s)
}

// Exposure says what each door exposes. The zero value exposes everything. Infrastructure is always exposed.
type Exposure struct {
	GRPC, MCP, HTTP Expose
	// Listed are patterns of methods that every door exposes.
	Listed []string
}

// Exposed says whether the doors, all of them, expose the method. What a door does not expose is unknown there.
func (m *Method) Exposed(d Doors) bool { return m.hidden&d == 0 }

// Exposed says whether the doors, all of them, expose a method of the service.
func (s *Service) Exposed(d Doors) bool {
	return slices.ContainsFunc(s.Methods, func(m *Method) bool { return m.Exposed(d) })
}

// hide returns the doors that do not expose the method.
func (rs *ruleSet) hide(m *Method) Doors {
	if m.refused {
		return AllDoors
	}
	if m.Policy.Doors != nil {
		return AllDoors &^ *m.Policy.Doors
	}
	if m.Service.Mesh {
		return 0
	}
	var hidden Doors
	for i, e := range []Expose{rs.expose.GRPC, rs.expose.MCP, rs.expose.HTTP} {
		if e == ExposeListed || e == ExposeAnnotated && m.info.contract == nil {
			hidden |= 1 << i
		}
	}
	if hidden == 0 {
		return 0
	}
	for _, p := range rs.listed {
		if p.Match(m.FullMethod) {
			return 0
		}
	}
	return hidden
}
