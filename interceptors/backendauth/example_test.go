package backendauth_test

import (
	"fmt"

	"google.golang.org/grpc"

	"github.com/toolway/toolway/interceptors/backendauth"
)

func Example() {
	v, err := backendauth.New(backendauth.Config{
		Issuer:   "toolway",                                     // credentials.issuer of the mesh
		Audience: "orders",                                      // this backend's name in the mesh's configuration
		JWKS:     "http://127.0.0.1:8080/.well-known/jwks.json", // the mesh's HTTP door
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer v.Close()
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(v.Unary), grpc.ChainStreamInterceptor(v.Stream))
	defer s.Stop()
	// In a handler: caller, ok := backendauth.FromContext(ctx)
	fmt.Println("orders answers calls of the mesh alone")
	// Output: orders answers calls of the mesh alone
}
