package mcpadapter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/task"
)

// The extension of 2026-07-28 by which a tools/call is answered with a task, and its methods.
const (
	tasksExtension = "io.modelcontextprotocol/tasks"
	getTask        = "tasks/get"
	updateTask     = "tasks/update"
	cancelTask     = "tasks/cancel"
)

var taskMethods = map[string]bool{getTask: true, updateTask: true, cancelTask: true}

// The methods of the mesh's own API that stand behind them. What asks for a task passes the chain as a call of one of them, so that it is
// authenticated, authorised, limited, observed and recorded as on the other doors; what it is told is then read as the principal that the chain found,
// since the result of a tools/call is made of more than that API tells: of the status with all its details.
const (
	apiGetTask    = "/toolway.v1.TaskService/GetTask"
	apiCancelTask = "/toolway.v1.TaskService/CancelTask"
	apiProvide    = "/toolway.v1.TaskService/ProvideTaskInput"
)

// reasonTaskRequired is why the chain refuses a call whose method runs only as a task.
const reasonTaskRequired = "TASK_REQUIRED"

// Tasks are the calls that run as tasks, each known only to the principal that has made it. *task.Tasks is one. Implementations are safe for
// concurrent use.
type Tasks interface {
	// Get returns a task, or the status NOT_FOUND.
	Get(ctx context.Context, p *identity.Principal, id string) (*task.Task, error)
	// Result returns the answer of a task that has completed, as the messages that came; nil if there is none, or it is kept elsewhere.
	Result(ctx context.Context, p *identity.Principal, id string) ([][]byte, error)
	// Cancel asks for the end of a task.
	Cancel(ctx context.Context, p *identity.Principal, id string) (*task.Task, error)
	// Provide gives a task answers to what it asks in a round, all or some. Errors have the reasons of package task.
	Provide(ctx context.Context, p *identity.Principal, id string, round int, responses *toolwayv1.InputResponses) (*task.Task, error)
	// Watch gives each event after a sequence to each, as they come, and returns nil after the last.
	Watch(ctx context.Context, p *identity.Principal, id string, after uint64, each func(task.Event) error) error
}

// becomesTask says whether a call of m is made a task for a client that can take one. The server alone decides that, and the contract alone says: how
// long a call takes cannot be seen from outside.
func becomesTask(m *catalog.Method) bool {
	return (m.Policy.Task == catalog.TaskRequired || m.Policy.Task == catalog.TaskPreferred) && m.Taskable()
}

// onlyAsTask says whether the chain has refused a call since its method runs only as a task.
func onlyAsTask(err error) bool {
	if err == nil {
		return false
	}
	return reasonOf(err) == reasonTaskRequired
}

// reasonOf returns the reason of an error of the mesh's own; "" for others.
func reasonOf(err error) string {
	reason, _ := identity.Reason(err)
	return reason
}

// needsTasks refuses a client that has not declared the extension.
func needsTasks(what string) error {
	e := rpcError(mcp.CodeMissingRequiredClientCapabilities, "%s, and this client has not declared the extension %s", what, tasksExtension)
	e.Data = json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`)
	return e
}

// createdTask answers a call that has become a task. The task is kept already: that it cannot be read now does not undo it.
func (a *Adapter) createdTask(ctx context.Context, c *call.Call) *result {
	t, err := a.conf.Tasks.Get(ctx, c.Principal, c.Task)
	if err != nil {
		a.conf.Logger.WarnContext(ctx, "a task that was just made cannot be read", "task", c.Task, "error", err)
		t = &task.Task{ID: c.Task, State: task.Working, Created: c.Start, Updated: c.Start}
	}
	return &result{instead: append(taskMembers(t, mcpStatus(t)), `,"resultType":"task"`...)}
}

// taskParams are the params of all three methods.
type taskParams struct {
	mcp.ParamsBase
	TaskID         string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses,omitempty"`
}

