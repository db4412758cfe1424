package workloads

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
	"github.com/toolway/toolway/interceptors/backendauth"
)

const (
	defaultPageSize = 100
	maxPageSize     = 1000
	maxReason       = 1024
	// DefaultMaxReplicas is the most replicas that a workload may be scaled to.
	DefaultMaxReplicas = 32
	// DefaultActionTimeout is how long an action may take.
	DefaultActionTimeout = 5 * time.Minute
	// DefaultRetention is how long events can be read.
	DefaultRetention = 7 * 24 * time.Hour
)

// Options configures [New]. The zero value works.
type Options struct {
	// MaxReplicas is the most that a workload may be scaled to. Default: [DefaultMaxReplicas].
	MaxReplicas int32
	// ActionTimeout is how long after it was recorded an action fails unless the workload was seen as wanted. What is wanted stays. Default: [DefaultActionTimeout].
	ActionTimeout time.Duration
	// Retention is how long events are kept. Default: [DefaultRetention].
	Retention time.Duration
	// Logger gets what callers are not told. Default: nothing is logged.
	Logger *slog.Logger
}

// Server implements agentops.workloads.v1.WorkloadService. Its methods may be called concurrently. [Server.Run] must run too: it does what calls record.
type Server struct {
	workloadsv1.UnimplementedWorkloadServiceServer

	store    *Store
	driver   Driver
	options  Options
	draining context.Context
	drain    context.CancelFunc

	syncing sync.Mutex
	taken   map[string]int64 // the generation that the driver has taken from this process, by workload
}

