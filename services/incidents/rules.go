package incidents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
	runbooksv1 "github.com/toolway/toolway/gen/agentops/runbooks/v1"
	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
)

// Rules is the planner that needs no model. For the service with the symptom it looks at the workload (triage), then at the same time at its errors in the logs,
// its metrics and the runbooks. Where most errors name another service it looks at that one in the same way, and so on. It weighs what was found, looks for a runbook
// of the likeliest cause, and if a restart is what mends the likeliest cause, and the diagnosis may remediate, proposes one, and then watches whether the errors cease.
//
// It knows services by one name: the value of a label of their metrics and of a field of their logs, and the workload's id. The zero value works.
type Rules struct {
	// Window is how far back rates and logs are looked at. Default: 5 minutes.
	Window time.Duration
	// Label is the label of metrics, and Field the field of logs, that name the service. Default: service.
	Label, Field string
	// Peer is the field of logs that names the service that was called when an error happened. Default: peer.
	Peer string
	// MaxHops is how many services are looked at. Default: 3.
	MaxHops int
	// Threshold is the confidence from which on a restart is proposed. Default: 0.7.
	Threshold float64
}

// Agents of the workflow, as the contract names them.
const (
	agentTriage   = "triage"
	agentLogs     = "logs"
	agentMetrics  = "metrics"
	agentRunbooks = "runbooks"
	agentRemedy   = "remedy"
)

// What a step of Rules asks; with the service it is the step's note.
const (
	askWorkload = "workload"
	askLogs     = "errors in the logs"
	askRunbooks = "runbooks"
	askCure     = "cure"
	askRestart  = "restart"
	askAfter    = "error ratio after the restart"
)

// maxChecks is how often errors are looked at after a restart, a quarter of the window apart.
const maxChecks = 10

// signal is a question about metrics with one number as the answer.
type signal struct {
	name  string
	query string // SELECTOR stands for the service, WINDOW for the range
}

// The signals are of metric names that Prometheus' own client libraries and guides use, but for the pool's.
var (
	signalErrors = signal{"error ratio", `sum(rate(http_requests_total{SELECTOR,code=~"5.."}[WINDOW])) / sum(rate(http_requests_total{SELECTOR}[WINDOW]))`}
	signals      = []signal{
		signalErrors,
		{"latency", `histogram_quantile(0.95, sum by (le) (rate(http_request_duration_seconds_bucket{SELECTOR}[WINDOW])))`},
		{"restarts", `sum(changes(process_start_time_seconds{SELECTOR}[1h]))`},
		{"connections", `max(connections_in_use{SELECTOR} / connections_max{SELECTOR})`},
	}
)

func (r Rules) defaults() Rules {
	r.Window = cmp.Or(r.Window, 5*time.Minute)
	r.Label, r.Field, r.Peer = cmp.Or(r.Label, "service"), cmp.Or(r.Field, "service"), cmp.Or(r.Peer, "peer")
	r.MaxHops = cmp.Or(r.MaxHops, 3)
	r.Threshold = cmp.Or(r.Threshold, 0.7)
	return r
}

// Plan implements [Planner]. It works by what the steps' notes say, so it holds nothing.
func (r Rules) Plan(_ context.Context, c Case) (Decision, error) {
	r = r.defaults()
	views := []*view{r.see(c, c.Service)}
	for {
		v := views[len(views)-1]
		if v.workload == nil {
			return r.decide(c, views, r.triage(v))
		}
		if v.logs == nil {
			return r.decide(c, views, r.gather(c, v)...)
		}
		next := v.blames(r.Peer)
		if next == "" || len(views) == r.MaxHops || slices.ContainsFunc(views, func(v *view) bool { return v.service == next }) {
			break
		}
		views = append(views, r.see(c, next))
	}
	verdict := r.weigh(views)
	last := views[len(views)-1]
	if last.cure == nil && verdict.words != "" {
		step := last.step(agentRunbooks, "runbooks_search", askCure, "runbooks for the likeliest cause", &runbooksv1.SearchRunbooksRequest{Query: last.service + " " + verdict.words, Service: last.service, Limit: 3})
		return Decision{Findings: verdict.findings, Steps: []Step{step}}, nil
	}
	switch {
	case c.Action == nil && c.Remediate && verdict.restart && verdict.findings[0].Confidence >= r.Threshold:
		return Decision{Findings: verdict.findings, Steps: []Step{r.restart(last, verdict.findings[0].GetCause())}}, nil
	case c.Action.GetOutcome() == actionSucceeded:
		if step, ok := r.verify(c, verdict.findings[0]); ok {
			return Decision{Findings: verdict.findings, Steps: []Step{step}}, nil
		}
	}
	return Decision{Findings: verdict.findings, Summary: summary(c, verdict.findings[0])}, nil
}

