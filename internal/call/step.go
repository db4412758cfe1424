package call

import "time"

// Stage is an interceptor's place in the chain of a method. All calls of the method share it.
type Stage struct {
	// Name is the interceptor's.
	Name string
	// In and Out say at which end of the interceptor the clock is read. Where it is not, the time is that of the reading before: nothing can have taken any
	// since then. A reading is cheap, but a dozen interceptors would make two dozen.
	In, Out bool
}

// Step is what one interceptor did with a call. A call has a dozen of them in its own memory, so they are small.
type Step struct {
	*Stage
	// At is the time from the call's start until the call reached it, Back until the call left it again; zero if it has not.
	At, Back time.Duration
	decision *Decision // most have none
}

// Decision is what an interceptor decided about a call.
type Decision struct {
	// Verdict is a word such as "allowed", "refused", "hit"; "" if there was nothing to decide.
	Verdict string
	// Detail says why, for people. It holds nothing secret.
	Detail string
}

// Decided returns what the interceptor has decided.
func (s *Step) Decided() Decision {
	if s.decision == nil {
		return Decision{}
	}
	return *s.decision
}

// steps is the room for the steps of most calls, so that they cost no allocation.
type steps struct {
	taken   [12]Step
	decided [2]Decision
	used    int           // of decided
	clock   time.Duration // the last reading, from the call's start
}

// Enter notes that the call has reached an interceptor, and returns the step for Leave. It is not inlined, nor is Leave, since what calls
// them is on the stack of a call that waits.
//
//go:noinline
func (c *Call) Enter(s *Stage) int {
	if c.Steps == nil {
		c.Steps = c.steps.taken[:0]
	}
	if s.In {
		c.steps.clock = time.Since(c.Start)
	}
	c.Steps = append(c.Steps, Step{Stage: s, At: c.steps.clock})
	return len(c.Steps) - 1
}

// Leave notes that the call has left the interceptor again.
//
//go:noinline
func (c *Call) Leave(step int) {
	s := &c.Steps[step]
	if s.Out {
		c.steps.clock = time.Since(c.Start)
	}
	s.Back = c.steps.clock
}

// Decide notes what the named interceptor has decided, in the step that it has taken.
func (c *Call) Decide(name, verdict, detail string) {
	for i := len(c.Steps) - 1; i >= 0; i-- {
		s := &c.Steps[i]
		if s.Name != name {
			continue
		}
		if s.decision == nil {
			s.decision = c.steps.decision()
		}
		*s.decision = Decision{verdict, detail}
		return
	}
}

func (s *steps) decision() *Decision {
	if s.used == len(s.decided) {
		return new(Decision)
	}
	s.used++
	return &s.decided[s.used-1]
}
