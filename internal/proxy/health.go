package proxy

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// Health is grpc.health.v1.Health for the whole catalog: a service serves while its backend is up; "" is the mesh itself, which serves
// until Shutdown. It needs no credentials, so it tells only of services that everybody may know of; others are unknown. It is safe for
// concurrent use.
type Health struct {
	healthpb.UnimplementedHealthServer
	catalog    Snapshots
	visibility call.Visibility
	once       sync.Once
	down       chan struct{}
}

// RegisterHealth adds the health service of the catalog to r and returns it. The service itself must be in the catalog, as a compiled-in
// one, to be called. visibility says what nobody in particular is told of; nil means everything.
func RegisterHealth(r grpc.ServiceRegistrar, c Snapshots, visibility call.Visibility) *Health {
	h := &Health{catalog: c, visibility: visibility, down: make(chan struct{})}
	healthpb.RegisterHealthServer(r, h)
	return h
}

// Shutdown makes everything NOT_SERVING, for good: load balancers look elsewhere. Watchers are told, and then their calls end, so that they
// do not keep a server from draining.
func (h *Health) Shutdown() { h.once.Do(func() { close(h.down) }) }

// tells says whether the service may be told of. Calls of this service are not authenticated: whoever asks is nobody.
func (h *Health) tells(s *catalog.Service) bool {
	return s != nil && s.Exposed(catalog.DoorGRPC) && (h.visibility == nil || slices.ContainsFunc(s.Methods, func(m *catalog.Method) bool { return h.visibility.Visible(nil, call.GRPC, m) }))
}

// status returns the status of a service, or SERVICE_UNKNOWN, in one snapshot.
func (h *Health) status(snap *catalog.Snapshot, service string) healthpb.HealthCheckResponse_ServingStatus {
	down := false
	select {
	case <-h.down:
		down = true
	default:
	}
	if service != "" {
		s := snap.Service(service)
		if !h.tells(s) {
			return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		}
		down = down || s.Backend.State != catalog.Up
	}
	if down {
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	return healthpb.HealthCheckResponse_SERVING
}

// Check returns the status of a service now, or NOT_FOUND.
func (h *Health) Check(_ context.Context, in *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	st := h.status(h.catalog.Snapshot(), in.GetService())
	if st == healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", in.GetService())
	}
	return &healthpb.HealthCheckResponse{Status: st}, nil
}

// maxHealthList is the bound that the protocol suggests for List.
const maxHealthList = 100

// List returns the status of the mesh and all services, or RESOURCE_EXHAUSTED if these are more than 100, as the protocol has it.
func (h *Health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	snap := h.catalog.Snapshot()
	out := &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{"": {Status: h.status(snap, "")}}}
	for _, s := range snap.Services() {
		if !h.tells(s) {
			continue
		}
		name := string(s.Desc.FullName())
		out.Statuses[name] = &healthpb.HealthCheckResponse{Status: h.status(snap, name)}
	}
	if n := len(out.Statuses); n > maxHealthList {
		return nil, status.Errorf(codes.ResourceExhausted, "%d services are more than the %d that List may return; use Check", n, maxHealthList)
	}
	return out, nil
}

// Watch sends the status of a service now and whenever it changes. A service that is not there yet is SERVICE_UNKNOWN. The call ends with
// UNAVAILABLE after Shutdown.
func (h *Health) Watch(in *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	last := healthpb.HealthCheckResponse_ServingStatus(-1)
	for {
		snap := h.catalog.Snapshot()
		st := h.status(snap, in.GetService())
		if st != last {
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: st}); err != nil {
				return err
			}
			last = st
		}
		select {
		case <-h.down:
			if st != healthpb.HealthCheckResponse_NOT_SERVING && st != healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
				continue // Shutdown came in between: send it
			}
			return status.Error(codes.Unavailable, "the mesh is shutting down")
		case <-snap.Superseded():
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}
