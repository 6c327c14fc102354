package main

import (
	"context"
	"fmt"
	"time"
)

// report prints what happened and fails if any number is wrong.
func (s *stage) report(ctx context.Context, invoices, sent int) error {
	count := func(sql string) (n int) {
		if err := s.db.QueryRow(ctx, sql).Scan(&n); err != nil {
			n = -1
		}
		return n
	}
	for count(`SELECT count(*) FROM onefold.effects WHERE state <> 'delivered'`) != 0 && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	for count(`SELECT coalesce(sum(count), 0)::int FROM onefold.task_duplicates`) != sent-invoices && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	s.receiver.mu.Lock()
	defer s.receiver.mu.Unlock()
	calls, lost := s.model.Calls().Received, count(`SELECT count(*) FROM onefold.attempts WHERE outcome = 'lost'`)
	rows := []struct {
		what      string
		got, want int
	}{
		{"tasks", count(`SELECT count(*) FROM onefold.tasks WHERE state = 'succeeded'`), invoices},
		{"invoice rows", count(`SELECT count(*) FROM public.invoices`), invoices},
		{"distinct invoice keys", count(`SELECT count(DISTINCT key) FROM public.invoices`), invoices},
		{"webhooks received", len(s.receiver.ids), invoices},
		{"webhooks with a bad signature", s.receiver.bad, 0},
		{"duplicates folded", count(`SELECT coalesce(sum(count), 0)::int FROM onefold.task_duplicates`), sent - invoices},
	}
	fmt.Printf("\n%-32s %6s\n%-32s %6d\n", "", "", "submissions", sent)
	wrong := 0
	for _, r := range rows {
		mark := ""
		if r.got != r.want {
			mark, wrong = fmt.Sprintf("  WRONG, want %d", r.want), wrong+1
		}
		fmt.Printf("%-32s %6d%s\n", r.what, r.got, mark)
	}
	fmt.Printf("%-32s %6d  (%d cut off by the kill, each called again; the ledger says billed: unknown)\n", "model calls", calls, lost)
	if calls < invoices || calls > invoices+lost {
		wrong++
		fmt.Printf("model calls are outside %d to %d\n", invoices, invoices+lost)
	}
	if wrong > 0 {
		return fmt.Errorf("%d numbers are wrong", wrong)
	}
	fmt.Println("\nEach invoice once, whatever was sent twice and whoever was killed.")
	return nil
}