// decide is a decision to look further; what is known so far is weighed where something is.
func (r Rules) decide(_ Case, views []*view, steps ...Step) (Decision, error) {
	d := Decision{Steps: steps}
	if views[0].logs != nil {
		d.Findings = r.weigh(views).findings
	}
	return d, nil
}

func (r Rules) triage(v *view) Step {
	return v.step(agentTriage, "workloads_get", askWorkload, "what runs as "+v.service, &workloadsv1.GetWorkloadRequest{Name: "workloads/" + v.service})
}

// gather asks at the same time what logs, metrics and runbooks have.
func (r Rules) gather(c Case, v *view) []Step {
	// Logs arrive a little late, so the range ends a little ahead.
	steps := []Step{v.step(agentLogs, "logs_search", askLogs, "errors that "+v.service+" has logged", &logsv1.SearchLogsRequest{
		Query:     fmt.Sprintf(`%s:=%q level:i(error)`, r.Field, v.service),
		StartTime: timestamppb.New(c.Now.Add(-r.Window)),
		EndTime:   timestamppb.New(c.Now.Add(time.Minute)),
		PageSize:  50,
	})}
	for _, s := range signals {
		steps = append(steps, v.step(agentMetrics, "metrics_query", s.name, s.name+" of "+v.service, r.ask(s, v.service, c.Now)))
	}
	// A runbook is found by what it says; what the symptom says comes from outside and is cut to what the contract takes.
	query := strings.TrimSpace(clip(v.service+" "+c.Symptom, 400))
	return append(steps, v.step(agentRunbooks, "runbooks_search", askRunbooks, "runbooks for "+v.service, &runbooksv1.SearchRunbooksRequest{Query: query, Service: v.service, Limit: 3}))
}

func (r Rules) ask(s signal, service string, at time.Time) *metricsv1.QueryInstantRequest {
	query := strings.NewReplacer("SELECTOR", fmt.Sprintf("%s=%q", r.Label, service), "WINDOW", promDuration(r.Window)).Replace(s.query)
	return &metricsv1.QueryInstantRequest{Query: query, Time: timestamppb.New(at), MaxSeries: 1}
}

