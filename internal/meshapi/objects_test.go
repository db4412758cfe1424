package meshapi_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/meshapi"
	"github.com/toolway/toolway/internal/object"
)

func TestGetObject(t *testing.T) {
	store := object.NewMemory(object.Limits{})
	info, err := store.Put(t.Context(), object.Owner{Tenant: "acme", Principal: "ann"}, "text/plain", []byte("all of it"))
	if err != nil {
		t.Fatal(err)
	}
	register := func(r grpc.ServiceRegistrar) { meshapi.RegisterObjects(r, store) }
	as := func(id string) toolwayv1.ObjectServiceClient {
		return toolwayv1.NewObjectServiceClient(serve(t, &identity.Principal{ID: id, Tenant: "acme"}, register))
	}
	got, err := as("ann").GetObject(t.Context(), &toolwayv1.GetObjectRequest{Id: info.ID})
	if err != nil || got.GetContentType() != "text/plain" || string(got.GetData()) != "all of it" {
		t.Errorf("GetObject = %v, %v", got, err)
	}
	if _, err := as("bob").GetObject(t.Context(), &toolwayv1.GetObjectRequest{Id: info.ID}); status.Code(err) != codes.NotFound {
		t.Errorf("GetObject by somebody else: %v, want NOT_FOUND", err)
	}
}
