package logs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	logsv2 "github.com/toolway/toolway/gen/agentops/logs/v2"
)

// Limits of a search, as the contract states them.
const (
	defaultPageSize = 100
	maxPageSize     = 1000
	maxPageBytes    = 1 << 20
	defaultRange    = time.Hour
	// DefaultMaxRange is the longest time range of one search.
	DefaultMaxRange = 31 * 24 * time.Hour
)

// Options configures [New]. The zero value works.
type Options struct {
	// MaxRange is the longest time range of one search. Default: [DefaultMaxRange].
	MaxRange time.Duration
	// SearchTimeout ends a search whose caller set no earlier deadline. Default: 30 s.
	SearchTimeout time.Duration
	// Redact takes secrets and personal data out of results. Default (nil): those that [NewRedactor] has for both kinds; an empty
	// [Redactor] takes nothing out.
	Redact *Redactor
	// Logger gets what callers are not told. Default: nothing is logged.
	Logger *slog.Logger
}

// Server implements agentops.logs.v1.LogService. Its methods may be called concurrently.
type Server struct {
	logsv1.UnimplementedLogServiceServer

	engine   Engine
	options  Options
	draining context.Context
	drain    context.CancelFunc
}

// New returns a server on engine, which stays the caller's to close, after the gRPC server has stopped.
func New(engine Engine, options Options) *Server {
	options.MaxRange = cmp.Or(options.MaxRange, DefaultMaxRange)
	options.SearchTimeout = cmp.Or(options.SearchTimeout, 30*time.Second)
	if options.Redact == nil {
		options.Redact = &Redactor{slices.Concat(builtin[RedactSecrets], builtin[RedactPII])}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{engine: engine, options: options}
	s.draining, s.drain = context.WithCancel(context.Background())
	return s
}

// Register adds the service to a gRPC server, in both versions of its contract.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	logsv1.RegisterLogServiceServer(r, s)
	logsv2.RegisterLogServiceServer(r, &serverV2{server: s})
}

// Drain ends the tails that are running with UNAVAILABLE and the cursor to go on from, so that a graceful stop need not wait
// for callers who would follow for ever. New tails end at once too.
func (s *Server) Drain() { s.drain() }

// SearchLogs implements the contract.
func (s *Server) SearchLogs(ctx context.Context, req *logsv1.SearchLogsRequest) (*logsv1.SearchLogsResponse, error) {
	entries, next, err := s.search(ctx, req, "")
	if err != nil {
		return nil, err
	}
	resp := &logsv1.SearchLogsResponse{Entries: make([]*logsv1.LogEntry, len(entries)), NextPageToken: next}
	for i, entry := range entries {
		resp.Entries[i] = s.entry(entry)
	}
	return resp, nil
}

// search returns a page and the token of the next. and is a filter that has to hold too; empty for none.
func (s *Server) search(ctx context.Context, req *logsv1.SearchLogsRequest, and string) (entries []Entry, next string, err error) {
	selection, after, err := s.selection(req, and, time.Now())
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.SearchTimeout)
	defer cancel()
	entries, more, err := page(ctx, s.engine, selection, after)
	if err != nil {
		return nil, "", statusOf(ctx, s.options.Logger, err)
	}
	if more {
		next = pageToken{
			request: fingerprint(req, and),
			start:   selection.Start.UnixNano(),
			end:     selection.End.UnixNano(),
			last:    entries[len(entries)-1].key(),
		}.String()
	}
	return entries, next, nil
}

// entry is an entry as callers get it.
func (s *Server) entry(e Entry) *logsv1.LogEntry {
	e, redactions := s.options.Redact.entry(e)
	p := e.proto()
	p.Redactions = int32(redactions)
	return p
}

