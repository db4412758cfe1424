package incidents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	logsv1 "github.com/toolway/toolway/gen/agentops/logs/v1"
	metricsv1 "github.com/toolway/toolway/gen/agentops/metrics/v1"
	runbooksv1 "github.com/toolway/toolway/gen/agentops/runbooks/v1"
	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
)

// tool is a method of another service that a step may call.
type tool struct {
	method   string
	request  proto.Message
	response proto.Message
	// kind is what a tool that changes something does; unspecified: it reads.
	kind workloadsv1.Action_Kind
}

func (t tool) changes() bool { return t.kind != workloadsv1.Action_KIND_UNSPECIFIED }

var toolbox = map[string]tool{
	"logs_search":             {method: logsv1.LogService_SearchLogs_FullMethodName, request: &logsv1.SearchLogsRequest{}, response: &logsv1.SearchLogsResponse{}},
	"metrics_query":           {method: metricsv1.MetricService_QueryInstant_FullMethodName, request: &metricsv1.QueryInstantRequest{}, response: &metricsv1.QueryInstantResponse{}},
	"metrics_query_range":     {method: metricsv1.MetricService_QueryRange_FullMethodName, request: &metricsv1.QueryRangeRequest{}, response: &metricsv1.QueryRangeResponse{}},
	"metrics_series":          {method: metricsv1.MetricService_ListSeries_FullMethodName, request: &metricsv1.ListSeriesRequest{}, response: &metricsv1.ListSeriesResponse{}},
	"runbooks_search":         {method: runbooksv1.RunbookService_SearchRunbooks_FullMethodName, request: &runbooksv1.SearchRunbooksRequest{}, response: &runbooksv1.SearchRunbooksResponse{}},
	"runbooks_get":            {method: runbooksv1.RunbookService_GetRunbook_FullMethodName, request: &runbooksv1.GetRunbookRequest{}, response: &runbooksv1.Runbook{}},
	"workloads_get":           {method: workloadsv1.WorkloadService_GetWorkload_FullMethodName, request: &workloadsv1.GetWorkloadRequest{}, response: &workloadsv1.Workload{}},
	"workloads_list":          {method: workloadsv1.WorkloadService_ListWorkloads_FullMethodName, request: &workloadsv1.ListWorkloadsRequest{}, response: &workloadsv1.ListWorkloadsResponse{}},
	"workloads_lookup_action": {method: workloadsv1.WorkloadService_LookupAction_FullMethodName, request: &workloadsv1.LookupActionRequest{}, response: &workloadsv1.Action{}},
	"workloads_restart": {
		method: workloadsv1.WorkloadService_RestartWorkload_FullMethodName, request: &workloadsv1.RestartWorkloadRequest{}, response: &workloadsv1.Action{},
		kind: workloadsv1.Action_KIND_RESTART,
	},
	"workloads_scale": {
		method: workloadsv1.WorkloadService_ScaleWorkload_FullMethodName, request: &workloadsv1.ScaleWorkloadRequest{}, response: &workloadsv1.Action{},
		kind: workloadsv1.Action_KIND_SCALE,
	},
}

// Tools are the names of the tools that a step may call, in order.
func Tools() []string { return slices.Sorted(maps.Keys(toolbox)) }

// parse makes a tool's request of JSON.
func (t tool) parse(arguments json.RawMessage) (proto.Message, error) {
	request := t.request.ProtoReflect().New().Interface()
	if len(arguments) == 0 {
		return request, nil
	}
	if err := protojson.Unmarshal(arguments, request); err != nil {
		return nil, err
	}
	return request, nil
}

