package interceptors_test

import (
	"fmt"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/toolway/toolway/interceptors"
)

// A policy of one's own stands behind the default chain, whatever door a call comes through.
func ExampleChain() {
	backend := func(any, grpc.ServerStream) error { return nil } // backend.Router's Handle
	audit := func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		err := handler(srv, stream)
		slog.Info("audit", "method", info.FullMethod, "error", err)
		return err
	}
	chain := append(interceptors.Default(interceptors.Options{}), interceptors.Every("audit", audit))
	handler := interceptors.Chain(backend, chain...) // what the doors are given
	fmt.Println(len(chain) > 1, handler != nil)
	// Output: true true
}
