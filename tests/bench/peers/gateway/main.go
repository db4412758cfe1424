// Command gateway is REST by grpc-gateway's generated code, as its documentation shows it.
package main

import (
	"context"
	"net"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"github.com/toolway/toolway/tests/bench/peers/internal/peer"
	probegw "github.com/toolway/toolway/tests/gen/gateway/probe/v1"
)

func main() {
	peer.Main(func(ctx context.Context, backend string, l net.Listener) error {
		conn, err := peer.Dial(backend)
		if err != nil {
			return err
		}
		defer conn.Close()
		mux := runtime.NewServeMux()
		if err := probegw.RegisterProbeHandler(ctx, mux, conn); err != nil {
			return err
		}
		return peer.HTTP(ctx, l, mux)
	})
}