// promDuration is a duration as PromQL writes it.
func promDuration(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// restart proposes to restart what a view is of.
func (r Rules) restart(v *view, why string) Step {
	return v.step(agentRemedy, "workloads_restart", askRestart, "restart "+v.service+", once it is approved",
		&workloadsv1.RestartWorkloadRequest{Name: v.workload.GetName(), Generation: v.workload.GetGeneration(), Reason: why})
}

// verify looks, after the restart, at the error ratio of the service with the symptom until it has fallen, and adds to the finding what it saw.
func (r Rules) verify(c Case, finding *incidentsv1.Finding) (Step, bool) {
	v := &view{service: c.Service}
	checks := 0
	for i, step := range c.Steps {
		if step.Note != v.note(askAfter) {
			continue
		}
		checks++
		ratio, known := number(step)
		fallen := known && ratio < errorsMatter
		if !fallen && checks < maxChecks {
			continue
		}
		text := fmt.Sprintf("the error ratio of %s did not fall after the restart: %s", c.Service, percent(ratio, known))
		if fallen {
			text = fmt.Sprintf("the error ratio of %s fell to %s after the restart", c.Service, percent(ratio, known))
		}
		finding.Evidence = append(finding.Evidence, evidence(c.Steps[i], text))
		return Step{}, false
	}
	step := v.step(agentRemedy, "metrics_query", askAfter, "whether the errors of "+c.Service+" cease", r.ask(signalErrors, c.Service, time.Time{}))
	step.Delay = r.Window / 4
	return step, true
}

// summary is the last sentence of a diagnosis.
func summary(c Case, first *incidentsv1.Finding) string {
	text := fmt.Sprintf("%s (confidence %.2f)", first.GetCause(), first.GetConfidence())
	if c.Action == nil {
		return text
	}
	text += fmt.Sprintf("; restart of %s: %s", c.Action.GetWorkload(), c.Action.GetOutcome())
	if n := len(first.GetEvidence()); n > 0 && c.Action.GetOutcome() == actionSucceeded {
		text += "; " + first.GetEvidence()[n-1].GetSummary()
	}
	return text
}

// view is what is known of one service; nil where it was not asked yet.
type view struct {
	service  string
	workload *workloadsv1.Workload // empty if it could not be read
	logs     *Step
	entries  []*logsv1.LogEntry
	more     bool  // there are further entries
	runbooks *Step // of the symptom
	cure     *Step // runbooks of the likeliest cause
	triage   Step
	numbers  map[string]Step // by signal
}

// see reads what the steps so far say of a service.
func (r Rules) see(c Case, service string) *view {
	v := &view{service: service, numbers: map[string]Step{}}
	for i := range c.Steps {
		step := &c.Steps[i]
		ask, about, _ := strings.Cut(step.Note, " of ")
		if about != service || step.Result == nil {
			continue
		}
		switch ask {
		case askWorkload:
			v.workload, v.triage = &workloadsv1.Workload{}, *step
			read(*step, v.workload)
		case askLogs:
			v.logs = step
			var found logsv1.SearchLogsResponse
			read(*step, &found)
			v.entries, v.more = found.GetEntries(), found.GetNextPageToken() != ""
		case askRunbooks:
			v.runbooks = step
		case askCure:
			v.cure = step
		default:
			v.numbers[ask] = *step
		}
	}
	return v
}

// note marks a step, so that it is found again.
func (v *view) note(ask string) string { return ask + " of " + v.service }

func (v *view) step(agent, tool, ask, message string, request proto.Message) Step {
	if q, ok := request.(*metricsv1.QueryInstantRequest); ok && q.GetTime().AsTime().Equal(time.Time{}) {
		q.Time = nil // when it is asked
	}
	arguments, err := compact(request)
	if err != nil {
		arguments = json.RawMessage("{}") // a request of our own has a JSON form; without one the tool says what is missing
	}
	return Step{Agent: agent, Tool: tool, Arguments: arguments, Message: message, Note: v.note(ask)}
}

// blames returns the other service that most of the errors name; "" if there is none.
func (v *view) blames(field string) string {
	counts := map[string]int{}
	for _, e := range v.entries {
		if peer := e.GetFields()[field]; servicePattern.MatchString(peer) && peer != v.service {
			counts[peer]++
		}
	}
	var most string
	for peer, n := range counts {
		if n > counts[most] || n == counts[most] && peer < most {
			most = peer
		}
	}
	if counts[most]*2 < len(v.entries) {
		return ""
	}
	return most
}

// read reads a step's reply into m, and leaves m empty if there is none.
func read(step Step, m proto.Message) {
	if step.Result == nil || step.Result.Code != codes.OK {
		return
	}
	if err := decode.Unmarshal(step.Result.Reply, m); err != nil {
		proto.Reset(m)
	}
}

// number reads the one value that a query of metrics has answered; false if there is none, or none that counts.
func number(step Step) (float64, bool) {
	var found metricsv1.QueryInstantResponse
	read(step, &found)
	for _, series := range found.GetSeries() {
		for _, sample := range series.GetSamples() {
			if v := sample.GetValue(); v == v && v-v == 0 { // neither NaN nor infinite
				return v, true
			}
		}
	}
	return 0, false
}
