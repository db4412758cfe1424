// Package interceptors holds the policies of a call, one a file. Each is a grpc.StreamServerInterceptor, so any third party's plugs in too.
package interceptors

import (
	"google.golang.org/grpc"

	"github.com/toolway/toolway/internal/call"
)

// Chain returns a handler that runs the interceptors, first one outermost, then final.
func Chain(final grpc.StreamHandler, chain ...grpc.StreamServerInterceptor) call.Handler {
	h := final
	for i := len(chain) - 1; i >= 0; i-- {
		next, ic := h, chain[i]
		h = func(srv any, stream grpc.ServerStream) error {
			m := call.FromContext(stream.Context()).Method
			return ic(srv, stream, &grpc.StreamServerInfo{FullMethod: m.FullMethod, IsClientStream: m.Kind().Client, IsServerStream: m.Kind().Server}, next)
		}
	}
	return func(stream grpc.ServerStream) error { return h(nil, stream) }
}
