package task

import (
	"bytes"
	"context"
	"errors"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/toolway/toolway/internal/call"
)

// What google.longrunning is, as far as tasks need it.
const (
	operationType   = "google.longrunning.Operation"
	getOperation    = "/google.longrunning.Operations/GetOperation"
	cancelOperation = "/google.longrunning.Operations/CancelOperation"
)

// operation is a google.longrunning.Operation.
type operation struct {
	name string
	done bool
	err  *status.Status // nil if it is under way, or has succeeded
}

func parseOperation(wire []byte) (o operation, ok bool) {
	for len(wire) > 0 {
		num, typ, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return o, false
		}
		wire = wire[n:]
		m := protowire.ConsumeFieldValue(num, typ, wire)
		if m < 0 {
			return o, false
		}
		switch value := wire[:m]; {
		case num == 1 && typ == protowire.BytesType:
			name, _ := protowire.ConsumeBytes(value)
			o.name = string(name)
		case num == 3 && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			o.done = v != 0
		case num == 4 && typ == protowire.BytesType:
			raw, _ := protowire.ConsumeBytes(value)
			st := new(spb.Status)
			if proto.Unmarshal(raw, st) != nil {
				return o, false
			}
			o.err = status.FromProto(st)
		}
		wire = wire[m:]
	}
	return o, true
}

// operation returns the name of the operation that the backend has answered with, if it is under way and can be asked for, and the error of one
// that has failed.
func (r *run) operation(a *answer) (string, error) {
	if r.method.Kind().Server || a.cut || string(r.method.Desc.Output().FullName()) != operationType {
		return "", nil
	}
	replies := split(a.blob)
	if len(replies) != 1 {
		return "", nil
	}
	o, ok := parseOperation(replies[0])
	switch {
	case !ok:
		return "", nil
	case o.done:
		return "", o.err.Err()
	case r.tasks.conf.Catalog.Snapshot().Method(getOperation) == nil:
		return "", nil
	}
	return o.name, nil
}

// The time between two looks at an operation.
const (
	firstPoll = 250 * time.Millisecond
	lastPoll  = 10 * time.Second
)

// await waits until the operation is done, and makes it the answer. The operation is noted in the record, so that another worker goes on from there.
func (r *run) await(ctx context.Context, a *answer, name string) (call.Outcome, error) {
	if _, err := r.tasks.change(ctx, r.job.Owner, r.job.ID, func(rec *record) error {
		if rec.Worker != r.name || rec.Operation == name || rec.State.Final() {
			return errUnchanged
		}
		rec.Operation = name
		return nil
	}); err != nil {
		r.tasks.log.Warn("the operation of a task is not noted", "task", r.job.ID, "operation", name, "error", err)
	}
	// A request to cancel goes to the backend, and ends the waiting only when the backend has heeded it.
	waiting, cancel := context.WithDeadline(ctx, r.record.Deadline)
	defer cancel()
	asked, wait := false, firstPoll
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		ended := r.ctx.Done()
		if asked {
			ended = nil
		}
		select {
		case <-timer.C:
		case <-waiting.Done():
			return call.Unknown, status.Error(codes.DeadlineExceeded, "the operation was not done by the task's deadline")
		case <-ended:
			if !errors.Is(context.Cause(r.ctx), errCancel) {
				return call.Unknown, status.FromContextError(r.ctx.Err()).Err()
			}
			asked = true
			_, _ = r.operate(waiting, cancelOperation, name) // a backend without it goes on, and so do we
			wait = firstPoll
		case <-r.pool.base.Done():
			return call.Unknown, status.FromContextError(context.Canceled).Err()
		}
		wire, err := r.operate(waiting, getOperation, name)
		switch code := status.Code(err); {
		case err == nil:
			if o, ok := parseOperation(wire); ok && o.done {
				*a = answer{max: a.max}
				a.add(wire)
				return call.Answered, o.err.Err()
			}
		case code == codes.Unavailable, code == codes.DeadlineExceeded, code == codes.ResourceExhausted, code == codes.Canceled:
		case a.messages > 0: // it may not be asked for: what the method has answered is the answer
			return call.Answered, nil
		default:
			return call.Answered, err
		}
		wait = min(wait*3/2, lastPoll)
		timer.Reset(wait)
	}
}

// operate calls a method of google.longrunning.Operations at the task's backend, which takes the operation's name.
func (r *run) operate(ctx context.Context, method, name string) ([]byte, error) {
	m := r.tasks.conf.Catalog.Snapshot().Method(method)
	if m == nil {
		return nil, status.Error(codes.Unimplemented, "the backend has no "+method[1:])
	}
	ctx, cancel := context.WithTimeout(call.WithTarget(ctx, r.method.Backend.Name), time.Minute)
	defer cancel()
	c := call.New(m, r.spec.Door)
	c.Task, c.Principal, c.Forward = r.record.ID, r.spec.Principal, r.spec.forward()
	delete(c.Forward, call.KeyHeader)
	var reply []byte
	stream := call.NewStream(ctx, c, call.One(call.NewFrame(m.Desc.Input(), protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name))), func(f *call.Frame) error {
		reply = bytes.Clone(f.Bytes())
		return nil
	}, nil)
	return reply, r.pool.handler(stream)
}
