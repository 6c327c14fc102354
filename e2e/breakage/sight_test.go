package breakage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/onefold-dev/onefold/api"
)

// sight is what one answer said of a task.
type sight struct {
	id        string
	run       int
	epoch     int64
	state     api.State
	permanent bool
	sum       string // of the result's bytes
}

func see(t *api.Task) sight {
	s := sight{id: t.ID, run: t.Run, epoch: t.Epoch, state: t.State, permanent: t.Error != nil && t.Error.Permanent}
	if t.Result != nil {
		s.sum = hash(t.Result)
	}
	return s
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

func (s sight) String() string {
	return fmt.Sprintf("task %s run %d epoch %d %s %s", s.id, s.run, s.epoch, s.state, s.sum)
}

// wrong says why an answer to a request that began when before was known
// already must not be now; "" when it may. Within a run a task waits and runs,
// in turns, with a rising epoch, until it is settled; from then on nothing
// changes but by a new run, which only a failure that was not its own fault
// allows here.
func wrong(before, now sight) string {
	switch {
	case before.id == "":
		return ""
	case now.id != before.id:
		return "the key means another task than before"
	case now.run < before.run:
		return "the run went back"
	case now.run > before.run && (before.state == api.Succeeded || before.state == api.Cancelled || before.permanent):
		return "a final task runs again"
	case now.run > before.run:
		return ""
	case now.epoch < before.epoch:
		return "the epoch went back"
	case before.state == api.Unknown && now.state == api.Cancelled:
		return "" // by a person's word
	case before.state.Settled() && now.state != before.state:
		return "a settled task changed its state"
	case before.state.Settled() && now.epoch != before.epoch:
		return "a settled task was worked on"
	case before.state == api.Succeeded && now.sum != before.sum:
		return "the result changed"
	}
	return ""
}

// later says whether now tells of a later moment than before.
func later(before, now sight) bool {
	switch {
	case before.id == "":
		return true
	case now.run != before.run:
		return now.run > before.run
	case now.epoch != before.epoch:
		return now.epoch > before.epoch
	}
	return now.state.Settled() && !before.state.Settled() || before.state == api.Unknown && now.state == api.Cancelled
}