// receiveTasks tells the SDK of the methods, if there are tasks. They are answered by the middleware, which knows who asks.
func (a *Adapter) receiveTasks(s *mcp.Server) {
	if a.conf.Tasks == nil {
		return
	}
	for method := range taskMethods {
		err := mcp.AddReceivingCustomMethod(s, method, func(context.Context, *mcp.ServerSession, *taskParams) (*rawResult, error) {
			return nil, noTaskMethod(method)
		})
		if err != nil { // the SDK has the extension itself now
			panic("mcpadapter: " + err.Error())
		}
	}
}

func noTaskMethod(method string) error {
	return rpcError(jsonrpc.CodeMethodNotFound, "method %q is not offered here: tasks are for protocol version %s", method, version20260728)
}

// receiveTask answers a method of tasks that the SDK has received.
func (a *Adapter) receiveTask(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
	p, ok := req.GetParams().(*taskParams)
	if !ok || p == nil {
		return nil, invalidParams(method + " needs params with a taskId")
	}
	if !isModern(p.Meta) {
		return nil, noTaskMethod(method)
	}
	can := abilitiesOf(p.Meta[mcp.MetaKeyClientCapabilities])
	if method == updateTask && can&canTask != 0 && p.InputResponses == nil {
		return nil, invalidParams("params.inputResponses is missing")
	}
	if method == updateTask {
		return a.answerUpdate(ctx, askerOf(req, p.Meta), can, p.TaskID, p.InputResponses)
	}
	body, err := a.answerTask(ctx, method, askerOf(req, p.Meta), can, p.TaskID)
	if err != nil {
		return nil, err
	}
	return &rawResult{body: body}, nil
}

// offersQuick says whether a request of the fast path is for a method that is answered at all.
func (a *Adapter) offersQuick(q *quickRequest) bool {
	return a.conf.Tasks != nil || !taskMethods[q.method]
}

