package incidents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
	"github.com/toolway/toolway/services/incidents"
)

// script is a planner that says what it was given to say, one decision after the other: by what is recorded, as every planner has to.
type script []incidents.Decision

func (s script) Plan(_ context.Context, c incidents.Case) (incidents.Decision, error) {
	said := 0
	for _, d := range s {
		if len(d.Steps) == 0 || len(c.Steps) < said+len(d.Steps) {
			return d, nil
		}
		said += len(d.Steps)
	}
	return incidents.Decision{Summary: "the script is over"}, nil
}

func step(agent, tool, arguments string) incidents.Step {
	return incidents.Step{Agent: agent, Tool: tool, Arguments: json.RawMessage(arguments), Message: "as the script has it"}
}

func restart() incidents.Step {
	return step("remedy", "workloads_restart", `{"name":"workloads/payment","generation":"7","incident":"another","reason":"the script says so"}`)
}

// Another planner drives the same service: its steps are taken, at the same time where it says so, and it sees what came of them.
func TestPlanner(t *testing.T) {
	f := startTools(t)
	f.on("GetRunbook", nil)
	saw := make(chan incidents.Case, 10)
	planner := plannerFunc(func(ctx context.Context, c incidents.Case) (incidents.Decision, error) {
		saw <- c
		return script{
			{Steps: []incidents.Step{step("reader", "logs_search", `{"query":"*"}`), step("reader", "runbooks_get", `{"name":"runbooks/x"}`)}, Findings: []*incidentsv1.Finding{{Cause: "a guess", Confidence: 7}}},
			{Steps: []incidents.Step{restart()}},
			{Findings: []*incidentsv1.Finding{nil, {Cause: strings.Repeat("x", 10_000), Confidence: 0.5}}, Summary: "it is mended"},
		}.Plan(ctx, c)
	})
	s := start(t, t.TempDir(), f.conn, incidents.Options{Planner: planner})
	d := s.await(t, s.begin(t, request()).GetName(), incidentsv1.Diagnosis_STATE_COMPLETED)
	first, second, third := <-saw, <-saw, <-saw
	if first.Incident != "inc-42" || first.Service != "checkout" || first.Symptom != "orders fail" || !first.Remediate || first.Diagnosis != d.GetName() || len(first.Steps) != 0 || first.Deadline.Before(first.Now) {
		t.Errorf("first case: %+v", first)
	}
	if len(second.Steps) != 2 || second.Steps[0].Result.Code != codes.OK || !strings.Contains(string(second.Steps[0].Result.Reply), "no free connection") || second.Steps[1].Result.Code != codes.NotFound || second.Findings[0].GetConfidence() != 1 {
		t.Errorf("second case: %+v", second)
	}
	if third.Action.GetOutcome() != "succeeded" || !strings.Contains(string(third.Steps[2].Result.Reply), "STATE_SUCCEEDED") {
		t.Errorf("third case: %+v", third)
	}
	if len(d.GetFindings()) != 1 || len(d.GetFindings()[0].GetCause()) > 500 {
		t.Errorf("findings: %v, want one that is cut", d.GetFindings())
	}
	if r := f.got("RestartWorkload")[0].request.(*workloadsv1.RestartWorkloadRequest); r.GetIncident() != "inc-42" || !strings.HasPrefix(r.GetReason(), "the script says so") {
		t.Errorf("restart: %v, want it for this incident whatever the planner wrote", r)
	}
	events := s.follow(t, d.GetName(), "")
	gapless(t, events, 0)
	if last := events[len(events)-1]; last.GetMessage() != "it is mended" {
		t.Errorf("last event: %v", last)
	}
}

type plannerFunc func(context.Context, incidents.Case) (incidents.Decision, error)

func (f plannerFunc) Plan(ctx context.Context, c incidents.Case) (incidents.Decision, error) {
	return f(ctx, c)
}

