package workloads_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/toolway/toolway/services/workloads"
)

func TestOwn(t *testing.T) {
	t.Parallel()
	server, err := postgres()
	if err != nil {
		t.Fatal(err)
	}
	url, err := server.Database(within(t))
	if err != nil {
		t.Fatal(err)
	}
	open := func() *workloads.Store {
		store, err := workloads.OpenPostgres(within(t), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
	first, second := open(), open()
	owned, release, err := first.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		if _, _, err := second.Own(within(t)); !errors.Is(err, workloads.ErrOwned) {
			t.Fatalf("Own of a second service %s = %v, want ErrOwned", when, err)
		}
	}
	refused("beside the first")

	// A session that the server ends is made anew.
	admin, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	holder := func() (pid int) {
		err := admin.QueryRowContext(within(t), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&pid)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
		return pid
	}
	end := func(pid int) {
		t.Helper()
		if _, err := admin.ExecContext(within(t), `SELECT pg_terminate_backend($1, 10000)`, pid); err != nil {
			t.Fatal(err)
		}
	}
	old := holder()
	end(old)
	eventually(t, "the lock is taken again", func() bool { pid := holder(); return pid != 0 && pid != old })
	refused("after the first has lost a session")
	if owned.Err() != nil {
		t.Fatalf("the first has lost it: %v", context.Cause(owned))
	}

	// Whoever is quicker then takes over, and the first ends.
	var over context.Context
	var releaseSecond func()
	for err = workloads.ErrOwned; err != nil; {
		end(holder())
		if over, releaseSecond, err = second.Own(t.Context()); err != nil && !errors.Is(err, workloads.ErrOwned) {
			t.Fatal(err)
		}
	}
	select {
	case <-owned.Done():
		if !errors.Is(context.Cause(owned), workloads.ErrOwned) {
			t.Errorf("cause = %v, want ErrOwned", context.Cause(owned))
		}
	case <-time.After(2 * patience):
		t.Error("the first does not know that the second has taken over")
	}
	release()
	if over.Err() != nil {
		t.Errorf("the second has lost it: %v", context.Cause(over))
	}
	releaseSecond()
	_, release, err = first.Own(t.Context())
	if err != nil {
		t.Fatalf("Own after the release = %v", err)
	}
	release()
}
