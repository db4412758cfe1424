package interceptors_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
)

// settle decides an approval as the mesh's ApprovalService does.
func settle(t testing.TB, store *interceptors.ApprovalMemory, id string, state interceptors.ApprovalState, comment string) {
	t.Helper()
	a, ok, err := store.Get(t.Context(), id)
	if err != nil || !ok {
		t.Fatalf("Get(%q) = %v, %v", id, ok, err)
	}
	a.State, a.DecidedBy, a.Comment, a.Decided, a.Expires = state, "bob", comment, time.Now(), time.Now().Add(5*time.Minute)
	if _, err := store.Swap(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

// approvalOf returns the id in an error's details.
func approvalOf(err error) string { return infoOf(err).GetMetadata()["approval_id"] }

func (s *shop) withApprovals(inner ...interceptors.Policy) (call.Handler, *interceptors.ApprovalMemory) {
	store := interceptors.NewApprovalMemory(0)
	return s.chain(interceptors.Options{Approval: interceptors.ApprovalOptions{Store: store, URL: "https://mesh.example.com/"}}, inner...), store
}

var ann = &identity.Principal{ID: "ann", Tenant: "t"}

// TestApprovalOfUnknownFields has requests with a field that the contract does not know, whose approver would not see it.
func TestApprovalOfUnknownFields(t *testing.T) {
	s := openShop(t)
	handler, _ := s.withApprovals()
	m := s.Method("/shop.v1.Shop/Erase")
	known := requestOf(t, m, `{"id":"7"}`)
	c := call.New(m, call.GRPC)
	c.Principal = ann
	err := handler(call.NewStream(t.Context(), c, call.One(call.NewFrame(nil, append(known, 0xc2, 0x3e, 0x01, 'x'))), func(*call.Frame) error { return nil }, nil))
	if reasonOf(err) != "InvalidArgument UNKNOWN_FIELDS" || verdict(c, "approval") != "refused" || s.executions() != 0 {
		t.Errorf("%v, decision %q, %d executions, want UNKNOWN_FIELDS and none", err, verdict(c, "approval"), s.executions())
	}
}

func TestApproverHoldsTheCall(t *testing.T) {
	s := openShop(t)
	handler, store := s.withApprovals()
	o := order{method: "Erase", json: `{"id":"7","card":"4111"}`, by: ann}
	held := s.do(t, handler, o)
	id := approvalOf(held.err)
	if held.reason() != "FailedPrecondition APPROVAL_REQUIRED" || id == "" || held.c.Approval != id || verdict(held.c, "approval") != "held" {
		t.Fatalf("held: %v, Approval %q, decision %q", held.err, held.c.Approval, verdict(held.c, "approval"))
	}
	info := infoOf(held.err).GetMetadata()
	if info["url"] != "https://mesh.example.com/v1/approvals/"+id || info["expires"] == "" || info["hint"] == "" {
		t.Errorf("details %v", info)
	}
	var pre *errdetails.PreconditionFailure
	for _, d := range status.Convert(held.err).Details() {
		if p, ok := d.(*errdetails.PreconditionFailure); ok {
			pre = p
		}
	}
	if v := pre.GetViolations(); len(v) != 1 || v[0].GetType() != "APPROVAL" || v[0].GetSubject() != id || !strings.Contains(v[0].GetDescription(), "shop:approve") {
		t.Errorf("precondition %v", pre)
	}
	a, _, _ := store.Get(t.Context(), id)
	if a.Tenant != "t" || a.Principal != "ann" || a.Method != "shop.v1.Shop/Erase" || a.Title != "Erase an order" || a.Scope != "shop:approve" || a.CallID != held.c.ID || a.Cut {
		t.Errorf("record %+v", a)
	}
	if a.Arguments != `{"id":"7","card":"REDACTED"}` {
		t.Errorf("arguments for the approver: %s", a.Arguments)
	}
	if again := s.do(t, handler, o); approvalOf(again.err) != id {
		t.Errorf("again before it is decided: %v, want the same approval", again.err)
	}
	if s.executions() != 0 {
		t.Fatalf("%d executions before approval", s.executions())
	}

	settle(t, store, id, interceptors.ApprovalApproved, "")
	if g := s.do(t, handler, order{method: "Erase", json: `{"card":"4111","id":"7"}`, by: ann}); g.err != nil || g.c.Approval != id || verdict(g.c, "approval") != "allowed" {
		t.Errorf("approved: %v, Approval %q, decision %q", g.err, g.c.Approval, verdict(g.c, "approval"))
	}
	if g := s.do(t, handler, o); g.reason() != "FailedPrecondition APPROVAL_REQUIRED" || approvalOf(g.err) == id {
		t.Errorf("a second time: %v, want another approval", g.err)
	}
	if s.executions() != 1 {
		t.Errorf("%d executions, want 1", s.executions())
	}
}

// TestApprovalIsForOneRequest shows that an approval lets nothing else through.
func TestApprovalIsForOneRequest(t *testing.T) {
	s := openShop(t)
	handler, store := s.withApprovals()
	o := order{method: "Erase", json: `{"id":"7"}`, by: ann}
	id := approvalOf(s.do(t, handler, o).err)
	settle(t, store, id, interceptors.ApprovalApproved, "")
	for name, change := range map[string]func(*order){
		"another request":   func(o *order) { o.json = `{"id":"8"}` },
		"another principal": func(o *order) { o.by = &identity.Principal{ID: "eve", Tenant: "t"} },
		"another tenant":    func(o *order) { o.by = &identity.Principal{ID: "ann", Tenant: "u"} },
		"nobody":            func(o *order) { o.by = nil },
		"a confirmation":    func(o *order) { o.confirm, o.json = id, `{"id":"9"}` },
	} {
		other := o
		change(&other)
		if g := s.do(t, handler, other); g.reason() != "FailedPrecondition APPROVAL_REQUIRED" || approvalOf(g.err) == id {
			t.Errorf("%s: %v, want an approval of its own", name, g.err)
		}
	}
	if s.executions() != 0 {
		t.Errorf("%d executions", s.executions())
	}
}

func TestApprovalRefused(t *testing.T) {
	s := openShop(t)
	handler, store := s.withApprovals()
	o := order{method: "Erase", json: `{"id":"7"}`, by: ann}
	id := approvalOf(s.do(t, handler, o).err)
	settle(t, store, id, interceptors.ApprovalRefused, "not on a Friday")
	for range 2 {
		g := s.do(t, handler, o)
		if g.reason() != "PermissionDenied APPROVAL_REFUSED" || !strings.Contains(g.err.Error(), "bob: not on a Friday") || infoOf(g.err).GetMetadata()["comment"] != "not on a Friday" {
			t.Errorf("refused: %v", g.err)
		}
	}
	if s.executions() != 0 {
		t.Errorf("%d executions", s.executions())
	}
}

func TestApprovalsExpire(t *testing.T) {
	snap := contract(t, onceContract)
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := &shop{Snapshot: snap}
		store := interceptors.NewApprovalMemory(0)
		handler := interceptors.Chain(instant(&n), interceptors.Approval(interceptors.Options{Logger: discard(), Approval: interceptors.ApprovalOptions{Store: store}}))
		o := order{method: "Erase", json: `{"id":"7"}`, by: ann}
		first := approvalOf(s.do(t, handler, o).err)
		time.Sleep(15*time.Minute - time.Second)
		if again := approvalOf(s.do(t, handler, o).err); again != first {
			t.Errorf("before 15 minutes are over: another approval")
		}
		time.Sleep(time.Second)
		second := approvalOf(s.do(t, handler, o).err)
		if second == first {
			t.Errorf("after 15 minutes: the same approval")
		}
		settle(t, store, second, interceptors.ApprovalApproved, "")
		time.Sleep(5 * time.Minute)
		if g := s.do(t, handler, o); g.reason() != "FailedPrecondition APPROVAL_REQUIRED" || n != 0 {
			t.Errorf("5 minutes after the approval: %v, %d executions", g.err, n)
		}
		if a, _, _ := store.Get(t.Context(), second); a.Now(time.Now()) != interceptors.ApprovalExpired {
			t.Errorf("state %v, want expired", a.Now(time.Now()))
		}
	})
}

