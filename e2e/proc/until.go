package proc

import (
	"testing"
	"time"
)

// Until looks again and again until ok, for what gives no signal of its own.
func Until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	late := time.NewTimer(Patience)
	defer late.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-late.C:
			tb.Fatalf("waited %s for: %s", Patience, what)
		}
	}
}

// Count reads one number from the database.
func (w *World) Count(tb testing.TB, sql string, args ...any) (n int) {
	tb.Helper()
	if err := w.Pool.QueryRow(tb.Context(), sql, args...).Scan(&n); err != nil {
		tb.Fatalf("count: %v\n%s", err, sql)
	}
	return n
}
