package submit

import (
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// heldFor is when a caller whose submit an operator stopped should ask again.
const heldFor = 30 * time.Second

// stopper says what operators stopped: the process's board, or the holds that
// stand in a caller's own transaction.
type stopper interface {
	Stopped(what api.Stop, s gate.Subject) *store.Hold
}

// held is the refusal of a new task that an operator stopped, or nil. It is
// asked for after the key: a duplicate is answered whatever is stopped.
func held(by stopper, n *store.New) error {
	h := by.Stopped(api.StopSubmits, gate.Subject{Tenant: n.Slot.Tenant, Kind: n.Slot.Kind, Provider: n.Provider})
	if h == nil {
		return nil
	}
	return api.Errorf(api.CodeHeld, "new tasks of this sort are stopped for now").WithRetryAfter(heldFor)
}

// keepsFailed says that a duplicate does not run a failed task again: an
// operator stopped new tasks, or what runs again by itself.
func keepsFailed(by stopper, r *task.Row) bool {
	subject := gate.Subject{Tenant: r.Tenant, Kind: r.Kind, Provider: r.Provider}
	return by.Stopped(api.StopSubmits, subject) != nil || by.Stopped(api.StopRetries, subject) != nil
}
