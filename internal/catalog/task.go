package catalog

import toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"

// TaskSupport says whether calls of a method may run as tasks.
type TaskSupport int

// The kinds of support.
const (
	// TaskOptional runs a call as a task if its caller wants it.
	TaskOptional TaskSupport = iota
	// TaskForbidden has whoever calls wait for the answer.
	TaskForbidden
	// TaskRequired refuses calls of callers that do not want a task.
	TaskRequired
	// TaskPreferred runs a call as a task also if its caller only says that it can be given one.
	TaskPreferred
)

// String returns "optional", "forbidden", "required" or "preferred".
func (t TaskSupport) String() string {
	return [...]string{"optional", "forbidden", "required", "preferred"}[t]
}

func taskSupportOf(t toolwayv1.TaskSupport) TaskSupport {
	switch t {
	case toolwayv1.TaskSupport_TASK_SUPPORT_FORBIDDEN:
		return TaskForbidden
	case toolwayv1.TaskSupport_TASK_SUPPORT_REQUIRED:
		return TaskRequired
	case toolwayv1.TaskSupport_TASK_SUPPORT_PREFERRED:
		return TaskPreferred
	}
	return TaskOptional
}

// Taskable says whether calls of the method can run as tasks. Those that stream their requests cannot, since a task has its whole request
// before it runs; infrastructure and the mesh's own services are no work.
func (m *Method) Taskable() bool {
	return m.Policy.Task != TaskForbidden && !m.Kind().Client && (m.Service == nil || !m.Service.Infrastructure && !m.Service.Mesh)
}