// TestApprovalIsUsedOnce has many calls that wait for one approval: one goes through.
func TestApprovalIsUsedOnce(t *testing.T) {
	s := openShop(t)
	handler, store := s.withApprovals()
	o := order{method: "Erase", json: `{"id":"7"}`, by: ann}
	settle(t, store, approvalOf(s.do(t, handler, o).err), interceptors.ApprovalApproved, "")
	var wg sync.WaitGroup
	var through, held atomic.Int32
	for range 50 {
		wg.Go(func() {
			switch g := s.do(t, handler, o); g.reason() {
			case "OK":
				through.Add(1)
			case "FailedPrecondition APPROVAL_REQUIRED":
				held.Add(1)
			default:
				t.Errorf("%v", g.err)
			}
		})
	}
	wg.Wait()
	if through.Load() != 1 || held.Load() != 49 || s.executions() != 1 {
		t.Errorf("%d through, %d held, %d executions; want 1, 49, 1", through.Load(), held.Load(), s.executions())
	}
}

// TestApprovalGivenBack shows when an approval outlives the call that it let through.
func TestApprovalGivenBack(t *testing.T) {
	s := openShop(t)
	refuse := true
	handler, store := s.withApprovals(interceptors.Every("guard", func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if refuse {
			return status.Error(codes.Unavailable, "the backend is down")
		}
		return next(srv, stream)
	}))
	o := order{method: "Erase", json: `{"id":"7","do":"fail UNAVAILABLE"}`, by: ann}
	id := approvalOf(s.do(t, handler, o).err)
	settle(t, store, id, interceptors.ApprovalApproved, "")
	if g := s.do(t, handler, o); status.Code(g.err) != codes.Unavailable || verdict(g.c, "approval") != "given back" {
		t.Fatalf("not dispatched: %v, %q", g.err, verdict(g.c, "approval"))
	}
	refuse = false
	if g := s.do(t, handler, o); status.Code(g.err) != codes.Unavailable || s.executions() != 1 {
		t.Fatalf("dispatched: %v after %d executions", g.err, s.executions())
	}
	if g := s.do(t, handler, o); g.reason() != "FailedPrecondition APPROVAL_REQUIRED" || approvalOf(g.err) == id {
		t.Errorf("after a call that may have been executed: %v, want another approval", g.err)
	}
}

