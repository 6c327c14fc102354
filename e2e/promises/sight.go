package promises

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/onefold-dev/onefold/api"
)

// Sight is what one answer said of a task.
type Sight struct {
	ID        string
	Run       int
	Epoch     int64
	State     api.State
	Permanent bool
	Sum       string // of the result's bytes
}

// See is what an answer says.
func See(t *api.Task) Sight {
	s := Sight{ID: t.ID, Run: t.Run, Epoch: t.Epoch, State: t.State, Permanent: t.Error != nil && t.Error.Permanent}
	if t.Result != nil {
		s.Sum = hash(t.Result)
	}
	return s
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

func (s Sight) String() string {
	return fmt.Sprintf("task %s run %d epoch %d %s %s", s.ID, s.Run, s.Epoch, s.State, s.Sum)
}

// Wrong says why an answer to a request that began when before was known
// already must not be now; "" when it may. Within a run a task waits and runs,
// in turns, with a rising epoch, until it is settled; from then on nothing
// changes but by a new run, which only a failure that was not its own fault
// allows here.
func Wrong(before, now Sight) string {
	switch {
	case before.ID == "":
		return ""
	case now.ID != before.ID:
		return "the key means another task than before"
	case now.Run < before.Run:
		return "the run went back"
	case now.Run > before.Run && (before.State == api.Succeeded || before.State == api.Cancelled || before.Permanent):
		return "a final task runs again"
	case now.Run > before.Run:
		return ""
	case now.Epoch < before.Epoch:
		return "the epoch went back"
	case before.State == api.Unknown && now.State == api.Cancelled:
		return "" // by a person's word
	case before.State.Settled() && now.State != before.State:
		return "a settled task changed its state"
	case before.State.Settled() && now.Epoch != before.Epoch:
		return "a settled task was worked on"
	case before.State == api.Succeeded && now.Sum != before.Sum:
		return "the result changed"
	}
	return ""
}

// Later says whether now tells of a later moment than before.
func Later(before, now Sight) bool {
	switch {
	case before.ID == "":
		return true
	case now.Run != before.Run:
		return now.Run > before.Run
	case now.Epoch != before.Epoch:
		return now.Epoch > before.Epoch
	}
	return now.State.Settled() && !before.State.Settled() || before.State == api.Unknown && now.State == api.Cancelled
}
