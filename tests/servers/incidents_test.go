package servers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"

	"github.com/toolway/toolway/tests/internal/agent"
	"github.com/toolway/toolway/tests/internal/run"
)

// TestIncidents puts the mesh before the incident service, which calls the one tool that there is, workloads, through it: a diagnosis is started by each door and read
// and watched through every other, and errors are the same. The whole story, with all tools, approval and audit, is tests/demo.
func TestIncidents(t *testing.T) {
	t.Parallel()
	door := freeAddr(t)
	workloads := startService(t, "workloads", "--workload", "checkout=exec sleep 1000")
	incidents := startService(t, "incidents", "--mesh", door)
	mesh := run.Start(t, "--backend", "workloads="+workloads, "--backend", "incidents="+incidents, "--grpc-addr", door)
	ctx := patience(t)
	client := incidentsv1.NewIncidentServiceClient(run.Dial(t, mesh.GRPC))
	a, err := agent.NewHTTP(ctx, mesh.URL("/mcp"), agent.V20260728, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()

	starts := map[string]func() (*incidentsv1.Diagnosis, error){
		"gRPC": func() (*incidentsv1.Diagnosis, error) {
			return client.StartDiagnosis(ctx, &incidentsv1.StartDiagnosisRequest{Incident: "inc-grpc", Service: "checkout", Symptom: "orders fail"})
		},
		"HTTP": func() (*incidentsv1.Diagnosis, error) {
			code, b, err := postJSON(ctx, mesh.URL("/v1/diagnoses"), `{"incident":"inc-http","service":"checkout","symptom":"orders fail"}`)
			if err != nil || code != http.StatusOK {
				return nil, fmt.Errorf("%d %s %w", code, b, err)
			}
			return readDiagnosis(b)
		},
		"MCP": func() (*incidentsv1.Diagnosis, error) {
			res, err := agent.Call(ctx, a, "incidents_start_diagnosis", map[string]any{"incident": "inc-mcp", "service": "checkout", "symptom": "orders fail"}, nil)
			if err != nil || res.IsError {
				return nil, fmt.Errorf("%+v %w", res, err)
			}
			return readDiagnosis(res.StructuredContent)
		},
	}
	for name, begin := range starts {
		t.Run("started by "+name, func(t *testing.T) {
			d, err := begin()
			if err != nil {
				t.Fatal(err)
			}
			events := watchDiagnosis(ctx, t, client, d.GetName(), "")
			if n := len(events); n < 10 || events[0].GetEventType() != "task_created" || events[n-1].GetEventType() != "task_completed" {
				t.Errorf("events: %v", events)
			}
			if !slices.ContainsFunc(events, func(e *incidentsv1.DiagnosisEvent) bool { return e.GetTool() == "workloads_get" && e.GetCode() == "OK" }) {
				t.Errorf("events: %v, want that workloads was asked through the mesh", events)
			}
			want, err := client.GetDiagnosis(ctx, &incidentsv1.GetDiagnosisRequest{Name: d.GetName()})
			if err != nil || want.GetState() != incidentsv1.Diagnosis_STATE_COMPLETED || !strings.Contains(fmt.Sprint(want.GetFindings()), "could not be asked: UNIMPLEMENTED") {
				t.Fatalf("diagnosis: %v, %v, want it completed, knowing what is lacking", want, err)
			}
			if got, err := readDiagnosis([]byte(fetchText(t, mesh.URL("/v1/"+d.GetName())))); err != nil || !proto.Equal(got, want) {
				t.Errorf("HTTP: %v, %v, want what gRPC gives", got, err)
			}
			res, err := agent.Call(ctx, a, "incidents_get_diagnosis", map[string]any{"name": d.GetName()}, nil)
			if err != nil || res.IsError {
				t.Fatalf("MCP: %+v, %v", res, err)
			}
			if got, err := readDiagnosis(res.StructuredContent); err != nil || !proto.Equal(got, want) {
				t.Errorf("MCP: %v, %v, want what gRPC gives", got, err)
			}
			// The stream from the third event on, as each door has it.
			third := events[2].GetEventId()
			rest := watchDiagnosis(ctx, t, client, d.GetName(), third)
			if len(rest) != len(events)-3 || rest[0].GetEventId() != events[3].GetEventId() {
				t.Errorf("after the third: %v", rest)
			}
			if got := sse(ctx, t, mesh.URL("/v1/"+d.GetName()+"/events"), third); len(got) != len(rest)+1 || got[0] != rest[0].GetEventId()+" "+rest[0].GetEventType() || got[len(got)-1] != " end" {
				t.Errorf("SSE after the third: %q, want %d events and the end", got, len(rest))
			}
			res, err = agent.Call(ctx, a, "incidents_watch_diagnosis", map[string]any{"name": d.GetName(), "cursor": third}, nil)
			if err != nil || res.IsError || strings.Count(string(res.StructuredContent), `"eventId"`) != len(rest) {
				t.Errorf("MCP: watch = %+v, %v, want %d events", res, err, len(rest))
			}
		})
	}

	t.Run("errors", func(t *testing.T) {
		_, err := client.StartDiagnosis(ctx, &incidentsv1.StartDiagnosisRequest{Incident: "a b", Service: "checkout"})
		if status.Code(err) != codes.InvalidArgument || !slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool {
			bad, ok := d.(*errdetails.BadRequest)
			return ok && bad.GetFieldViolations()[0].GetField() == "incident"
		}) {
			t.Errorf("gRPC: %v with %v, want INVALID_ARGUMENT that names the field", err, status.Convert(err).Details())
		}
		if code, b, err := postJSON(ctx, mesh.URL("/v1/diagnoses"), `{"incident":"a b","service":"checkout"}`); err != nil || code != http.StatusBadRequest || !strings.Contains(string(b), `"field":"incident"`) {
			t.Errorf("HTTP: %d %s %v, want 400 that names the field", code, b, err)
		}
		if res, err := agent.Call(ctx, a, "incidents_start_diagnosis", map[string]any{"incident": "a b", "service": "checkout"}, nil); err != nil || !res.IsError || !strings.Contains(res.Text(), "incident") {
			t.Errorf("MCP: %+v, %v, want a tool error that names the field", res, err)
		}
		// Without a request_id the contract makes no key, so the service itself says that there is another diagnosis; with one the mesh does.
		_, err = client.StartDiagnosis(ctx, &incidentsv1.StartDiagnosisRequest{Incident: "inc-grpc", Service: "payment"})
		if status.Code(err) != codes.AlreadyExists {
			t.Errorf("another request for the same incident: %v, want ALREADY_EXISTS", err)
		}
		for _, service := range []string{"checkout", "payment"} {
			_, err = client.StartDiagnosis(ctx, &incidentsv1.StartDiagnosisRequest{Incident: "inc-key", RequestId: "1", Service: service})
		}
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(fmt.Sprint(status.Convert(err).Details()), "IDEMPOTENCY_KEY_REUSED") {
			t.Errorf("another request with the same key: %v, want IDEMPOTENCY_KEY_REUSED", err)
		}
		resp, err := http.Get(mesh.URL("/v1/diagnoses/" + strings.Repeat("0", 32) + "/events"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("events of a diagnosis that is none: %s", resp.Status)
		}
	})
}

func readDiagnosis(b []byte) (*incidentsv1.Diagnosis, error) {
	d := &incidentsv1.Diagnosis{}
	return d, protojson.Unmarshal(b, d)
}

func postJSON(ctx context.Context, url, body string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// watchDiagnosis reads events to the end of the stream.
func watchDiagnosis(ctx context.Context, t *testing.T, client incidentsv1.IncidentServiceClient, name, cursor string) (events []*incidentsv1.DiagnosisEvent) {
	t.Helper()
	stream, err := client.WatchDiagnosis(ctx, &incidentsv1.WatchDiagnosisRequest{Name: name, Cursor: cursor})
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
}

// sse reads server-sent events to the end of the stream, each as its id and type.
func sse(ctx context.Context, t *testing.T, url, last string) (events []string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", last)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	id, kind := "", ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		field, value, _ := strings.Cut(lines.Text(), ":")
		switch value = strings.TrimPrefix(value, " "); field {
		case "id":
			id = value
		case "event":
			kind = value
		case "":
			if kind != "" {
				events = append(events, id+" "+kind)
			}
			id, kind = "", ""
		}
	}
	return events
}