// TestApprovalOutlivesQuestions has a backend that asks for input before it does anything.
func TestApprovalOutlivesQuestions(t *testing.T) {
	s := openShop(t)
	handler, store := s.withApprovals()
	o := order{method: "Erase", json: `{"id":"7","do":"ask-once"}`, by: ann}
	id := approvalOf(s.do(t, handler, o).err)
	settle(t, store, id, interceptors.ApprovalApproved, "")
	if g := s.do(t, handler, o); g.reason() != "FailedPrecondition" || verdict(g.c, "approval") != "given back" {
		t.Errorf("asked: %v, %q", g.err, verdict(g.c, "approval"))
	}
	if g := s.do(t, handler, o); g.err != nil || g.c.Approval != id {
		t.Errorf("answered: %v, Approval %q, want %q", g.err, g.c.Approval, id)
	}
}

func TestApprovedCallWithKeyIsReplayed(t *testing.T) {
	s := openShop(t)
	handler, store := s.withApprovals()
	o := order{method: "Erase", json: `{"id":"7"}`, by: ann, keys: []string{"k"}}
	settle(t, store, approvalOf(s.do(t, handler, o).err), interceptors.ApprovalApproved, "")
	if g := s.do(t, handler, o); g.err != nil || g.c.Replayed {
		t.Fatalf("approved: %v, replayed %v", g.err, g.c.Replayed)
	}
	if g := s.do(t, handler, o); g.err != nil || !g.c.Replayed || s.executions() != 1 {
		t.Errorf("again: %v, replayed %v, %d executions", g.err, g.c.Replayed, s.executions())
	}
}

