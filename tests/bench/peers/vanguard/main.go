// Command vanguard is REST by vanguard-go before a reverse proxy to the backend, as its documentation shows it.
package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	"connectrpc.com/vanguard"

	"github.com/toolway/toolway/tests/bench/peers/internal/peer"
	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
)

func main() {
	peer.Main(func(ctx context.Context, backend string, l net.Listener) error {
		proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: backend})
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		proxy.Transport = &http.Transport{Protocols: protocols}
		proxy.FlushInterval = -1
		service := vanguard.NewService(probev1.Probe_ServiceDesc.ServiceName, proxy,
			vanguard.WithTargetProtocols(vanguard.ProtocolGRPC), vanguard.WithTargetCodecs(vanguard.CodecProto), vanguard.WithNoTargetCompression())
		h, err := vanguard.NewTranscoder([]*vanguard.Service{service})
		if err != nil {
			return err
		}
		return peer.HTTP(ctx, l, h)
	})
}
