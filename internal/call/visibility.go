package call

import (
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// Visibility says what a principal may know of. Doors ask it for every list that they show (tools, reflection, OpenAPI, the catalog) and
// before they tell anything about a method that was named; the chain refuses calls of what is hidden with the answer for an unknown method.
// A nil Visibility shows everything.
type Visibility interface {
	// Visible says whether p may see m at the door d. p may be nil: nobody. It is quick, without side effects, and may be called
	// concurrently. The same principal gets the same answer until the configuration or the catalog changes.
	Visible(p *identity.Principal, d Door, m *catalog.Method) bool
}

// Sees says whether p may see m at the door d, where v may be nil.
func Sees(v Visibility, p *identity.Principal, d Door, m *catalog.Method) bool {
	return v == nil || v.Visible(p, d, m)
}