func TestRequestStreamsCannotBeApproved(t *testing.T) {
	s := openShop(t)
	handler, _ := s.withApprovals()
	if g := s.do(t, handler, order{method: "Load", json: `{}`, by: ann}); g.reason() != "FailedPrecondition APPROVAL_IMPOSSIBLE" || s.executions() != 0 {
		t.Errorf("%v after %d executions", g.err, s.executions())
	}
}

func TestCommandsAreNotHeld(t *testing.T) {
	s := openShop(t)
	handler, _ := s.withApprovals()
	for _, method := range []string{"Erase", "Drop"} {
		if g := s.do(t, handler, order{method: method, json: `{"id":"7"}`, door: call.CLI}); g.err != nil || verdict(g.c, "approval") != "allowed" {
			t.Errorf("%s: %v, %q", method, g.err, verdict(g.c, "approval"))
		}
	}
}

func TestConfirmWithoutAsker(t *testing.T) {
	s := openShop(t)
	handler, _ := s.withApprovals()
	o := order{method: "Drop", json: `{"id":"7"}`, by: ann}
	g := s.do(t, handler, o)
	token := infoOf(g.err).GetMetadata()["confirm"]
	if g.reason() != "FailedPrecondition CONFIRMATION_REQUIRED" || token == "" {
		t.Fatalf("%v, want CONFIRMATION_REQUIRED with an id", g.err)
	}
	for name, change := range map[string]func(*order){
		"another id":        func(o *order) { o.confirm = "x" },
		"another request":   func(o *order) { o.json = `{"id":"8"}` },
		"another principal": func(o *order) { o.by = &identity.Principal{ID: "eve", Tenant: "t"} },
	} {
		other := o
		other.confirm = token
		change(&other)
		if g := s.do(t, handler, other); g.reason() != "FailedPrecondition CONFIRMATION_REQUIRED" {
			t.Errorf("%s: %v", name, g.err)
		}
	}
	o.confirm = token
	if g := s.do(t, handler, o); g.err != nil {
		t.Errorf("confirmed: %v", g.err)
	}
	if g := s.do(t, handler, o); g.reason() != "FailedPrecondition CONFIRMATION_REQUIRED" || s.executions() != 1 {
		t.Errorf("confirmed once, called twice: %v after %d executions", g.err, s.executions())
	}
}

// person answers questions in turn.
type person struct {
	answers []call.Answer
	err     error
	asked   []call.Question
}

func (p *person) Ask(_ context.Context, q call.Question) (call.Answer, error) {
	p.asked = append(p.asked, q)
	if p.err != nil {
		return call.NoAnswer, p.err
	}
	a := p.answers[0]
	p.answers = p.answers[1:]
	return a, nil
}

func TestConfirmAsks(t *testing.T) {
	for _, c := range []struct {
		answer     call.Answer
		err        error
		reason     string
		executions int
	}{
		{call.Yes, nil, "OK", 1},
		{call.No, nil, "PermissionDenied CONFIRMATION_DECLINED", 0},
		{call.NoAnswer, nil, "FailedPrecondition CONFIRMATION_REQUIRED", 0},
		{0, call.ErrInputRequired, "FailedPrecondition INPUT_REQUIRED", 0},
		{0, status.Error(codes.Canceled, "gone"), "Canceled", 0},
	} {
		s := openShop(t)
		handler, _ := s.withApprovals()
		p := &person{answers: []call.Answer{c.answer}, err: c.err}
		g := s.do(t, handler, order{method: "Drop", json: `{"id":"7","card":"4111"}`, by: ann, asker: p})
		if g.reason() != c.reason || s.executions() != c.executions {
			t.Errorf("%v, %v: %v after %d executions, want %s after %d", c.answer, c.err, g.err, s.executions(), c.reason, c.executions)
		}
		if call.IsInputRequired(g.err) != errors.Is(c.err, call.ErrInputRequired) {
			t.Errorf("IsInputRequired(%v) = %v", g.err, call.IsInputRequired(g.err))
		}
		if len(p.asked) != 1 || p.asked[0].ID == "" || !strings.Contains(p.asked[0].Text, "shop.v1.Shop/Drop") || strings.Contains(p.asked[0].Text, "4111") {
			t.Errorf("asked %+v", p.asked)
		}
	}
}

