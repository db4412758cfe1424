package incidents

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	runbooksv1 "github.com/toolway/toolway/gen/agentops/runbooks/v1"
	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
)

// From where on a number matters.
const (
	errorsMatter      = 0.05 // of all requests
	latencyMatters    = 0.25 // seconds, the 95th percentile
	connectionsMatter = 0.9  // of those that there may be
	crashesMatter     = 1
	restartsMatter    = 3 // in an hour; one or two may be a deployment
)

// What errors say when something runs out, and when a process dies.
var (
	exhaustedText = regexp.MustCompile(`(?i)(connection|pool|descriptor|thread|goroutine|memory|heap|handle)s?\b.{0,80}(exhaust|leak|in use|too many|limit|timed? ?out|no free)|(exhaust|too many|no free|out of)\b.{0,40}(connection|pool|descriptor|file|thread|memory|handle)`)
	crashText     = regexp.MustCompile(`(?i)\b(panic|fatal|segmentation fault|stack overflow|unhandled exception)\b`)
)

// verdict is what the evidence comes to: at least one finding.
type verdict struct {
	findings []*incidentsv1.Finding
	restart  bool   // the first one is mended by a restart of the last service
	words    string // that a runbook of the first one may have
}

// weight is evidence and how much it says: 0 nothing, 1 all.
type weight struct {
	weight   float64
	evidence *incidentsv1.Evidence
}

// hypothesis is a cause, before it is weighed.
type hypothesis struct {
	cause   string
	words   string
	restart bool
	weights []weight
}

func (h *hypothesis) add(w float64, e *incidentsv1.Evidence) {
	h.weights = append(h.weights, weight{w, e})
}

// confidence treats pieces of evidence as independent, and leaves room for doubt.
func (h *hypothesis) confidence() float64 {
	doubt := 1.0
	for _, w := range h.weights {
		doubt *= 1 - w.weight
	}
	return min(1-doubt, 0.95)
}

// weigh turns what is known of the services, of which each is blamed by the one before, into causes of the last one's trouble. Whatever is found about the services
// before is evidence too: it says how the trouble shows.
func (r Rules) weigh(views []*view) verdict {
	last := views[len(views)-1]
	seen := last.look()
	chain := chain(views, r.Peer)

	exhausted := hypothesis{cause: last.service + " runs out of connections or memory and does not give them back", words: "pool exhausted leak memory", restart: true}
	crashes := hypothesis{cause: last.service + " crashes again and again", words: "crash restart panic killed"}
	broken := hypothesis{cause: last.service + " answers with errors, for a reason that the evidence does not show", words: "errors 5xx"}
	slow := hypothesis{cause: last.service + " is slow", words: "slow latency timeout"}

	if seen.full != nil {
		exhausted.add(0.6, seen.full)
	}
	if seen.exhausted != nil {
		exhausted.add(0.5, seen.exhausted)
	}
	if seen.crashed != nil {
		crashes.add(0.6, seen.crashed)
	}
	if seen.crashLogs != nil {
		crashes.add(0.4, seen.crashLogs)
	}
	if len(exhausted.weights)+len(crashes.weights) == 0 && (seen.errors != nil || seen.logs != nil) {
		broken.add(0.1, nil)
	}
	var found []*hypothesis
	for _, h := range []*hypothesis{&exhausted, &crashes, &broken} {
		if len(h.weights) == 0 {
			continue
		}
		if seen.errors != nil {
			h.add(0.3, seen.errors)
		} else if seen.logs != nil {
			h.add(0.15, seen.logs)
		}
		found = append(found, h)
	}
	if seen.slow != nil {
		if len(found) == 0 {
			slow.add(0.4, seen.slow)
			found = append(found, &slow)
		} else {
			found[0].add(0.15, seen.slow)
		}
	}
	for _, h := range found {
		for _, e := range chain {
			h.add(0.15, e)
		}
		if seen.steady != nil && h == &exhausted {
			h.add(0.05, seen.steady)
		}
	}
	slices.SortStableFunc(found, func(a, b *hypothesis) int { return cmp.Compare(b.confidence(), a.confidence()) })
	if len(found) == 0 {
		return verdict{findings: []*incidentsv1.Finding{nothing(last)}}
	}
	v := verdict{words: found[0].words, restart: found[0].restart && last.workload.GetGeneration() > 0}
	for i, h := range found {
		finding := &incidentsv1.Finding{Cause: h.cause, Confidence: h.confidence()}
		if match, e := last.runbook(); match != "" && i == 0 {
			finding.Runbook = match
			h.add(0, e)
		}
		for _, w := range h.weights {
			if w.evidence != nil {
				finding.Evidence = append(finding.Evidence, w.evidence)
			}
		}
		v.findings = append(v.findings, finding)
	}
	return v
}

// nothing is the finding where nothing speaks for any cause: it says what was asked in vain.
func nothing(v *view) *incidentsv1.Finding {
	f := &incidentsv1.Finding{Cause: "nothing that was asked about " + v.service + " shows a cause", Confidence: 0.1}
	for _, step := range v.all() {
		text := "nothing conspicuous"
		if step.Result.Code != codes.OK {
			text = fmt.Sprintf("could not be asked: %s %s", codeName(step.Result.Code), step.Result.Message)
		}
		f.Evidence = append(f.Evidence, evidence(step, text))
	}
	if match, e := v.runbook(); match != "" {
		f.Runbook, f.Evidence = match, append(f.Evidence, e)
	}
	return f
}