// What a planner may not do fails the diagnosis, and nothing of it is done.
func TestPlannerIsHeldToBounds(t *testing.T) {
	steps := func(list ...incidents.Step) plannerFunc {
		return func(context.Context, incidents.Case) (incidents.Decision, error) {
			return incidents.Decision{Steps: list}, nil
		}
	}
	tests := []struct {
		name      string
		planner   plannerFunc
		remediate bool
		want      string
	}{
		{"a change without leave", steps(restart()), false, "may not remediate"},
		{"two changes at once", steps(restart(), restart()), true, "second action"},
		{"a change after another", func(ctx context.Context, c incidents.Case) (incidents.Decision, error) {
			return script{{Steps: []incidents.Step{restart()}}, {Steps: []incidents.Step{restart()}}}.Plan(ctx, c)
		}, true, "second action"},
		{"no such tool", steps(step("a", "shell", `{}`)), true, `there is no tool "shell"`},
		{"no such argument", steps(step("a", "logs_search", `{"shell":"rm"}`)), true, "arguments of logs_search"},
		{"no JSON", steps(step("a", "logs_search", `{`)), true, "arguments of logs_search"},
		{"no agent", steps(step("", "logs_search", `{}`)), true, "agent"},
		{"too many steps", func(context.Context, incidents.Case) (incidents.Decision, error) {
			return incidents.Decision{Steps: []incidents.Step{step("a", "workloads_list", `{}`), step("a", "workloads_list", `{}`)}}, nil
		}, true, "it wants 6 steps, 5 are allowed"},
		{"an error", func(context.Context, incidents.Case) (incidents.Decision, error) {
			return incidents.Decision{}, errors.New("the model is away")
		}, true, "the model is away"},
		{"a panic", func(context.Context, incidents.Case) (incidents.Decision, error) { panic("oh") }, true, "it panicked: oh"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := startTools(t)
			s := start(t, t.TempDir(), f.conn, incidents.Options{Planner: test.planner, MaxSteps: 5})
			req := request()
			req.Remediate = test.remediate
			d := s.await(t, s.begin(t, req).GetName(), incidentsv1.Diagnosis_STATE_FAILED)
			if !strings.Contains(d.GetFailure(), test.want) {
				t.Errorf("error %q, want %q", d.GetFailure(), test.want)
			}
			if n, want := len(f.got("RestartWorkload")), 0; n > 1 || n == 1 && test.name != "a change after another" {
				t.Errorf("%d restarts, want %d", n, want)
			}
			gapless(t, s.follow(t, d.GetName(), ""), 0)
		})
	}
}

// A planner that is slow is told when its answer is not wanted any more.
func TestPlannerIsCancelled(t *testing.T) {
	thinks := make(chan struct{})
	planner := plannerFunc(func(ctx context.Context, _ incidents.Case) (incidents.Decision, error) {
		close(thinks)
		<-ctx.Done()
		return incidents.Decision{}, ctx.Err()
	})
	s := start(t, t.TempDir(), startTools(t).conn, incidents.Options{Planner: planner})
	d := s.begin(t, request())
	select {
	case <-thinks:
	case <-time.After(patience):
		t.Fatal("it is not asked")
	}
	if _, err := s.CancelDiagnosis(within(t), &incidentsv1.CancelDiagnosisRequest{Name: d.GetName()}); err != nil {
		t.Fatal(err)
	}
	s.await(t, d.GetName(), incidentsv1.Diagnosis_STATE_CANCELLED)
}

func TestTools(t *testing.T) {
	got := incidents.Tools()
	if !slices.IsSorted(got) || !slices.Contains(got, "logs_search") || !slices.Contains(got, "workloads_restart") {
		t.Errorf("tools: %q", got)
	}
}

