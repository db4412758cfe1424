package runbooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	runbooksv1 "github.com/toolway/toolway/gen/agentops/runbooks/v1"
	"github.com/toolway/toolway/services/internal/token"
)

// Limits of requests, as the contract states them.
const (
	defaultPageSize = 100
	maxPageSize     = 1000
	maxQueryBytes   = 512
	defaultMatches  = 5
	maxMatches      = 50
)

const (
	resourceType = "runbooks.agentops.dev/Runbook"
	collection   = "runbooks/"
	// wildcard stands for every runbook.
	wildcard = "-"
	// pageTokenLayout is that of page tokens.
	pageTokenLayout = 'n'
)

// Server implements agentops.runbooks.v1.RunbookService. Its methods may be called concurrently.
type Server struct {
	runbooksv1.UnimplementedRunbookServiceServer

	library  *Library
	logger   *slog.Logger
	draining context.Context
	drain    context.CancelFunc
}

// NewServer returns a server on library, which stays the caller's to close, after the gRPC server has stopped. logger gets what callers are not
// told; nil logs nothing.
func NewServer(library *Library, logger *slog.Logger) *Server {
	s := &Server{library: library, logger: logger}
	if logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.draining, s.drain = context.WithCancel(context.Background())
	return s
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { runbooksv1.RegisterRunbookServiceServer(r, s) }

// Drain ends the watches that are running with UNAVAILABLE, so that a graceful stop need not wait for callers who would watch for ever. New
// ones end at once too.
func (s *Server) Drain() { s.drain() }

// GetRunbook implements the contract.
func (s *Server) GetRunbook(_ context.Context, req *runbooksv1.GetRunbookRequest) (*runbooksv1.Runbook, error) {
	name, err := parseName(req.GetName(), "")
	if err != nil {
		return nil, err
	}
	r, revision := s.library.get(name)
	if r == nil {
		return nil, notFound(name)
	}
	p := r.proto(revision)
	p.Content = r.Content
	return p, nil
}

// ListRunbooks implements the contract.
func (s *Server) ListRunbooks(_ context.Context, req *runbooksv1.ListRunbooksRequest) (*runbooksv1.ListRunbooksResponse, error) {
	size := req.GetPageSize()
	if size < 0 || size > maxPageSize {
		return nil, invalid("page_size", fmt.Sprintf("%d is not in 0 to %d", size, maxPageSize))
	}
	after, err := parsePageToken(req.GetPageToken())
	if err != nil {
		return nil, invalid("page_token", err.Error())
	}
	found, more, revision := s.library.list(after, int(cmp.Or(size, defaultPageSize)))
	resp := &runbooksv1.ListRunbooksResponse{Runbooks: make([]*runbooksv1.Runbook, len(found))}
	for i, r := range found {
		resp.Runbooks[i] = r.proto(revision)
	}
	if more {
		resp.NextPageToken = pageToken(found[len(found)-1].Name)
	}
	return resp, nil
}

// SearchRunbooks implements the contract.
func (s *Server) SearchRunbooks(ctx context.Context, req *runbooksv1.SearchRunbooksRequest) (*runbooksv1.SearchRunbooksResponse, error) {
	words := req.GetQuery()
	switch {
	case strings.TrimSpace(words) == "":
		return nil, invalid("query", "is empty; give a few words, such as the symptom or the alert's name")
	case len(words) > maxQueryBytes:
		return nil, invalid("query", fmt.Sprintf("has %d bytes; at most %d are served", len(words), maxQueryBytes))
	case len(req.GetService()) > maxItemBytes:
		return nil, invalid("service", fmt.Sprintf("has %d bytes; at most %d are served", len(req.GetService()), maxItemBytes))
	case req.GetLimit() < 0 || req.GetLimit() > maxMatches:
		return nil, invalid("limit", fmt.Sprintf("%d is not in 0 to %d", req.GetLimit(), maxMatches))
	}
	found, revision, err := s.library.search(ctx, words, req.GetService(), int(cmp.Or(req.GetLimit(), defaultMatches)))
	if err != nil {
		return nil, failed(ctx, s.logger, err)
	}
	resp := &runbooksv1.SearchRunbooksResponse{Matches: make([]*runbooksv1.SearchRunbooksResponse_Match, len(found))}
	for i, m := range found {
		resp.Matches[i] = &runbooksv1.SearchRunbooksResponse_Match{Runbook: m.runbook.proto(revision), Passages: m.passages, Score: m.score}
	}
	return resp, nil
}

// WatchRunbooks implements the contract.
func (s *Server) WatchRunbooks(req *runbooksv1.WatchRunbooksRequest, stream grpc.ServerStreamingServer[runbooksv1.WatchRunbooksResponse]) error {
	name, err := parseName(req.GetName(), wildcard)
	if err != nil {
		return err
	}
	if name == wildcard {
		if req.GetEtag() != "" {
			return invalid("etag", "is of one runbook and name is of all; leave it out, and list once the stream stands")
		}
		name = ""
	}
	w, current, stop := s.library.watch(name)
	defer stop()
	// Whoever gets the header knows that nothing from here on is missed.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	if known := req.GetEtag(); known != "" && (current == nil || current.ETag != known) {
		if err := stream.Send((change{name, current}).proto()); err != nil {
			return err
		}
	}
	for {
		select {
		case <-w.wake:
			for _, c := range w.take() {
				if err := stream.Send(c.proto()); err != nil {
					return err
				}
			}
		case <-stream.Context().Done():
			return context.Cause(stream.Context())
		case <-s.draining.Done():
			return stopping()
		}
	}
}

// proto is the runbook without its content.
func (r *Runbook) proto(revision string) *runbooksv1.Runbook {
	return &runbooksv1.Runbook{
		Name: collection + r.Name, Title: r.Title, Services: r.Services, Alerts: r.Alerts, Tags: r.Tags,
		Etag: r.ETag, UpdateTime: timestamppb.New(r.Updated), Revision: revision,
	}
}

func (c change) proto() *runbooksv1.WatchRunbooksResponse {
	if c.now == nil {
		return &runbooksv1.WatchRunbooksResponse{Name: collection + c.name, Change: runbooksv1.WatchRunbooksResponse_CHANGE_REMOVED}
	}
	return &runbooksv1.WatchRunbooksResponse{Name: collection + c.name, Change: runbooksv1.WatchRunbooksResponse_CHANGE_WRITTEN, Etag: c.now.ETag}
}

// parseName reads a resource name; also is what else may stand for the runbook.
func parseName(resource, also string) (string, error) {
	name, ok := strings.CutPrefix(resource, collection)
	switch {
	case !ok:
		return "", invalid("name", fmt.Sprintf("%.100q is no runbook's name; use runbooks/{runbook}, such as runbooks/disk-full", resource))
	case name == also && also != "":
		return name, nil
	case name == "" || len(name) > maxNameBytes || misnamed(name) >= 0:
		return "", invalid("name", fmt.Sprintf("%.100q is no runbook's name; one has letters, digits, spaces and - _ . and begins with a letter or digit", resource))
	}
	return name, nil
}

func pageToken(after string) string {
	return token.Encode(pageTokenLayout, []byte(after))
}

// parsePageToken returns the name that a page begins after; "" for the first page.
func parsePageToken(s string) (after string, err error) {
	if s == "" {
		return "", nil
	}
	b, err := token.Decode(pageTokenLayout, s)
	if err != nil || len(b) == 0 || len(b) > maxNameBytes || !utf8.Valid(b) {
		return "", errors.New("not a page token of this service; use next_page_token as it is")
	}
	return string(b), nil
}
