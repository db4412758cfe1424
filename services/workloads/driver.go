package workloads

import (
	"context"
	"errors"
	"time"
)

// Driver runs workloads in one place: the processes of a machine, the deployments of a cluster. Its methods may be called concurrently.
type Driver interface {
	// Observe returns the workload of that name as it is now, or all in the order of their names for "". It is never older than what an Apply
	// that has returned has done. A workload that is not there is left out. [ErrUnreachable] if the place does not answer.
	Observe(ctx context.Context, name string) ([]Observed, error)

	// Apply has the place want what w says, unless it does already, and returns the revision of that. It does not wait until it is so. Repeating it is harmless: replicas are told
	// apart by the generation of the restart that they come from. [ErrChanged] if the place wants something else by now than at w.Revision and than w; nothing was done then.
	Apply(ctx context.Context, w Wanted) (revision string, err error)

	// Changed gets a value whenever something may have changed; several changes may be one value.
	Changed() <-chan struct{}
}

// Wanted is what shall run.
type Wanted struct {
	// Name of the workload.
	Name string
	// Replicas is how many shall run.
	Replicas int32
	// Restart is the generation that the last restart made; replicas that come from an earlier one are to be replaced. 0: there was none.
	Restart int64
	// Revision is that of the place when this was decided.
	Revision string
}

// Observed is a workload as a driver sees it.
type Observed struct {
	// Name is [a-zA-Z0-9][a-zA-Z0-9._-]*, at most 253 characters.
	Name string
	// Labels, as the place has them.
	Labels map[string]string
	// Revision says what the place itself has been told to want: it changes when somebody else changes that, and with Apply.
	Revision string
	// Replicas is how many the place itself wants, at Revision.
	Replicas int32
	// Ready is how many run and are ready.
	Ready int32
	// Settled says that all that was applied is so: every replica comes from the last restart and is ready, and there is none too many.
	Settled bool
	// Failing says that replicas fail again and again.
	Failing bool
	// Crashes counts replicas that ended without being asked to, since the driver watches.
	Crashes int64
	// LastExit is what the last end said.
	LastExit string
	// Started is when the youngest replica began; zero if none runs.
	Started time.Time
}

var (
	// ErrUnreachable is returned by a driver or store that is elsewhere and does not answer.
	ErrUnreachable = errors.New("does not answer")
	// ErrChanged is returned by a driver whose place wants something else by now.
	ErrChanged = errors.New("somebody else changed the workload meanwhile")
	// ErrGone is returned by a driver whose place does not have the workload.
	ErrGone = errors.New("the workload is not there any more")
)