// With Rules the likeliest cause is what the evidence says, and only what a restart mends is restarted.
func TestRules(t *testing.T) {
	type reply struct{ tool, note, reply string }
	healthy := []reply{
		{"workloads_get", "workload of web", `{"name":"workloads/web","generation":"3","state":"STATE_RUNNING"}`},
		{"logs_search", "errors in the logs of web", `{}`},
		{"metrics_query", "error ratio of web", `{"series":[{"samples":[{"value":"NaN"}]}]}`},
		{"metrics_query", "latency of web", `{"series":[{"samples":[{"value":0.01}]}]}`},
		{"metrics_query", "restarts of web", `{"series":[{"samples":[{"value":0}]}]}`},
		{"metrics_query", "connections of web", `{}`},
		{"runbooks_search", "runbooks of web", `{}`},
		{"runbooks_search", "cure of web", `{"matches":[{"runbook":{"name":"runbooks/other","services":["db"]}},{"runbook":{"name":"runbooks/web","services":["web"]}}]}`},
	}
	with := func(changes ...reply) []reply {
		out := slices.Clone(healthy)
		for _, c := range changes {
			i := slices.IndexFunc(out, func(r reply) bool { return r.note == c.note })
			out[i].reply = c.reply
		}
		return out
	}
	value := func(note string, v float64) reply {
		return reply{note: note + " of web", reply: fmt.Sprintf(`{"series":[{"samples":[{"value":%v}]}]}`, v)}
	}
	logged := func(message string) reply {
		return reply{note: "errors in the logs of web", reply: fmt.Sprintf(`{"entries":[{"message":%q,"fields":{"level":"ERROR"}}]}`, message)}
	}
	tests := []struct {
		name     string
		steps    []reply
		cause    string
		least    float64
		most     float64
		restarts bool
	}{
		{"nothing", healthy, "nothing that was asked", 0.1, 0.1, false},
		{"all connections in use, and errors", with(value("connections", 1), value("error ratio", 0.5)), "web runs out of connections", 0.7, 0.9, true},
		{"errors of memory, and errors", with(logged("cannot allocate: out of memory"), value("error ratio", 0.5), value("latency", 2)), "web runs out of connections", 0.7, 0.9, true},
		{"all connections in use, and nobody minds", with(value("connections", 1)), "web runs out of connections", 0.5, 0.69, false},
		{"it crashes", with(reply{note: "workload of web", reply: `{"generation":"3","state":"STATE_DEGRADED","crashes":"5","lastExit":"signal: killed"}`}, logged("panic: nil map"), value("error ratio", 0.5)), "web crashes", 0.8, 0.95, false},
		{"errors of no known kind", with(logged("no such customer"), value("error ratio", 0.5)), "web answers with errors", 0.3, 0.5, false},
		{"slow", with(value("latency", 3)), "web is slow", 0.4, 0.4, false},
		{"a workload that is not known", with(reply{note: "workload of web", reply: `{}`}, value("connections", 1), value("error ratio", 0.5)), "web runs out of connections", 0.7, 0.9, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := incidents.Case{Service: "web", Remediate: true, Now: time.Now()}
			for _, r := range test.steps {
				s := step("x", r.tool, `{}`)
				s.Note, s.Result = r.note, &incidents.Result{Reply: json.RawMessage(r.reply)}
				c.Steps = append(c.Steps, s)
			}
			d, err := incidents.Rules{}.Plan(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			first := d.Findings[0]
			if !strings.HasPrefix(first.GetCause(), test.cause) || first.GetConfidence() < test.least-1e-9 || first.GetConfidence() > test.most+1e-9 || len(first.GetEvidence()) == 0 {
				t.Errorf("finding: %v, want %q with %v to %v", first, test.cause, test.least, test.most)
			}
			if first.GetRunbook() != "runbooks/web" {
				t.Errorf("runbook %q, want the one that is about the service", first.GetRunbook())
			}
			if restarts := len(d.Steps) == 1 && d.Steps[0].Tool == "workloads_restart"; restarts != test.restarts {
				t.Errorf("steps: %v, want a restart: %t", d.Steps, test.restarts)
			}
		})
	}
}

// Whatever a tool answers, Rules decides something.
func FuzzRules(f *testing.F) {
	f.Add(`{"entries":[{"message":"m","fields":{"peer":"web"}}]}`, `{"series":[{"samples":[{"value":1}]}]}`, `{"generation":"1"}`)
	f.Add(`{`, `[]`, `null`)
	f.Fuzz(func(t *testing.T, logs, metrics, workload string) {
		c := incidents.Case{Service: "web", Remediate: true, Now: time.Now()}
		for note, reply := range map[string]string{"workload of web": workload, "errors in the logs of web": logs, "error ratio of web": metrics, "connections of web": metrics, "runbooks of web": logs} {
			s := step("x", "x", `{}`)
			s.Note, s.Result = note, &incidents.Result{Reply: json.RawMessage(reply)}
			c.Steps = append(c.Steps, s)
		}
		d, err := incidents.Rules{}.Plan(t.Context(), c)
		if err != nil || len(d.Findings) == 0 && len(d.Steps) == 0 {
			t.Errorf("Plan = %+v, %v", d, err)
		}
	})
}
