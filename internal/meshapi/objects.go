package meshapi

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/object"
	"github.com/toolway/toolway/internal/store"
)

// Objects keep results that were too large for an answer. *object.Memory is one.
type Objects interface {
	// Get returns an object of owner, or object.ErrNotFound.
	Get(ctx context.Context, owner object.Owner, id string) (object.Info, []byte, error)
}

// RegisterObjects adds toolway.v1.ObjectService to r.
func RegisterObjects(r grpc.ServiceRegistrar, objects Objects) {
	toolwayv1.RegisterObjectServiceServer(r, &objectService{objects: objects})
}

type objectService struct {
	toolwayv1.UnimplementedObjectServiceServer
	objects Objects
}

// GetObject returns an object to whom it belongs.
func (s *objectService) GetObject(ctx context.Context, r *toolwayv1.GetObjectRequest) (*httpbody.HttpBody, error) {
	var owner object.Owner
	if c := call.FromContext(ctx); c != nil && c.Principal != nil {
		owner = object.Owner{Tenant: c.Principal.Tenant, Principal: c.Principal.ID}
	}
	info, data, err := s.objects.Get(ctx, owner, r.GetId())
	if errors.Is(err, object.ErrNotFound) {
		return nil, call.Error(codes.NotFound, "OBJECT_NOT_FOUND", "there is no such object for this caller, or no longer", "hint", "make the call again whose result it was")
	}
	if errors.Is(err, store.ErrUnavailable) {
		return nil, call.RetryAfter(call.Error(codes.Unavailable, "OBJECT_STORE_UNAVAILABLE", "the store of large results cannot be reached", "hint", "call again"), time.Second)
	}
	if err != nil {
		return nil, err
	}
	return &httpbody.HttpBody{ContentType: info.MediaType, Data: data}, nil
}
