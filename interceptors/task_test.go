package interceptors_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
)

// submitted is what was handed to a submitter.
type submitted struct {
	requests []string
	err      error
}

func (s *submitted) Submit(_ context.Context, c *call.Call, request []byte) (string, error) {
	s.requests = append(s.requests, c.Key+"|"+string(request))
	return "t1", s.err
}

func TestCallBecomesATask(t *testing.T) {
	s := new(submitted)
	o := interceptors.Options{Logger: discard(), Task: interceptors.TaskOptions{Submitter: s}}
	never := func(any, grpc.ServerStream) error { return errors.New("the backend was called") }
	for _, name := range []string{"UnaryCall", "StreamingOutputCall"} {
		for range 2 { // the same key again is the submitter's to know
			c := call.New(method(t, name), call.HTTP)
			c.Async, c.Forward, c.Principal = &call.Async{}, metadata.Pairs(call.KeyHeader, "k"), identity.Anonymous
			replies, err := run(t.Context(), c, nil, never, interceptors.Default(o)...)
			if err != nil || c.Task != "t1" {
				t.Errorf("%s: task %q, %v", name, c.Task, err)
			}
			if streams := name != "UnaryCall"; streams && len(replies) != 0 || !streams && (len(replies) != 1 || len(replies[0]) != 0) {
				t.Errorf("%s: replies %q: want an empty one, or none of a stream", name, replies)
			}
		}
	}
	if len(s.requests) != 4 || s.requests[0] != "k|" {
		t.Errorf("submitted %q: want four calls with their key", s.requests)
	}
	// Who does not want a task, and methods that cannot be one, reach the backend.
	for _, name := range []string{"UnaryCall", "FullDuplexCall"} {
		c := call.New(method(t, name), call.HTTP)
		if name == "FullDuplexCall" {
			c.Async = &call.Async{}
		}
		if _, err := run(t.Context(), c, nil, echo, interceptors.Default(o)...); name == "UnaryCall" && err != nil || c.Task != "" {
			t.Errorf("%s: task %q, %v: want none", name, c.Task, err)
		}
	}
	s.err = call.Error(codes.ResourceExhausted, "TASKS_FULL", "full")
	c := call.New(method(t, "UnaryCall"), call.HTTP)
	c.Async = &call.Async{}
	if _, err := run(t.Context(), c, nil, never, interceptors.Default(o)...); status.Code(err) != codes.ResourceExhausted || c.Task != "" {
		t.Errorf("a full store: %v, task %q", err, c.Task)
	}
}

func TestTaskSupport(t *testing.T) {
	o := interceptors.Options{Logger: discard(), Task: interceptors.TaskOptions{Submitter: new(submitted)}}
	for _, c := range []struct {
		support catalog.TaskSupport
		async   bool
		want    codes.Code
		task    string
	}{
		{catalog.TaskOptional, false, codes.OK, ""},
		{catalog.TaskForbidden, true, codes.OK, ""},
		{catalog.TaskRequired, true, codes.OK, "t1"},
		{catalog.TaskRequired, false, codes.FailedPrecondition, ""},
	} {
		m := *method(t, "UnaryCall")
		m.Policy.Task = c.support
		one := call.New(&m, call.GRPC)
		if c.async {
			one.Async = &call.Async{}
		}
		if _, err := run(t.Context(), one, nil, echo, interceptors.Task(o)); status.Code(err) != c.want || one.Task != c.task {
			t.Errorf("%s, asked for: %v: %v, task %q; want %v and %q", c.support, c.async, err, one.Task, c.want, c.task)
		}
	}
}
