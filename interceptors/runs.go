package interceptors

import "time"

// RunOptions are what holds for runs of tasks in place of what holds for other calls.
type RunOptions struct {
	// MaxTimeout caps the time of one run, unless the method says otherwise. Default 24 hours. A run has the deadline of its task besides.
	MaxTimeout time.Duration
}

// atSubmission are the policies that a call passes when it becomes a task, and not again when it runs: what it has paid or been granted.
var atSubmission = map[string]bool{"in-flight": true, "shed": true, "rate limit": true, approvalName: true, taskName: true}

// Runs returns those of the policies of Default that the runs of tasks pass, with the same state. Whatever may have changed since the call was
// submitted is asked again: scopes, rules, quarantine, the contract. What the call has paid or been granted is not: rate limits and its
// approval.
func Runs(policies []Policy, o Options) []Policy {
	o = o.withDefaults()
	limit := o.Task.Runs.MaxTimeout
	if limit <= 0 {
		limit = 24 * time.Hour
	}
	o.Timeout, o.MaxTimeout, o.StreamTimeout, o.MaxStreamTimeout = limit, limit, limit, limit
	var out []Policy
	for _, p := range policies {
		switch {
		case atSubmission[p.Name]:
		case p.Name == "deadline":
			out = append(out, Deadline(o))
		default:
			out = append(out, p)
		}
	}
	return out
}
