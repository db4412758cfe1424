package task_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/task"
)

func ids(list []*task.Task) []string {
	var out []string
	for _, one := range list {
		out = append(out, one.ID)
	}
	return out
}

func TestListIsPaged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	var want []string
	for i := range 7 {
		want = append([]string{f.must(tasks, alice, unary, fmt.Sprint("echo ", i), "")}, want...)
	}
	f.must(tasks, bob, unary, "echo", "")
	var got []string
	for page := ""; ; {
		list, next, err := tasks.List(t.Context(), alice, task.Working, 3, page)
		if err != nil {
			t.Fatal(err)
		}
		if left := len(want) - len(got); len(list) != min(3, left) || (next == "") != (left <= 3) {
			t.Errorf("page %q has %d tasks, and %q after it; %d were left", page, len(list), next, left)
		}
		got = append(got, ids(list)...)
		if page = next; page == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	if list, _, err := tasks.List(t.Context(), alice, task.Completed, 3, ""); err != nil || len(list) != 0 {
		t.Errorf("completed tasks %v, %v: want none", list, err)
	}
	for _, page := range []string{"!", "1", "1.", ".0123456789abcdef0123456789abcdef", "1.0123456789abcdef0123456789abcdeg"} {
		_, _, err := tasks.List(t.Context(), alice, "", 3, page)
		wantCode(t, err, codes.InvalidArgument)
	}
}

// Tasks come, end and go between two pages, at another instance: each that was there from the beginning is listed once, and in what it is now.
func TestPagesWhileTasksComeAndGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	one, two := f.tasks(task.Config{}), f.tasks(task.Config{})
	var made []string
	for i := range 6 {
		made = append([]string{f.must(one, alice, unary, fmt.Sprint("echo ", i), "")}, made...)
	}
	first, next, err := two.List(t.Context(), alice, task.Working, 2, "")
	if err != nil || !slices.Equal(ids(first), made[:2]) {
		t.Fatalf("first page %v, %v, want %v", ids(first), err, made[:2])
	}
	f.must(one, alice, unary, "echo new", "")
	for _, id := range []string{made[1], made[3]} { // the one that the page has ended with, and one that is to come
		if _, err := one.Cancel(t.Context(), alice, id); err != nil {
			t.Fatal(err)
		}
	}
	second, next, err := two.List(t.Context(), alice, task.Working, 2, next)
	if want := []string{made[2], made[4]}; err != nil || !slices.Equal(ids(second), want) || next == "" {
		t.Errorf("second page %v, then %q, %v, want %v", ids(second), next, err, want)
	}
	third, next, err := two.List(t.Context(), alice, task.Working, 2, next)
	if err != nil || !slices.Equal(ids(third), made[5:]) || next != "" {
		t.Errorf("third page %v, then %q, %v, want %v and no more", ids(third), next, err, made[5:])
	}
	if all, _, err := two.List(t.Context(), alice, task.Cancelled, 9, ""); err != nil || !slices.Equal(ids(all), []string{made[1], made[3]}) {
		t.Errorf("cancelled are %v, %v", ids(all), err)
	}
	if all, _, err := f.tasks(task.Config{}).List(t.Context(), alice, "", 9, ""); err != nil || len(all) != 7 {
		t.Errorf("an instance that has just begun lists %d tasks, %v, want 7", len(all), err)
	}
}

// A page costs what it holds, not what its owner has.
func TestPageCost(t *testing.T) { // alone, since it counts allocations
	f := newFixture(t)
	tasks := f.tasks(task.Config{})
	for _, p := range []*identity.Principal{alice, bob} {
		for i := range map[string]int{"alice": 5, "bob": 200}[p.ID] {
			f.must(tasks, p, unary, fmt.Sprint("echo ", i), "")
		}
	}
	cost := func(p *identity.Principal) float64 {
		return testing.AllocsPerRun(10, func() {
			if list, next, err := tasks.List(t.Context(), p, "", 3, ""); err != nil || len(list) != 3 || next == "" {
				t.Errorf("a page of %d tasks, then %q, %v", len(list), next, err)
			}
		})
	}
	few, many := cost(alice), cost(bob)
	t.Logf("a page of 3 tasks: %v allocations where there are 5, %v where there are 200", few, many)
	if many > 3*few {
		t.Errorf("a page of 3 tasks makes %v allocations where there are 200, and %v where there are 5", many, few)
	}
}
