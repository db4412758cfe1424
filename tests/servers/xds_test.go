package servers_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
	"github.com/toolway/toolway/tests/internal/probe"
	"github.com/toolway/toolway/tests/internal/run"
)

// controlPlane tells xDS clients of one service, "probe", and of its endpoints, which can change.
type controlPlane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	mu       sync.Mutex
	endpoint string
	moved    chan struct{} // closed when endpoint is another
}

func (p *controlPlane) move(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endpoint = to
	if p.moved != nil {
		close(p.moved)
	}
	p.moved = make(chan struct{})
}

func (p *controlPlane) now() (string, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endpoint, p.moved
}

// resources are what there is of each type, by its URL.
func resources(endpoint string) (map[string]*anypb.Any, error) {
	wrap := func(m proto.Message) *anypb.Any {
		a, err := anypb.New(m)
		if err != nil {
			panic(err) // a message of ours
		}
		return a
	}
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	route := &routev3.RouteConfiguration{Name: "routes", VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "probe"}}},
		}},
	}}}
	out := map[string]*anypb.Any{}
	for _, m := range []proto.Message{
		&listenerv3.Listener{Name: "probe", ApiListener: &listenerv3.ApiListener{ApiListener: wrap(&managerv3.HttpConnectionManager{
			RouteSpecifier: &managerv3.HttpConnectionManager_RouteConfig{RouteConfig: route},
			HttpFilters:    []*managerv3.HttpFilter{{Name: "router", ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: wrap(&routerv3.Router{})}}},
		})}},
		&clusterv3.Cluster{
			Name: "probe", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
				ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			}},
		},
		&endpointv3.ClusterLoadAssignment{ClusterName: "probe", Endpoints: []*endpointv3.LocalityLbEndpoints{{
			Locality: &corev3.Locality{Region: "here"}, LoadBalancingWeight: wrapperspb.UInt32(1),
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
				Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(number)},
				}},
			}}}}},
		}}},
	} {
		a := wrap(m)
		out[a.GetTypeUrl()] = a
	}
	return out, nil
}

// StreamAggregatedResources answers the first request for each type, and sends the endpoints again when they have changed.
func (p *controlPlane) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	requests, failed := make(chan *discoveryv3.DiscoveryRequest), make(chan error, 1)
	go func() {
		for {
			r, err := s.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-s.Context().Done():
				return
			}
		}
	}()
	asked := map[string]bool{}
	for version := 1; ; version++ {
		endpoint, moved := p.now()
		all, err := resources(endpoint)
		if err != nil {
			return err
		}
		send := func(url string) error {
			v := strconv.Itoa(version)
			return s.Send(&discoveryv3.DiscoveryResponse{VersionInfo: v, Nonce: v, TypeUrl: url, Resources: []*anypb.Any{all[url]}})
		}
		select {
		case <-s.Context().Done():
			return s.Context().Err()
		case err := <-failed:
			return err
		case r := <-requests:
			if d := r.GetErrorDetail(); d != nil {
				return fmt.Errorf("the mesh refuses %s: %s", r.GetTypeUrl(), d.GetMessage())
			}
			if url := r.GetTypeUrl(); !asked[url] && all[url] != nil && len(r.GetResourceNames()) > 0 {
				asked[url] = true
				if err := send(url); err != nil {
					return err
				}
			}
		case <-moved:
			endpoint, _ = p.now()
			if all, err = resources(endpoint); err != nil {
				return err
			}
			for url := range asked {
				if err := send(url); err != nil {
					return err
				}
			}
		}
	}
}

// TestControlPlane reaches a backend by a name that a control plane resolves (xDS), and follows when the control plane moves it. Without a
// control plane it is said what is missing.
func TestControlPlane(t *testing.T) {
	t.Parallel()
	first, firstAddr := startProbe(t, probe.V1)
	second, secondAddr := startProbe(t, probe.V1)
	plane := &controlPlane{}
	plane.move(firstAddr)
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, plane)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	bootstrap := filepath.Join(t.TempDir(), "bootstrap.json")
	content := fmt.Sprintf(`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}], "node": {"id": "mesh"}}`, l.Addr())
	if err := os.WriteFile(bootstrap, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	mesh, err := run.ServeEnv([]string{"GRPC_XDS_BOOTSTRAP=" + bootstrap}, "--backend", "probe=xds:///probe")
	if err != nil {
		t.Fatal(err)
	}
	mesh.Explain(t)
	t.Cleanup(func() {
		if err := mesh.Stop(); err != nil {
			t.Error(err)
		}
	})

	ctx := patience(t)
	askThrough(ctx, t, mesh)
	client := probev1.NewProbeClient(run.Dial(t, mesh.GRPC))
	stream, err := client.Watch(ctx, &probev1.WatchRequest{Plan: &probev1.Plan{Count: 2}})
	for n := 0; n < 2 && err == nil; n++ {
		_, err = stream.Recv()
	}
	if err != nil || first.Total() < 2 {
		t.Errorf("a stream: %v, %d calls at the server, want all of them", err, first.Total())
	}
	plane.move(secondAddr)
	run.Eventually(t, "calls reach the second server", func() bool {
		_, err := client.Ask(ctx, &probev1.AskRequest{})
		return err == nil && second.Total() > 0
	})

	bin, err := run.Plain()
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr, err := run.Output(nil, bin, "check", "--backend", "probe=xds:///probe")
	if said := slices.Concat(stdout, stderr); err != nil || code != 2 || !bytes.Contains(said, []byte("GRPC_XDS_BOOTSTRAP")) {
		t.Errorf("without a control plane: exit code %d, %v, want 2 and what is missing\n%s", code, err, said)
	}
}
