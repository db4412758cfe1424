package mesh

import (
	"context"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/toolway/toolway/gateway"
	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/backend"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/dial"
	"github.com/toolway/toolway/internal/meshapi"
	"github.com/toolway/toolway/internal/proxy"
	"github.com/toolway/toolway/mcpadapter"
)

// openCatalog connects to the backends and begins to read their contracts, the mesh's own first.
func (m *Mesh) openCatalog(ctx context.Context) error {
	c := &m.config
	contract, err := meshapi.Contract()
	if err != nil {
		return err
	}
	backends := []catalog.BackendConfig{{Name: own, Sources: []catalog.Source{catalog.CompiledIn(append(contract,
		healthpb.File_grpc_health_v1_health_proto,
		reflectionpb.File_grpc_reflection_v1_reflection_proto,
		reflectionalphapb.File_grpc_reflection_v1alpha_reflection_proto,
	)...)}}}
	for _, b := range c.Backends {
		sources, err := m.sources(b)
		if err != nil {
			return err
		}
		backends = append(backends, catalog.BackendConfig{Name: b.Name, Sources: sources, Services: b.Services, ToolPrefix: b.ToolPrefix, Failover: b.Failover})
	}
	if err := m.measureConnections(); err != nil {
		return err
	}
	judge, err := c.judge()
	if err != nil {
		return err
	}
	if m.catalog, err = catalog.Open(ctx, catalog.Config{Backends: backends, Rules: c.rules(), Expose: c.Expose.catalog(), Judge: judge, Logger: m.log}); err != nil {
		return err
	}
	return m.measureQuarantine()
}

// openChain makes the one chain of all doors, with the backends and the mesh's own services behind it. It returns the chain that the runs of
// tasks pass.
func (m *Mesh) openChain(visible call.Visibility) (runs call.Handler, err error) {
	c := &m.config
	credentials, err := m.openCredentials()
	if err != nil {
		return nil, err
	}
	auditOptions, err := m.openAudit()
	if err != nil {
		return nil, err
	}
	router := backend.New(func(name string) *dial.Conn { return m.conns[name] }, map[string]*backend.Local{own: m.ownServices(visible)}, backend.Options{
		Attempts:    m.attempts(),
		Credentials: credentials,
	})
	options := interceptors.Options{
		Logger:           m.log,
		Tracer:           m.telemetry.tracerProvider(),
		Meter:            m.telemetry.meterProvider(),
		Timeout:          time.Duration(c.Deadline.Default),
		MaxTimeout:       time.Duration(c.Deadline.Max),
		MaxStreamTimeout: time.Duration(c.Deadline.StreamMax),
		Reserve:          time.Duration(c.Deadline.Reserve),
		Address:          c.GRPC.Addr,
		Rules:            m.rules,
		Audit:            auditOptions,
		Cache:            c.Cache.options(),
		DataFlow:         c.DataFlow.options(),
		Authenticator:    m.authenticator(),
		Idempotency:      c.Idempotency.options(m.state.keys),
		Approval:         interceptors.ApprovalOptions{Store: m.state.approvals, Pending: time.Duration(c.Approvals.Pending), URL: c.Approvals.URL},
		Limits:           c.Limits.options(),
		Task:             m.taskOptions(),
	}
	policies := interceptors.Default(options)
	m.handler = interceptors.Chain(router.Handle, policies...)
	return interceptors.Chain(router.Handle, interceptors.Runs(policies, options)...), nil
}

// ownServices are the mesh's own API, a backend like any other.
func (m *Mesh) ownServices(visible call.Visibility) *backend.Local {
	c, local := &m.config, backend.NewLocal()
	m.health = proxy.RegisterHealth(local, m.catalog, visible)
	proxy.RegisterReflection(local, m.catalog, visible)
	if m.audit.records != nil {
		meshapi.RegisterAudit(local, m.audit.records)
	}
	m.endSearch = meshapi.RegisterCatalog(local, meshapi.CatalogOptions{Snapshot: m.catalog.Snapshot, Visibility: visible})
	if m.state.objects != nil {
		meshapi.RegisterObjects(local, m.state.objects)
	}
	meshapi.RegisterApprovals(local, meshapi.ApprovalOptions{
		Store: m.state.approvals, Use: time.Duration(c.Approvals.Use), Refusal: time.Duration(c.Approvals.Pending), Self: *c.Approvals.Self, Logger: m.log,
	})
	meshapi.RegisterTasks(local, meshapi.TaskOptions{Tasks: m.tasks, Snapshot: m.catalog.Snapshot, Handler: func(s grpc.ServerStream) error { return m.handler(s) }})
	return local
}

// openDoors makes the three doors before the chain.
func (m *Mesh) openDoors(version string, visible call.Visibility) error {
	c := &m.config
	crossing := call.NewRules(c.Metadata.Allow)
	grpcTLS, err := c.GRPC.TLS.open("grpc", "h2")
	if err != nil {
		return err
	}
	m.proxy = proxy.New(proxy.Config{Catalog: m.catalog, Handler: m.handler, Rules: crossing, MaxRecvBytes: c.GRPC.MaxMessageBytes, TLS: grpcTLS, Logger: m.log, Visibility: visible})
	if m.httpTLS, err = c.HTTP.TLS.open("http", "h2", "http/1.1"); err != nil {
		return err
	}
	stateKey, err := c.MCP.stateKey()
	if err != nil {
		return err
	}
	mcp := mcpadapter.Config{
		Catalog: m.catalog, Handler: m.handler, Rules: crossing, Logger: m.log, Name: "toolway", Version: version,
		AllowedOrigins: c.HTTP.AllowedOrigins, AllowedHosts: c.HTTP.AllowedHosts, Sessions: c.MCP.Sessions, MaxRequestBytes: int(c.HTTP.MaxBodyBytes),
		StreamAge: time.Duration(c.MCP.StreamAge), StateKey: stateKey, ServeStale: c.Cache.Stale > 0,
		Authenticator: m.authenticator(), Resource: c.resource(), Visibility: visible,
	}
	if m.tasks != nil {
		mcp.Tasks = m.tasks
	}
	c.Results.shape(&mcp, m.state.objects)
	if m.mcp, err = openViews(c.MCP, mcp); err != nil {
		return err
	}
	m.gateway = gateway.New(gateway.Config{
		Catalog: m.catalog, Handler: m.handler, Rules: crossing, Logger: m.log,
		AllowedOrigins: c.HTTP.AllowedOrigins, AllowedHosts: c.HTTP.AllowedHosts,
		MaxBodyBytes: c.HTTP.MaxBodyBytes, Heartbeat: time.Duration(c.HTTP.Heartbeat), Reconnect: time.Duration(c.HTTP.Reconnect), ParkAfter: parkAfter,
		Authenticator: m.authenticator(), Resource: c.resource(), Visibility: visible, Tasks: m.tasks != nil,
	})
	return nil
}

// start begins what goes on beside the doors, until Close.
func (m *Mesh) start(ctx context.Context, runs call.Handler) {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.running.Go(func() {
		if m.catalog.Ready(run) == nil {
			m.complete.Store(true)
		}
	})
	if m.config.Data != "" {
		m.running.Go(func() { m.keepContracts(run) })
	}
	if m.rules != nil || len(m.config.selectors())+len(m.config.DataFlow.Rules) > 0 {
		m.running.Go(func() { m.watchRules(run) })
	}
	if m.tasks != nil {
		m.running.Go(func() { m.work(run, runs) })
	}
}