// taskIDOf returns the id that the params of a method of tasks name, or "".
func taskIDOf(params json.RawMessage) string {
	var p struct {
		TaskID string `json:"taskId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return ""
	}
	return p.TaskID
}

// taskAck is the member of a result that every answer about a task has, and those of tasks/cancel and tasks/update have alone.
const taskAck = `"resultType":"complete"`

// checkTask refuses what is wrong with a request about a task whatever the task.
func checkTask(method string, can abilities, id string) error {
	switch {
	case can&canTask == 0:
		return needsTasks(method + " is of an extension")
	case id == "":
		return invalidParams("params.taskId is missing")
	}
	return nil
}

// answerTask answers tasks/get and tasks/cancel with the members of the result, _meta aside. The error is a JSON-RPC error.
func (a *Adapter) answerTask(ctx context.Context, method string, from asker, can abilities, id string) ([]byte, error) {
	if err := checkTask(method, can, id); err != nil {
		return nil, err
	}
	if method == cancelTask {
		p, through, err := a.passTask(ctx, from, apiCancelTask, id)
		if err == nil && !through {
			_, err = a.conf.Tasks.Cancel(ctx, p, id)
		}
		return []byte(taskAck), taskError(id, err)
	}
	p, t, err := a.task(ctx, from, id)
	if err != nil {
		return nil, taskError(id, err)
	}
	body, err := a.detailedTask(ctx, p, t, can)
	if err != nil {
		return nil, taskError(id, err)
	}
	return append(body, ","+taskAck...), nil
}

// task returns a task of the asker, and who that is. The error is a *fetchError, or a status.
func (a *Adapter) task(ctx context.Context, from asker, id string) (*identity.Principal, *task.Task, error) {
	p, _, err := a.passTask(ctx, from, apiGetTask, id)
	if err != nil {
		return nil, nil, err
	}
	t, err := a.conf.Tasks.Get(ctx, p, id)
	return p, t, err
}

// passTask sends a request about a task through the chain as a call of the mesh's own API, and returns whom the chain found to ask. Where the catalog
// has no such API, nobody else is asked, and through is false.
func (a *Adapter) passTask(ctx context.Context, from asker, method, id string) (p *identity.Principal, through bool, err error) {
	m, err := a.taskMethod(method)
	if m == nil {
		return cmp.Or(call.PrincipalFrom(ctx), identity.Anonymous), false, err
	}
	request, err := m.Request().AppendParam(nil, "id", []string{id})
	if err == nil && method == apiGetTask { // JSON would be of no use
		request, err = m.Request().AppendParam(request, "as_protobuf", []string{"true"})
	}
	if err != nil {
		return nil, true, status.Error(codes.NotFound, err.Error())
	}
	c := a.newCall(ctx, from, m)
	_, _, err = a.fetchBy(ctx, c, request, 0)
	return c.Principal, true, err
}

// taskMethod returns a method of the mesh's own API for tasks; nil if the catalog has none. The error is a JSON-RPC error: the operator does not expose it
// at this door.
func (a *Adapter) taskMethod(name string) (*catalog.Method, error) {
	m := a.conf.Catalog.Snapshot().Method(name)
	if m != nil && !m.Exposed(catalog.DoorMCP) {
		return nil, rpcError(jsonrpc.CodeMethodNotFound, "this is not offered here: the policy of the mesh does not expose %s to MCP", strings.TrimPrefix(name, "/"))
	}
	return m, nil
}

// taskError is the JSON-RPC error of a request about a task; nil for nil.
func taskError(id string, err error) error {
	var wire *jsonrpc.Error
	if err == nil || errors.As(err, &wire) {
		return err
	}
	var f *fetchError
	st := status.Convert(err)
	if errors.As(err, &f) {
		st = f.status
	}
	if st.Code() == codes.NotFound {
		return rpcError(jsonrpc.CodeInvalidParams, "there is no task %q for this caller, or no longer", cut(id, 100))
	}
	e := rpcError(jsonrpc.CodeInternalError, "task %q: %s: %s", cut(id, 100), codeName(st.Code()), st.Message())
	if f != nil {
		told := describe(f.status, f.call)
		told.plain()
		e.Data = encoded(map[string]any{"error": told})
	}
	return e
}

// mcpStatus is the status that MCP has for the state of a task whose result is not looked at: "completed" includes all that a tools/call would have
// answered with a tool error.
func mcpStatus(t *task.Task) string {
	switch {
	case t.State == task.InputRequired:
		return "input_required"
	case !t.State.Final():
		return "working"
	case t.State == task.Cancelled:
		return "cancelled"
	}
	return "completed"
}

// taskTime is the form of times.
const taskTime = "2006-01-02T15:04:05.000Z"

// taskMembers returns the members that a task has in every status.
func taskMembers(t *task.Task, status string) []byte {
	return taskMembersWith(t, status, taskMessage(t))
}

func taskMembersWith(t *task.Task, status, message string) []byte {
	dst := appendString([]byte(`"taskId":`), t.ID)
	dst = append(append(append(dst, `,"status":"`...), status...), '"')
	if message != "" {
		dst = appendString(append(dst, `,"statusMessage":`...), message)
	}
	dst = t.Created.UTC().AppendFormat(append(dst, `,"createdAt":"`...), taskTime)
	dst = t.Updated.UTC().AppendFormat(append(dst, `","lastUpdatedAt":"`...), taskTime)
	dst = append(dst, `","ttlMs":`...)
	if t.Expires.IsZero() {
		dst = append(dst, "null"...)
	} else {
		dst = appendNumber(dst, float64(max(t.Expires.Sub(t.Created).Milliseconds(), 1)))
	}
	if !t.State.Final() {
		dst = appendNumber(append(dst, `,"pollIntervalMs":`...), float64(pollInterval(time.Since(t.Created)).Milliseconds()))
	}
	return dst
}

// pollInterval is how long a client is to wait before it asks again for a task of that age: a tenth of the age, between half a second and ten.
func pollInterval(age time.Duration) time.Duration {
	return min(max((age/10).Round(500*time.Millisecond), 500*time.Millisecond), 10*time.Second)
}