// call calls a tool. What is left of ctx's deadline goes with it. Where the mesh cannot be reached it waits for it, as long as ctx lasts.
func (t tool) call(ctx context.Context, conn grpc.ClientConnInterface, in trace, key string, request proto.Message) (proto.Message, error) {
	pairs := []string{"traceparent", in.parent()}
	if key != "" {
		pairs = append(pairs, "idempotency-key", key)
	}
	response := t.response.ProtoReflect().New().Interface()
	err := conn.Invoke(metadata.AppendToOutgoingContext(ctx, pairs...), t.method, request, response, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	return response, nil
}

// compact is a message as JSON on one line; protojson alone puts blanks in at random.
func compact(m proto.Message) (json.RawMessage, error) {
	b, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	return json.Marshal(json.RawMessage(b))
}

// fit returns a reply as JSON of at most limit bytes: the whole of it, or one in which texts and lists were cut shorter and shorter until it fits.
func fit(reply proto.Message, limit int) (_ json.RawMessage, cut bool, err error) {
	b, err := compact(reply)
	if err != nil {
		return nil, false, fmt.Errorf("reply has no JSON form: %w", err)
	}
	reply = proto.Clone(reply)
	for texts, items := 2048, 256; len(b) > limit; texts, items = texts/2, items/2 {
		if items == 0 {
			return nil, true, fmt.Errorf("reply of %d bytes cannot be cut to %d", proto.Size(reply), limit)
		}
		shorten(reply.ProtoReflect(), texts, items)
		cut = true
		if b, err = compact(reply); err != nil {
			return nil, true, err
		}
	}
	return b, cut, nil
}

// shorten cuts texts to so many bytes and lists to so many items, in all that m holds.
func shorten(m protoreflect.Message, texts, items int) {
	m.SetUnknown(nil)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			entries := v.Map()
			left := items
			entries.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				if left--; left < 0 {
					entries.Clear(k)
				} else if short, ok := shorter(f.MapValue(), v, texts, items); ok {
					entries.Set(k, short)
				}
				return true
			})
		case f.IsList():
			list := v.List()
			if list.Len() > items {
				list.Truncate(items)
			}
			for i := range list.Len() {
				if short, ok := shorter(f, list.Get(i), texts, items); ok {
					list.Set(i, short)
				}
			}
		default:
			if short, ok := shorter(f, v, texts, items); ok {
				m.Set(f, short)
			}
		}
		return true
	})
}

// shorter returns what stands in place of one value, if it is too long; messages are changed as they are.
func shorter(f protoreflect.FieldDescriptor, v protoreflect.Value, texts, items int) (protoreflect.Value, bool) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		shorten(v.Message(), texts, items)
	case protoreflect.StringKind:
		if s := v.String(); len(s) > texts {
			return protoreflect.ValueOfString(clip(s, texts)), true
		}
	case protoreflect.BytesKind:
		if b := v.Bytes(); len(b) > texts {
			return protoreflect.ValueOfBytes(b[:texts]), true
		}
	}
	return protoreflect.Value{}, false
}

// brief says in a few words what a tool has answered.
func brief(reply proto.Message) string {
	switch r := reply.(type) {
	case *logsv1.SearchLogsResponse:
		more := ""
		if r.GetNextPageToken() != "" {
			more = "more than "
		}
		return fmt.Sprintf("%s%d entries", more, len(r.GetEntries()))
	case *metricsv1.QueryInstantResponse:
		if len(r.GetSeries()) == 1 && len(r.GetSeries()[0].GetSamples()) == 1 {
			return fmt.Sprintf("%.3g", r.GetSeries()[0].GetSamples()[0].GetValue())
		}
		return fmt.Sprintf("%d series", len(r.GetSeries()))
	case *metricsv1.QueryRangeResponse:
		return fmt.Sprintf("%d series", len(r.GetSeries()))
	case *runbooksv1.SearchRunbooksResponse:
		var titles []string
		for _, m := range r.GetMatches() {
			titles = append(titles, m.GetRunbook().GetTitle())
		}
		return cmp.Or(strings.Join(titles, "; "), "none")
	case *workloadsv1.Workload:
		return fmt.Sprintf("%s, generation %d, %d crashes", strings.ToLower(strings.TrimPrefix(r.GetState().String(), "STATE_")), r.GetGeneration(), r.GetCrashes())
	}
	return ""
}

// clip cuts a text to at most limit bytes, an ellipsis included, and makes it valid UTF-8.
func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	const ellipsis = "…"
	end := max(limit-len(ellipsis), 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}
