package incidents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	"github.com/toolway/toolway/interceptors/backendauth"
)

// Limits of requests, as the contract states them.
const (
	defaultDuration = 15 * time.Minute
	minDuration     = time.Second
	maxDuration     = 24 * time.Hour
	defaultPageSize = 100
	maxPageSize     = 1000
	maxSymptom      = 1024
	maxRequestID    = 128
)

var (
	incidentPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)
	servicePattern  = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`)
	namePattern     = regexp.MustCompile(`^diagnoses/([0-9a-f]{32})$`)
)

// Options configures [Open]. The zero value works.
type Options struct {
	// Planner says what comes next. Default: [Rules] as it is.
	Planner Planner
	// MaxRunning is how many diagnoses may run at a time, those that wait for approval included. Default: 64.
	MaxRunning int
	// MaxSteps is how many steps a diagnosis may take; one that wants more fails. Default: 64.
	MaxSteps int
	// MaxProgress is how many events of type tool_progress a diagnosis may have; more are left out. All others are bounded by MaxSteps. Default: 200.
	MaxProgress int
	// MaxEvidenceBytes is how much of a tool's reply is kept, as JSON; longer ones have their texts and lists cut. Default: 64 KiB.
	MaxEvidenceBytes int
	// CallTimeout bounds one step that reads, its repetitions included, below what is left of the diagnosis' deadline. Default: 30 s.
	CallTimeout time.Duration
	// Poll is how long to wait before an action that is held, or goes on, is asked about again; it grows to ten times that. Default: 1 s.
	Poll time.Duration
	// Retention is how long a diagnosis is kept after its end. Default: 30 days.
	Retention time.Duration
	// Logger gets what callers are not told. Default: nothing is logged.
	Logger *slog.Logger
}

// Server implements agentops.incidents.v1.IncidentService. Its methods may be called concurrently.
type Server struct {
	incidentsv1.UnimplementedIncidentServiceServer

	store   *store
	mesh    grpc.ClientConnInterface
	options Options

	draining context.Context // ends watches
	drain    context.CancelFunc
	working  context.Context // ends diagnoses' goroutines; what they do goes on at the next start
	stop     context.CancelCauseFunc
	runs     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	cancel map[string]context.CancelCauseFunc // of each diagnosis that runs here
}

// Open returns a server whose state is in a directory, which one process at a time can use, and goes on with the diagnoses that had not ended. It calls tools
// through mesh, which stays the caller's to close, after Close.
func Open(dir string, mesh grpc.ClientConnInterface, options Options) (*Server, error) {
	options.MaxRunning = cmp.Or(options.MaxRunning, 64)
	options.MaxSteps = cmp.Or(options.MaxSteps, 64)
	options.MaxProgress = cmp.Or(options.MaxProgress, 200)
	options.MaxEvidenceBytes = cmp.Or(options.MaxEvidenceBytes, 64<<10)
	options.CallTimeout = cmp.Or(options.CallTimeout, 30*time.Second)
	options.Poll = cmp.Or(options.Poll, time.Second)
	options.Retention = cmp.Or(options.Retention, 30*24*time.Hour)
	if options.Planner == nil {
		options.Planner = Rules{}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	store, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{store: store, mesh: mesh, options: options, cancel: make(map[string]context.CancelCauseFunc)}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.working, s.stop = context.WithCancelCause(context.Background())
	ids, err := store.running(s.working)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read diagnoses of %q: %w", dir, err), store.close())
	}
	for _, id := range ids {
		options.Logger.Info("diagnosis goes on", "diagnosis", id)
		s.launch(id)
	}
	s.runs.Go(s.prune)
	return s, nil
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { incidentsv1.RegisterIncidentServiceServer(r, s) }

// Drain ends the watches that are running with UNAVAILABLE and the cursor to go on from, so that a graceful stop need not wait for readers. New ones end at
// once too, and no diagnosis is started any more.
func (s *Server) Drain() { s.drain() }

// Close stops the work on diagnoses, which goes on at the next Open, waits for it, and closes the store. The gRPC server must have stopped.
func (s *Server) Close() error {
	s.drain()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop(errStopping)
	s.runs.Wait()
	return s.store.close()
}

// errStopping is the cause by which diagnoses stop when the service does.
var errStopping = errors.New("the service is stopping")

// launch begins or goes on with a diagnosis.
func (s *Server) launch(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.cancel[id] != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(s.working)
	s.cancel[id] = cancel
	s.runs.Go(func() {
		s.diagnose(ctx, id)
		s.mu.Lock()
		delete(s.cancel, id)
		s.mu.Unlock()
		cancel(nil)
	})
}

// prune forgets old diagnoses, now and then.
func (s *Server) prune() {
	ticker := time.NewTicker(time.Hour)
	defer ticker.Stop()
	for {
		n, err := s.store.prune(s.working, time.Now().Add(-s.options.Retention))
		switch {
		case s.working.Err() != nil:
			return
		case err != nil:
			s.options.Logger.Error("old diagnoses cannot be removed", "error", err)
		case n > 0:
			s.options.Logger.Info("old diagnoses removed", "count", n)
		}
		select {
		case <-ticker.C:
		case <-s.working.Done():
			return
		}
	}
}

// StartDiagnosis implements the contract.
func (s *Server) StartDiagnosis(ctx context.Context, req *incidentsv1.StartDiagnosisRequest) (*incidentsv1.Diagnosis, error) {
	duration, err := checkStart(req)
	if err != nil {
		return nil, err
	}
	if s.draining.Err() != nil {
		return nil, statusOf(ctx, s.options.Logger, errStopping)
	}
	caller, _ := backendauth.FromContext(ctx)
	now := time.Now().UTC()
	r := &record{
		Diagnosis: &incidentsv1.Diagnosis{
			Incident:   req.GetIncident(),
			Service:    req.GetService(),
			Symptom:    req.GetSymptom(),
			State:      incidentsv1.Diagnosis_STATE_RUNNING,
			CreateTime: timestamppb.New(now),
			Deadline:   timestamppb.New(now.Add(duration)),
			Principal:  caller.ID,
		},
		id:        randomHex(16),
		tenant:    caller.Tenant,
		requestID: req.GetRequestId(),
		Trace:     traceOf(ctx),
		Remediate: req.GetRemediate(),
		Duration:  duration,
	}
	r.Name, r.TraceId = "diagnoses/"+r.id, r.Trace.ID
	created := &incidentsv1.DiagnosisEvent{
		EventType:  eventTaskCreated,
		OccurredAt: timestamppb.New(now),
		Message:    fmt.Sprintf("diagnosis of incident %s: %s, %s", r.Incident, r.Service, cmp.Or(clip(r.Symptom, maxText), "no symptom was named")),
	}
	kept, fresh, err := s.store.start(ctx, r, created, s.options.MaxRunning)
	if err != nil {
		return nil, statusOf(ctx, s.options.Logger, err)
	}
	if !fresh && (kept.Service != r.Service || kept.Symptom != r.Symptom || kept.Remediate != r.Remediate || kept.Duration != r.Duration) {
		return nil, newStatus(codes.AlreadyExists, fmt.Sprintf("incident: %s with this request_id was asked for with another service, symptom, remediate or max_duration; "+
			"give another request_id for another diagnosis", kept.Incident), info(reasonConflict, "name", kept.Name))
	}
	if fresh {
		s.launch(kept.id)
	}
	return kept.Diagnosis, nil
}

// checkStart refuses what the contract forbids, and returns how long the diagnosis may take.
func checkStart(req *incidentsv1.StartDiagnosisRequest) (time.Duration, error) {
	if !incidentPattern.MatchString(req.GetIncident()) {
		return 0, invalid("incident", fmt.Sprintf("%q is not %s; letters, digits, dots, dashes and underscores, at most 64, such as inc-42", clip(req.GetIncident(), 80), incidentPattern))
	}
	if !servicePattern.MatchString(req.GetService()) {
		return 0, invalid("service", fmt.Sprintf("%q is not %s; the service's name as in its logs and metrics, such as checkout", clip(req.GetService(), 80), servicePattern))
	}
	if n := utf8.RuneCountInString(req.GetRequestId()); n > maxRequestID {
		return 0, invalid("request_id", fmt.Sprintf("%d characters are more than %d", n, maxRequestID))
	}
	if n := len(req.GetSymptom()); n > maxSymptom {
		return 0, invalid("symptom", fmt.Sprintf("%d bytes are more than %d; say it in a sentence", n, maxSymptom))
	}
	if req.GetMaxDuration() == nil {
		return defaultDuration, nil
	}
	if err := req.GetMaxDuration().CheckValid(); err != nil {
		return 0, invalid("max_duration", "is not a valid duration; use seconds, such as 900s")
	}
	d := req.GetMaxDuration().AsDuration()
	if d < minDuration || d > maxDuration {
		return 0, invalid("max_duration", fmt.Sprintf("%s is not between %s and %s", d, minDuration, maxDuration))
	}
	return d, nil
}

// GetDiagnosis implements the contract.
func (s *Server) GetDiagnosis(ctx context.Context, req *incidentsv1.GetDiagnosisRequest) (*incidentsv1.Diagnosis, error) {
	r, err := s.find(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return r.Diagnosis, nil
}

// find returns a diagnosis that the caller may know of, by its name.
func (s *Server) find(ctx context.Context, name string) (*record, error) {
	match := namePattern.FindStringSubmatch(name)
	if match == nil {
		return nil, invalid("name", fmt.Sprintf("%q is not diagnoses/{diagnosis} with an id of 32 hex digits, as StartDiagnosis answers it", clip(name, 80)))
	}
	caller, _ := backendauth.FromContext(ctx)
	r, err := s.store.get(ctx, caller.Tenant, match[1])
	if err != nil {
		return nil, statusOf(ctx, s.options.Logger, err)
	}
	return r, nil
}

// ListDiagnoses implements the contract.
func (s *Server) ListDiagnoses(ctx context.Context, req *incidentsv1.ListDiagnosesRequest) (*incidentsv1.ListDiagnosesResponse, error) {
	size := req.GetPageSize()
	if size < 0 || size > maxPageSize {
		return nil, invalid("page_size", fmt.Sprintf("%d is not in 0 to %d", size, maxPageSize))
	}
	size = cmp.Or(size, defaultPageSize)
	after := pageToken{incident: req.GetIncident(), created: math.MaxInt64}
	if req.GetPageToken() != "" {
		var err error
		if after, err = parsePageToken(req.GetPageToken()); err != nil {
			return nil, invalid("page_token", err.Error())
		}
		if after.incident != req.GetIncident() {
			return nil, invalid("page_token", "is of another request; repeat incident as it was")
		}
	}
	caller, _ := backendauth.FromContext(ctx)
	records, err := s.store.list(ctx, caller.Tenant, req.GetIncident(), after.created, after.id, int(size)+1)
	if err != nil {
		return nil, statusOf(ctx, s.options.Logger, err)
	}
	resp := &incidentsv1.ListDiagnosesResponse{}
	for i, r := range records {
		if i == int(size) {
			last := records[i-1]
			resp.NextPageToken = pageToken{incident: req.GetIncident(), created: last.CreateTime.AsTime().UnixNano(), id: last.id}.String()
			break
		}
		resp.Diagnoses = append(resp.Diagnoses, r.Diagnosis)
	}
	return resp, nil
}

// cancelPatience is how long CancelDiagnosis waits for the end that it has asked for.
const cancelPatience = 5 * time.Second

// errCancelled is the cause by which a diagnosis stops that was cancelled.
var errCancelled = errors.New("the diagnosis was cancelled")

// CancelDiagnosis implements the contract.
func (s *Server) CancelDiagnosis(ctx context.Context, req *incidentsv1.CancelDiagnosisRequest) (*incidentsv1.Diagnosis, error) {
	r, err := s.find(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	r, err = s.store.update(ctx, r.id, func(c *change) error {
		c.Cancelled = true
		return nil
	})
	if err != nil {
		return nil, statusOf(ctx, s.options.Logger, err)
	}
	// It is kept: what runs it here ends it, and if this process is killed first the next one does.
	s.mu.Lock()
	if cancel := s.cancel[r.id]; cancel != nil {
		cancel(errCancelled)
	}
	s.mu.Unlock()
	patience := time.NewTimer(cancelPatience)
	defer patience.Stop()
	for !r.ended() {
		changed, release := s.store.changed(r.id)
		if r, err = s.find(ctx, req.GetName()); err != nil {
			release()
			return nil, err
		}
		if r.ended() {
			release()
			break
		}
		select {
		case <-changed:
			continue
		case <-patience.C:
		case <-ctx.Done():
		case <-s.draining.Done():
		}
		release()
		break
	}
	return r.Diagnosis, nil
}
