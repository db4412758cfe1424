package call

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
)

// Asker asks the person at the caller's side. A door sets Call.Asker where the client that made this call can ask: MCP's elicitation.
type Asker interface {
	// Ask puts the question and returns what the person said. A door whose client answers only with a second call, as in MCP 2026-07-28,
	// returns ErrInputRequired the first time; the chain ends with it, and the door then answers with the question and a state that it has
	// signed over Question.ID, the principal and the method. When the client makes the same call again with the state and the answer, Ask is
	// asked the same question, with the same ID, and returns the answer; a state for another ID counts as none. Any other error ends the call.
	Ask(ctx context.Context, q Question) (Answer, error)
}

// Question is what a person is asked before a call runs.
type Question struct {
	// ID identifies what is asked about: this request of this caller, once. It is unguessable and safe to show.
	ID string
	// Text is for the person: what will be done, to what. It holds no sensitive values.
	Text string
}

// Answer is what a person said.
type Answer int

// The answers. Only Yes lets the call run.
const (
	// NoAnswer means that the person has not decided: the dialog was closed.
	NoAnswer Answer = iota
	// No means that the person declined.
	No
	// Yes means that the person agreed.
	Yes
)

// Questions are kinds of questions with which a backend asks for input, toolway.v1.InputRequest, as a set.
type Questions uint8

// The kinds.
const (
	// FormQuestion asks the person for a form, or for a yes.
	FormQuestion Questions = 1 << iota
	// PageQuestion sends the person to a page.
	PageQuestion
	// ModelQuestion asks the caller's model.
	ModelQuestion
	// FoldersQuestion asks for the caller's folders.
	FoldersQuestion
	// OtherQuestion is of a kind that this mesh does not know.
	OtherQuestion
)

// QuestionOf returns the kind of a question.
func QuestionOf(r *toolwayv1.InputRequest) Questions {
	switch kind := r.GetKind().(type) {
	case *toolwayv1.InputRequest_Elicitation:
		if _, page := kind.Elicitation.GetAnswer().(*toolwayv1.Elicitation_Url); page {
			return PageQuestion
		}
		return FormQuestion
	case *toolwayv1.InputRequest_Sampling:
		return ModelQuestion
	case *toolwayv1.InputRequest_Roots:
		return FoldersQuestion
	}
	return OtherQuestion
}

// ErrInputRequired ends a call that waits for the person's answer. A door that knows how to ask never shows it.
var ErrInputRequired = Error(codes.FailedPrecondition, "INPUT_REQUIRED", "the person at the caller's side has been asked, and the call waits for the answer",
	"hint", "make the same call again with the answer")

// IsInputRequired says whether err is ErrInputRequired, by whatever interceptor it was wrapped.
func IsInputRequired(err error) bool { return errors.Is(err, ErrInputRequired) }

// InputResponsesKey is the metadata in which a call that is made again brings a toolway.v1.InputResponses, the answers to what the backend
// asked for with a toolway.v1.InputRequired.
const InputResponsesKey = "input-responses-bin"
