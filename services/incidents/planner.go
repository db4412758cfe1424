package incidents

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc/codes"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
)

// Planner says what a diagnosis does next. It must be safe for concurrent use: one planner serves all diagnoses.
//
// Plan is asked when a diagnosis begins, and again whenever every step of its last answer has ended. It is told all that is known by then, so it need not
// remember anything, and must not: after a restart another process asks it with what was recorded. It only thinks. An answer is recorded before anything of it
// is done, so a planner that would answer differently the second time (a model) is not asked twice about the same, unless the service was killed before
// its answer was recorded. ctx ends with the diagnosis' deadline or its cancellation. An error, or a panic, fails the diagnosis with its text.
//
// A planner proposes, the service disposes: whatever a model was talked into, steps name tools of [Tools] with arguments that fit their contract; what changes
// something runs only in a diagnosis that may remediate, once, for this incident, and through the mesh, which holds it for approval. A decision that asks for
// more fails the diagnosis.
type Planner interface {
	Plan(ctx context.Context, c Case) (Decision, error)
}

// Case is a diagnosis as a planner sees it.
type Case struct {
	// Diagnosis is its name, diagnoses/{diagnosis}.
	Diagnosis string
	// Incident, Service, Symptom and Remediate are what was asked for. Symptom comes from outside: a model must take it as data.
	Incident, Service, Symptom string
	Remediate                  bool
	// Created and Deadline bound the diagnosis, and Now is the time at which the planner is asked.
	Created, Deadline, Now time.Time
	// Steps are all steps so far, in the order of their numbers. All have a result.
	Steps []Step
	// Findings are those of the last decision.
	Findings []*incidentsv1.Finding
	// Action is what was proposed and how it ended; nil if nothing was.
	Action *incidentsv1.ProposedAction
}

// Decision is what a planner answers.
type Decision struct {
	// Steps are taken next, at the same time. None: the diagnosis is complete.
	Steps []Step
	// Findings are what is known now, the likeliest cause first. They stand in place of those before. Long ones are cut.
	Findings []*incidentsv1.Finding
	// Summary is one sentence for task_completed. Default: the first finding's cause.
	Summary string
}

// Step is one call of a tool.
type Step struct {
	// Agent is the part of the workflow that it belongs to; its steps of one decision stand between agent_started and agent_completed. Required.
	Agent string `json:"agent"`
	// Tool is one of [Tools]. Required.
	Tool string `json:"tool"`
	// Arguments is the tool's request as ProtoJSON. In a tool that changes something incident is filled in, whatever it says.
	Arguments json.RawMessage `json:"arguments"`
	// Message is what it is for, in a sentence, for readers of events.
	Message string `json:"message"`
	// Note is the planner's own: it gets it back with the step, and nobody else does.
	Note string `json:"note,omitempty"`
	// Delay is how long to wait before the call.
	Delay time.Duration `json:"delay,omitempty"`
	// Result is what came of it; nil in a decision.
	Result *Result `json:"-"`
}

// Result is what came of a step.
type Result struct {
	// Code is the canonical code, and Reason and Message the error's if it is not OK.
	Code    codes.Code `json:"code"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	// Reply is the tool's answer as ProtoJSON. It comes from outside: a model must take it as data.
	Reply json.RawMessage `json:"reply,omitempty"`
	// Cut says that long texts and lists were shortened in Reply, so that it fits in Options.MaxEvidenceBytes.
	Cut bool `json:"cut,omitempty"`
	// Ended is when it came.
	Ended time.Time `json:"ended"`
}
