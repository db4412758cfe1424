package interceptors

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/toolway/toolway/internal/call"
)

// BackendCredentials give the credential by which a backend knows on whose behalf the mesh calls it.
type BackendCredentials interface {
	// Credential returns metadata as key, value pairs for one attempt of the call c at its backend; none if the backend gets no
	// credential. The error is a status: nothing has been sent. It is safe for concurrent use.
	Credential(ctx context.Context, c *call.Call) ([]string, error)
}

// WithBackendCredential returns ctx with the credential of the call that it carries in its outgoing metadata: for attempts that are made without a
// stream interceptor. b may be nil.
func WithBackendCredential(ctx context.Context, b BackendCredentials) (context.Context, error) {
	c := call.FromContext(ctx)
	if b == nil || c == nil {
		return ctx, nil
	}
	pairs, err := b.Credential(ctx, c)
	if err != nil || len(pairs) == 0 {
		return ctx, err
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...), nil
}

// Mint returns the attempt's interceptor that adds the backend's credential: each attempt gets its own, inside the breaker and retries.
func Mint(b BackendCredentials) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, err := WithBackendCredential(ctx, b)
		if err != nil {
			return nil, err
		}
		return next(ctx, desc, cc, method, opts...)
	}
}