// all are the steps about a service.
func (v *view) all() []Step {
	steps := []Step{v.triage}
	for _, step := range []*Step{v.logs, v.runbooks, v.cure} {
		if step != nil {
			steps = append(steps, *step)
		}
	}
	for _, s := range signals {
		if step, ok := v.numbers[s.name]; ok {
			steps = append(steps, step)
		}
	}
	return slices.DeleteFunc(steps, func(s Step) bool { return s.Result == nil })
}

// chain says, for each service but the last, how its trouble leads to the next.
func chain(views []*view, field string) []*incidentsv1.Evidence {
	var out []*incidentsv1.Evidence
	for i, v := range views[:len(views)-1] {
		n := 0
		for _, e := range v.entries {
			if e.GetFields()[field] == views[i+1].service {
				n++
			}
		}
		out = append(out, evidence(*v.logs, fmt.Sprintf("%d of the last %d errors of %s are of calls to %s, such as: %s", n, len(v.entries), v.service, views[i+1].service, clip(v.entries[0].GetMessage(), 200))))
	}
	return out
}

// sight is what is conspicuous about a service; nil where nothing is.
type sight struct {
	errors, slow, full, crashed, logs, exhausted, crashLogs, steady *incidentsv1.Evidence
}

func (v *view) look() sight {
	var s sight
	if ratio, ok := number(v.numbers["error ratio"]); ok && ratio >= errorsMatter {
		s.errors = evidence(v.numbers["error ratio"], fmt.Sprintf("%s of the requests to %s fail", percent(ratio, true), v.service))
	}
	if seconds, ok := number(v.numbers["latency"]); ok && seconds >= latencyMatters {
		s.slow = evidence(v.numbers["latency"], fmt.Sprintf("95 %% of the requests to %s take up to %.2f s", v.service, seconds))
	}
	if ratio, ok := number(v.numbers["connections"]); ok && ratio >= connectionsMatter {
		s.full = evidence(v.numbers["connections"], fmt.Sprintf("%s of the connections that %s may have are in use", percent(ratio, true), v.service))
	}
	restarts, ok := number(v.numbers["restarts"])
	switch {
	case v.workload.GetCrashes() >= crashesMatter || v.workload.GetState() == workloadsv1.Workload_STATE_DEGRADED:
		s.crashed = evidence(v.triage, fmt.Sprintf("%s has ended %d times by itself, the last time with: %s", v.service, v.workload.GetCrashes(), clip(v.workload.GetLastExit(), 100)))
	case ok && restarts >= restartsMatter:
		s.crashed = evidence(v.numbers["restarts"], fmt.Sprintf("%s was started anew %.0f times within an hour", v.service, restarts))
	case ok && restarts == 0:
		s.steady = evidence(v.numbers["restarts"], v.service+" was not restarted within the hour, so what it holds has grown since")
	}
	if len(v.entries) == 0 {
		return s
	}
	s.logs = evidence(*v.logs, fmt.Sprintf("%s has logged %s, the newest: %s", v.service, count(len(v.entries), v.more), clip(v.entries[0].GetMessage(), 200)))
	for _, e := range v.entries {
		text := e.GetMessage() + " " + e.GetFields()["error"]
		if s.exhausted == nil && exhaustedText.MatchString(text) {
			s.exhausted = evidence(*v.logs, fmt.Sprintf("%s has logged %s, among them: %s", v.service, count(len(v.entries), v.more), clip(strings.TrimSpace(text), 200)))
		}
		if s.crashLogs == nil && crashText.MatchString(text) {
			s.crashLogs = evidence(*v.logs, fmt.Sprintf("%s has logged: %s", v.service, clip(strings.TrimSpace(text), 200)))
		}
	}
	return s
}

// runbook is the best match that is about the service, of the cause or else of the symptom, and what was found.
func (v *view) runbook() (name string, _ *incidentsv1.Evidence) {
	for _, step := range []*Step{v.cure, v.runbooks} {
		if step == nil {
			continue
		}
		var found runbooksv1.SearchRunbooksResponse
		read(*step, &found)
		for _, m := range found.GetMatches() {
			if slices.Contains(m.GetRunbook().GetServices(), v.service) {
				return m.GetRunbook().GetName(), evidence(*step, fmt.Sprintf("the runbook %q is about it", m.GetRunbook().GetTitle()))
			}
		}
	}
	return "", nil
}

func evidence(step Step, text string) *incidentsv1.Evidence {
	return &incidentsv1.Evidence{Tool: step.Tool, Summary: text, RequestJson: string(step.Arguments)}
}

func percent(ratio float64, known bool) string {
	if !known {
		return "not known"
	}
	return fmt.Sprintf("%.0f %%", ratio*100)
}

func count(n int, more bool) string {
	switch {
	case more:
		return fmt.Sprintf("more than %d errors", n)
	case n == 1:
		return "one error"
	}
	return fmt.Sprintf("%d errors", n)
}
