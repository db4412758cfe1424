package mesh

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/mcpadapter"
)

// views are the MCP doors, one for each view, by name; "" is what /mcp and stdio show.
type views map[string]*mcpadapter.Adapter

// openViews makes the doors of all views, which differ from base in what they show.
func openViews(c MCP, base mcpadapter.Config) (views, error) {
	out := views{}
	open := func(name string, v *View) error {
		conf := base
		profile := c.Profile
		if v != nil {
			profile, conf.Instructions = v.Profile, v.Instructions
		}
		var err error
		if conf.Profile, err = toolschema.ParseProfile(profile); err != nil {
			return err
		}
		conf.View = v.view()
		out[name] = mcpadapter.New(conf)
		return nil
	}
	if err := open("", c.view(c.View)); err != nil {
		return nil, err
	}
	for i := range c.Views {
		if err := open(c.Views[i].Name, &c.Views[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// handlers returns the endpoints by path.
func (vs views) handlers() map[string]http.Handler {
	out := map[string]http.Handler{}
	for name, a := range vs {
		path := "/mcp"
		if name != "" {
			path += "/" + name
		}
		out[path] = a.HTTPHandler()
	}
	return out
}

// unknown says that there is no such view, as the JSON-RPC error that a client of the door can read.
func (vs views) unknown(name string) any {
	names := map[string]bool{}
	for n := range vs {
		if n != "" {
			names[n] = true
		}
	}
	text := fmt.Sprintf("there is no view %q%s", strings.ToValidUTF8(name[:min(len(name), 100)], ""), didYouMean(name, names))
	const invalidRequest = -32600 // JSON-RPC 2.0, section 5.1
	return map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": invalidRequest, "message": text}}
}

func (vs views) drain() {
	for _, a := range vs {
		a.Drain()
	}
}

func (vs views) close() error {
	var errs []error
	for _, a := range vs {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}

// manyTools is how many tools most models and hosts still take.
const manyTools = 128

// reportViews says which views are of no use with the catalog as it is, and that there are too many tools for one list.
func (m *Mesh) reportViews() {
	s := m.catalog.Snapshot()
	for i := range m.config.MCP.Views {
		if v := &m.config.MCP.Views[i]; len(s.Tools()) > 0 && !slices.ContainsFunc(s.Tools(), v.has) {
			m.log.Warn("no tool fits this view: look at its conditions, and at the names with: toolway tools list", "view", v.Name)
		}
	}
	if n := len(s.Tools()); m.config.MCP.View == "" && n > manyTools {
		m.log.Info("these are more tools than most models take: offer a view, such as /mcp/search", "tools", n)
	}
}