// TestConfirmTwoCalls is what a door does whose client answers with a second call: the question keeps its ID until it is answered.
func TestConfirmTwoCalls(t *testing.T) {
	s := openShop(t)
	handler, _ := s.withApprovals()
	o := order{method: "Drop", json: `{"id":"7"}`, by: ann}
	first, second, third := &person{err: call.ErrInputRequired}, &person{answers: []call.Answer{call.Yes}}, &person{err: call.ErrInputRequired}
	o.asker = first
	s.do(t, handler, o)
	o.asker = second
	if g := s.do(t, handler, o); g.err != nil || second.asked[0].ID != first.asked[0].ID {
		t.Errorf("with the answer: %v, question %q, want %q", g.err, second.asked[0].ID, first.asked[0].ID)
	}
	o.asker = third
	s.do(t, handler, o)
	if third.asked[0].ID == first.asked[0].ID || s.executions() != 1 {
		t.Errorf("the same answer would serve twice: question %q, %d executions", third.asked[0].ID, s.executions())
	}
}

func TestApprovalStore(t *testing.T) {
	s := openShop(t)
	for name, c := range map[string]struct {
		store interceptors.ApprovalStore
		want  string
	}{
		"fails":   {lostApprovals{}, "Unavailable APPROVAL_STORE_UNAVAILABLE"},
		"is full": {fullApprovals{}, "ResourceExhausted APPROVALS_FULL"},
	} {
		handler := s.chain(interceptors.Options{Approval: interceptors.ApprovalOptions{Store: c.store}})
		if g := s.do(t, handler, order{method: "Erase", json: `{}`, by: ann}); g.reason() != c.want || s.executions() != 0 {
			t.Errorf("a store that %s: %v after %d executions, want %s", name, g.err, s.executions(), c.want)
		}
	}
}

type lostApprovals struct{ interceptors.ApprovalStore }

func (lostApprovals) Hold(context.Context, interceptors.ApprovalRecord) (interceptors.ApprovalRecord, error) {
	return interceptors.ApprovalRecord{}, errors.New("no route to host")
}

type fullApprovals struct{ interceptors.ApprovalStore }

func (fullApprovals) Hold(context.Context, interceptors.ApprovalRecord) (interceptors.ApprovalRecord, error) {
	return interceptors.ApprovalRecord{}, interceptors.ErrApprovalsFull
}

func TestApprovalMemoryIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := interceptors.NewApprovalMemory(20)
		hold := func(by string, n int) (interceptors.ApprovalRecord, error) {
			a := interceptors.ApprovalRecord{ID: fmt.Sprint(by, n), Principal: by, State: interceptors.ApprovalPending, Expires: time.Now().Add(time.Minute)}
			a.Binding[0], a.Binding[1] = by[0], byte(n)
			return store.Hold(t.Context(), a)
		}
		for n := range 2 {
			if _, err := hold("ann", n); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := hold("ann", 2); !errors.Is(err, interceptors.ErrApprovalsFull) {
			t.Errorf("a tenth of the room is used up: %v", err)
		}
		if _, err := hold("bob", 0); err != nil {
			t.Errorf("another caller: %v", err)
		}
		a, err := hold("ann", 0)
		if err != nil || a.Revision != 1 {
			t.Errorf("a call that is held already: revision %d, %v", a.Revision, err)
		}
		a.State = interceptors.ApprovalUsed
		if _, err := store.Swap(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Swap(t.Context(), a); !errors.Is(err, interceptors.ErrApprovalChanged) {
			t.Errorf("Swap of an old revision: %v", err)
		}
		if _, err := hold("ann", 3); err != nil {
			t.Errorf("after one was used: %v", err)
		}
		if _, ok, _ := store.Get(t.Context(), "ann0"); ok {
			t.Error("the used one was kept although there was no room")
		}
		time.Sleep(2 * time.Minute)
		if _, err := hold("ann", 4); err != nil {
			t.Errorf("after the others have expired: %v", err)
		}
	})
}
