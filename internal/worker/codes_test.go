package worker_test

import (
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/task"
)

// Whatever ends a task, its code is one that callers find in the table, among
// those of tasks; a word that stands there for a refused request is none.
func TestTaskCodes(t *testing.T) {
	t.Parallel()
	specific := 0
	for _, row := range provider.Table {
		for _, p := range []task.Policy{{MaxAttempts: 1, OnUnknown: task.Retry}, {MaxAttempts: 1, OnUnknown: task.Review, OnCut: task.CutReview}} {
			v := task.Next(p, task.Ended{Class: task.Class(row.Class), Code: row.Code, Permanent: row.Permanent, Dispatched: true, Attempts: 1, NotSent: 9}, func() float64 { return 0 })
			if v.To == api.Pending {
				continue
			}
			listed, ok := api.Codes[v.Code]
			if !ok || listed.Status != 0 || (v.To == api.Failed) != (listed.Class == api.ErrFailed) || (v.To == api.Unknown) != (listed.Class == api.ErrUnknown) {
				t.Errorf("%s %s ends as %s with %s, which the table has as %+v", row.Class, row.Code, v.To, v.Code, listed)
			}
			if string(v.Code) == row.Code {
				specific++
			}
		}
	}
	if specific < 10 {
		t.Errorf("only %d failures keep their own code", specific)
	}
}
