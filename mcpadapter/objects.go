package mcpadapter

import (
	"context"

	"github.com/toolway/toolway/internal/object"
)

// Objects keep results that are too large for an answer. *object.Memory is one. Implementations are safe for concurrent use.
type Objects interface {
	// Put keeps data, which nobody changes any more, for owner.
	Put(ctx context.Context, owner object.Owner, mediaType string, data []byte) (object.Info, error)
	// Get returns an object of owner, or object.ErrNotFound, also for one that is somebody else's.
	Get(ctx context.Context, owner object.Owner, id string) (object.Info, []byte, error)
}

// ObjectURI is what the URIs of objects begin with; the id follows.
const ObjectURI = "toolway://objects/"
