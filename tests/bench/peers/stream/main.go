// Command stream is a gRPC proxy on grpc-go's handler for unknown services, with messages as bytes: the usual way to write one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/tests/bench/peers/internal/peer"
)

// raw is a codec that leaves messages as they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("marshal %T: want *[]byte", v)
	}
	return *b, nil
}

func (raw) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("unmarshal %T: want *[]byte", v)
	}
	*b = data
	return nil
}

func main() {
	peer.Main(func(ctx context.Context, backend string, l net.Listener) error {
		conn, err := peer.Dial(backend)
		if err != nil {
			return err
		}
		defer conn.Close()
		s := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error { return forward(in, conn) }))
		stop := context.AfterFunc(ctx, s.Stop)
		defer stop()
		return s.Serve(l)
	})
}

func forward(in grpc.ServerStream, conn *grpc.ClientConn) error {
	method, ok := grpc.MethodFromServerStream(in)
	if !ok {
		return status.Error(codes.Internal, "the call has no method")
	}
	ctx, cancel := context.WithCancel(in.Context())
	defer cancel()
	md, _ := metadata.FromIncomingContext(ctx)
	out, err := conn.NewStream(metadata.NewOutgoingContext(ctx, md.Copy()), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(16<<20))
	if err != nil {
		return err
	}
	requests := make(chan error, 1)
	go func() { requests <- copyRequests(in, out) }()
	replies := make(chan error, 1)
	go func() { replies <- copyReplies(out, in) }()
	for {
		select {
		case err := <-requests:
			if err != nil {
				return err
			}
			requests = nil
		case err := <-replies:
			in.SetTrailer(out.Trailer())
			return err
		}
	}
}

func copyRequests(in grpc.ServerStream, out grpc.ClientStream) error {
	for {
		var b []byte
		if err := in.RecvMsg(&b); errors.Is(err, io.EOF) {
			return out.CloseSend()
		} else if err != nil {
			return err
		}
		if err := out.SendMsg(&b); err != nil {
			return nil //nolint:nilerr // the status comes with the replies
		}
	}
}

func copyReplies(out grpc.ClientStream, in grpc.ServerStream) error {
	header, err := out.Header()
	if err != nil {
		return err
	}
	if err := in.SendHeader(header); err != nil {
		return err
	}
	for {
		var b []byte
		if err := out.RecvMsg(&b); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := in.SendMsg(&b); err != nil {
			return err
		}
	}
}
