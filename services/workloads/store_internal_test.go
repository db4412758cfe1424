package workloads

import (
	"database/sql"
	"errors"
	"log/slog"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestFullDisk has a database that may not grow: callers are told to try again, since room can be made.
func TestFullDisk(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:?_pragma=max_page_count(4)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE filler (b BLOB)"); err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), "INSERT INTO filler VALUES (zeroblob(1000000))")
	if err == nil {
		t.Fatal("INSERT of more than the database may have succeeded")
	}
	if got := reach(err); !errors.Is(got, ErrUnreachable) {
		t.Errorf("reach(%v) = %v, want that it %v", err, got, ErrUnreachable)
	}
	s := status.Convert(statusOf(t.Context(), slog.New(slog.DiscardHandler), reach(err)))
	if s.Code() != codes.Unavailable {
		t.Errorf("status = %v, want %v", s, codes.Unavailable)
	}
	retry := false
	for _, d := range s.Details() {
		_, is := d.(*errdetails.RetryInfo)
		retry = retry || is
	}
	if !retry {
		t.Errorf("details = %v, want RetryInfo among them", s.Details())
	}
	_, err = db.ExecContext(t.Context(), "INSERT INTO nowhere VALUES (1)")
	if got := reach(err); err == nil || errors.Is(got, ErrUnreachable) {
		t.Errorf("reach(%v) = %v, want it as it is", err, got)
	}
}