// selection checks a request and says what to select, and after which entry.
func (s *Server) selection(req *logsv1.SearchLogsRequest, and string, now time.Time) (Selection, *key, error) {
	size := req.GetPageSize()
	if size < 0 || size > maxPageSize {
		return Selection{}, nil, invalid("page_size", fmt.Sprintf("%d is not in 0 to %d", size, maxPageSize))
	}
	order := direction(req.GetOrder())
	if _, known := logsv1.Order_name[int32(order)]; !known {
		return Selection{}, nil, invalid("order", fmt.Sprintf("%d is not a known order; use ORDER_NEWEST_FIRST or ORDER_OLDEST_FIRST", order))
	}
	start, end, err := s.timeRange(req, now)
	if err != nil {
		return Selection{}, nil, err
	}
	var after *key
	if req.GetPageToken() != "" {
		token, err := parsePageToken(req.GetPageToken())
		if err != nil {
			return Selection{}, nil, invalid("page_token", err.Error())
		}
		if token.request != fingerprint(req, and) {
			return Selection{}, nil, invalid("page_token", "is of another request; repeat query, start_time, end_time and order as they were")
		}
		start, end, after = time.Unix(0, token.start), time.Unix(0, token.end), &token.last
		sound := !start.Before(earliest) && !end.After(latest) && end.Sub(start) <= s.options.MaxRange &&
			token.start <= token.last.time && token.last.time < token.end
		if !sound {
			return Selection{}, nil, invalid("page_token", errPageToken.Error())
		}
	}
	filter, err := s.filter(req.GetQuery(), and, end)
	if err != nil {
		return Selection{}, nil, invalid("query", err.Error())
	}
	return Selection{
		Filter:      filter,
		Start:       start,
		End:         end,
		At:          end,
		NewestFirst: order == logsv1.Order_ORDER_NEWEST_FIRST,
		Limit:       int(cmp.Or(size, defaultPageSize)),
		MaxBytes:    maxPageBytes,
	}, after, nil
}

// filter checks a query and makes the engine's filter of it, and of another one that has to hold too unless it is empty.
func (s *Server) filter(query, and string, now time.Time) (string, error) {
	compile := func(query string) (string, error) { return parseFilter(query, now) }
	if c, ok := s.engine.(Compiler); ok {
		compile = c.Compile
	}
	// The query alone first: a mistake is then at its own place.
	filter, err := compile(query)
	if err != nil || and == "" {
		return filter, err
	}
	if strings.TrimSpace(query) == "" {
		return compile(and)
	}
	return compile("(" + query + ") and " + and)
}

func (s *Server) timeRange(req *logsv1.SearchLogsRequest, now time.Time) (start, end time.Time, err error) {
	end = now
	if req.GetEndTime() != nil {
		if end, err = moment("end_time", req.GetEndTime()); err != nil {
			return start, end, err
		}
	}
	start = end.Add(-defaultRange)
	if req.GetStartTime() != nil {
		if start, err = moment("start_time", req.GetStartTime()); err != nil {
			return start, end, err
		}
	}
	if end.Before(start) {
		return start, end, invalid("end_time", fmt.Sprintf("%s is before start_time %s; swap them", stamp(end), stamp(start)))
	}
	if span := end.Sub(start); span > s.options.MaxRange {
		return start, end, invalid("start_time", fmt.Sprintf("the range of %s is longer than %s; search in parts", span.Round(time.Second), s.options.MaxRange))
	}
	return start, end, nil
}

// The times that engines can tell apart: nanoseconds since 1970 in 64 bits, with room to compute.
var (
	earliest = time.Unix(0, 0)
	latest   = time.Unix(0, math.MaxInt64).Add(-DefaultMaxRange)
)

// moment reads a time that a caller gave.
func moment(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if err := t.CheckValid(); err != nil {
		return time.Time{}, invalid(field, "is not a valid timestamp; use RFC 3339, such as 2026-01-31T12:00:00Z")
	}
	at := t.AsTime()
	if at.Before(earliest) || at.After(latest) {
		return time.Time{}, invalid(field, fmt.Sprintf("%s is not between %s and %s", stamp(at), stamp(earliest), stamp(latest)))
	}
	return at, nil
}
