package lock

import (
	"fmt"

	"github.com/toolway/toolway/internal/catalog"
)

// Judge returns a function that says why a method's definition must not be served before it has been reviewed: it is not in the lock, or
// differs from it in more than what tightens. "" means that it may be served. The function is safe for concurrent use.
func (f *File) Judge() func(*catalog.Method) string {
	b := new(builder)
	return func(m *catalog.Method) string {
		was := f.Tools[key(m)]
		if was == nil {
			return "it is not in the lock"
		}
		is, types := b.tool(m)
		if is.Hash == was.Hash {
			return ""
		}
		first, held := "", 0
		for _, c := range compareTools(key(m), was, is, f.Types[was.Backend], types.byName) {
			if !c.held() {
				continue
			}
			if held++; held == 1 {
				first = c.Text
			}
		}
		switch held {
		case 0:
			return ""
		case 1:
			return first
		}
		return fmt.Sprintf("%s; and %d more changes", first, held-1)
	}
}
