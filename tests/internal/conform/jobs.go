package conform

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	conformancev1 "github.com/toolway/toolway/tests/gen/conformance/v1"
)

// Jobs serves conformance.v1.Jobs.
type Jobs struct {
	conformancev1.UnimplementedJobsServer
}

// Greet greets at once.
func (Jobs) Greet(_ context.Context, r *conformancev1.GreetRequest) (*result, error) {
	return text("Hello, %s!", r.GetName()), nil
}

// SlowCompute takes as long as it is told.
func (Jobs) SlowCompute(ctx context.Context, r *conformancev1.SlowComputeRequest) (*result, error) {
	if err := sleep(ctx, time.Duration(r.GetSeconds()*float64(time.Second))); err != nil {
		return nil, err
	}
	return text("%s is computed", r.GetLabel()), nil
}

// FailingJob fails after a while.
func (Jobs) FailingJob(ctx context.Context, _ *request) (*result, error) {
	if err := sleep(ctx, time.Second); err != nil {
		return nil, err
	}
	return nil, status.Error(codes.FailedPrecondition, "this always fails")
}

// ProtocolErrorJob has to know the client's folders.
func (Jobs) ProtocolErrorJob(ctx context.Context, _ *request) (*result, error) {
	return asked(ctx, "folders", roots())
}

// ConfirmDelete asks before it deletes.
func (Jobs) ConfirmDelete(ctx context.Context, r *conformancev1.ConfirmDeleteRequest) (*result, error) {
	a := answer(ctx, "confirm")
	if a == nil {
		return nil, ask("", "confirm", form("Delete "+r.GetFilename()+"?", `{"confirm":{"type":"boolean"}}`, "confirm"))
	}
	return text("%s: %v", r.GetFilename(), a.GetContent().GetFields()["confirm"].GetBoolValue()), nil
}

// ToolWithTask asks for a name, and greets.
func (Jobs) ToolWithTask(ctx context.Context, _ *request) (*result, error) {
	a := answer(ctx, "user_name")
	if a == nil {
		return nil, ask("", "user_name", form("What is your name?", `{"name":{"type":"string"}}`, "name"))
	}
	return text("Hello, %s!", a.GetContent().GetFields()["name"].GetStringValue()), nil
}

// MultiInput asks two things at once.
func (Jobs) MultiInput(ctx context.Context, _ *request) (*result, error) {
	if len(answers(ctx).GetResponses()) < 2 {
		return nil, askAll("", map[string]*question{
			"name": form("What is your name?", `{"name":{"type":"string"}}`, "name"), "confirm": form("Is that so?", `{"confirm":{"type":"boolean"}}`, "confirm"),
		})
	}
	return text("all is known"), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
