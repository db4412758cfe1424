package call

import (
	"strings"
	"time"
)

// Async is how a caller wants its task to be.
type Async struct {
	// Timeout is how long the call may take, and TTL how long the task is kept once it has ended. Zero, or what is beyond the operator's bounds: the
	// operator's.
	Timeout, TTL time.Duration
	// Unaskable are the questions that the caller has said it cannot be asked once the call has become a task. If the backend has to know what only such
	// a question brings, the task fails. None: all can be.
	Unaskable Questions
}

// TaskHeader is the reply metadata that carries the id of the task that a call has become.
const TaskHeader = "toolway-task"

// TasksPath is what the paths begin with under which the HTTP door shows tasks; the id follows. It is toolway.v1.TaskService/GetTask's.
const TasksPath = "/v1/tasks/"

// WantsTask says whether the values of a Prefer header hold "respond-async" (RFC 7240, section 4.1).
func WantsTask(prefer []string) bool {
	for _, v := range prefer {
		for p := range strings.SplitSeq(v, ",") {
			p, _, _ = strings.Cut(p, ";")
			if strings.EqualFold(strings.Trim(p, " \t"), "respond-async") {
				return true
			}
		}
	}
	return false
}