// New returns a server on a store and a driver, which stay the caller's to close, after the gRPC server and Run have ended.
func New(store *Store, driver Driver, options Options) *Server {
	options.MaxReplicas = cmp.Or(options.MaxReplicas, DefaultMaxReplicas)
	options.ActionTimeout = cmp.Or(options.ActionTimeout, DefaultActionTimeout)
	options.Retention = cmp.Or(options.Retention, DefaultRetention)
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{store: store, driver: driver, options: options, taken: map[string]int64{}}
	s.draining, s.drain = context.WithCancel(context.Background())
	return s
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { workloadsv1.RegisterWorkloadServiceServer(r, s) }

// Drain ends the watches that are running with UNAVAILABLE and the cursor to go on from. New ones end at once too.
func (s *Server) Drain() { s.drain() }

// GetWorkload implements the contract.
func (s *Server) GetWorkload(ctx context.Context, req *workloadsv1.GetWorkloadRequest) (*workloadsv1.Workload, error) {
	name, err := parseName(req.GetName(), false)
	if err != nil {
		return nil, err
	}
	r, err := s.now(ctx, name)
	if err != nil {
		return nil, s.status(ctx, err)
	}
	return s.store.proto(r), nil
}

// now is a workload as it is wanted, and as the driver sees it.
func (s *Server) now(ctx context.Context, name string) (*row, error) {
	r, err := workload(ctx, s.store.db, name)
	if err != nil {
		return nil, err
	}
	there, err := s.driver.Observe(ctx, name)
	if err != nil {
		return nil, err
	}
	if r == nil || r.Gone || len(there) == 0 {
		return nil, notFound(prefix + name)
	}
	r.Status = statusOfObserved(r, &there[0])
	return r, nil
}

// ListWorkloads implements the contract.
func (s *Server) ListWorkloads(ctx context.Context, req *workloadsv1.ListWorkloadsRequest) (*workloadsv1.ListWorkloadsResponse, error) {
	size := req.GetPageSize()
	if size < 0 || size > maxPageSize {
		return nil, invalid("page_size", fmt.Sprintf("%d is not in 0 to %d", size, maxPageSize))
	}
	after := ""
	if req.GetPageToken() != "" {
		var err error
		if after, err = parsePageToken(req.GetPageToken()); err != nil {
			return nil, invalid("page_token", err.Error())
		}
	}
	limit := int(cmp.Or(size, defaultPageSize))
	rows, err := workloads(ctx, s.store.db, after, 0)
	if err != nil {
		return nil, s.status(ctx, err)
	}
	there, err := s.driver.Observe(ctx, "")
	if err != nil {
		return nil, s.status(ctx, err)
	}
	seen := make(map[string]*Observed, len(there))
	for i := range there {
		seen[there[i].Name] = &there[i]
	}
	resp := &workloadsv1.ListWorkloadsResponse{}
	last := ""
	for _, r := range rows {
		o := seen[r.Name]
		if o == nil || r.Gone {
			continue
		}
		if len(resp.Workloads) == limit {
			resp.NextPageToken = pageToken(last)
			break
		}
		r.Status = statusOfObserved(r, o)
		resp.Workloads = append(resp.Workloads, s.store.proto(r))
		last = r.Name
	}
	return resp, nil
}

// RestartWorkload implements the contract.
func (s *Server) RestartWorkload(ctx context.Context, req *workloadsv1.RestartWorkloadRequest) (*workloadsv1.Action, error) {
	return s.begin(ctx, &change{
		kind: workloadsv1.Action_KIND_RESTART, incident: req.GetIncident(), generation: req.GetGeneration(), etag: req.GetEtag(), reason: req.GetReason(),
	}, req.GetName())
}

// ScaleWorkload implements the contract.
func (s *Server) ScaleWorkload(ctx context.Context, req *workloadsv1.ScaleWorkloadRequest) (*workloadsv1.Action, error) {
	if n := req.GetReplicas(); n < 0 || n > s.options.MaxReplicas {
		return nil, invalid("replicas", fmt.Sprintf("%d is not in 0 to %d", n, s.options.MaxReplicas))
	}
	return s.begin(ctx, &change{
		kind: workloadsv1.Action_KIND_SCALE, incident: req.GetIncident(), generation: req.GetGeneration(), etag: req.GetEtag(), reason: req.GetReason(), replicas: req.GetReplicas(),
	}, req.GetName())
}

func (s *Server) begin(ctx context.Context, c *change, name string) (a *workloadsv1.Action, err error) {
	if c.workload, err = parseName(name, false); err != nil {
		return nil, err
	}
	if err := checkIncident(c.incident, c.generation); err != nil {
		return nil, err
	}
	if len(c.reason) > maxReason || !utf8.ValidString(c.reason) || strings.ContainsRune(c.reason, 0) {
		return nil, invalid("reason", fmt.Sprintf("is no text of at most %d bytes", maxReason))
	}
	if p, ok := backendauth.FromContext(ctx); ok {
		c.principal = p.ID
	}
	if a, err = s.store.begin(ctx, c); err != nil {
		return nil, s.status(ctx, err)
	}
	return a, nil
}

// LookupAction implements the contract.
func (s *Server) LookupAction(ctx context.Context, req *workloadsv1.LookupActionRequest) (*workloadsv1.Action, error) {
	name, err := parseName(req.GetName(), false)
	if err != nil {
		return nil, err
	}
	if err := checkIncident(req.GetIncident(), req.GetGeneration()); err != nil {
		return nil, err
	}
	switch req.GetKind() {
	case workloadsv1.Action_KIND_RESTART, workloadsv1.Action_KIND_SCALE:
	default:
		return nil, invalid("kind", "is not a kind of action; use KIND_RESTART or KIND_SCALE")
	}
	id := (&change{kind: req.GetKind(), incident: req.GetIncident(), workload: name, generation: req.GetGeneration()}).id()
	a, _, err := action(ctx, s.store.db, id)
	if err != nil {
		return nil, s.status(ctx, err)
	}
	if a == nil {
		return nil, noAction(id)
	}
	return a, nil
}

func (s *Server) status(ctx context.Context, err error) error {
	return statusOf(ctx, s.options.Logger, err)
}

var (
	namePattern     = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,252}$`)
	incidentPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)
)

// checkName says what is wrong with a workload's name, which stands in paths, ids and cursors.
func checkName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%.80q is not [a-zA-Z0-9][a-zA-Z0-9._-]* of at most 253 characters", name)
	}
	return nil
}

// parseName reads workloads/{workload}; all allows workloads/-, which is "".
func parseName(name string, all bool) (string, error) {
	id, ok := strings.CutPrefix(name, prefix)
	if ok && all && id == "-" {
		return "", nil
	}
	if !ok || checkName(id) != nil {
		return "", invalid("name", fmt.Sprintf("%.80q is not workloads/{workload}; ListWorkloads has the names", name))
	}
	return id, nil
}

func checkIncident(incident string, generation int64) error {
	if !incidentPattern.MatchString(incident) {
		return invalid("incident", fmt.Sprintf("%.80q is not [a-zA-Z0-9][a-zA-Z0-9._-]* of at most 64 characters", incident))
	}
	if generation < 1 {
		return invalid("generation", fmt.Sprintf("%d is not a generation, which are 1 and up; GetWorkload has the present one", generation))
	}
	return nil
}
