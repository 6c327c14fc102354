//go:build failpoints

package failpoints

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
)

// reopen fails a task by the system's fault and submits it again.
func (r *run) reopen() {
	p := r.submit("reopened", "plain", "fake:3*status=500;stamp")
	r.await(p, "failed", func() bool { return r.seen(p).State == api.Failed })
	r.asking.Go(func() { r.resubmit(p) })
}

// later is a task that stays pending for as long as a run takes.
func (r *run) later(key, kind string) *page {
	at := time.Now().Add(time.Hour)
	input, _ := json.Marshal(map[string]string{"model": "fake:stamp", "text": "the work of " + key})
	p := &page{key: key, body: api.Submit{Kind: kind, Input: input, RunAt: &at}}
	r.mu.Lock()
	r.pages = append(r.pages, p)
	r.mu.Unlock()
	r.resubmit(p)
	return p
}

func (r *run) cancel() { r.cancelled("cancelled") }

func (r *run) cancelled(key string) *page {
	p := r.later(key, "careful")
	r.asking.Go(func() {
		r.told(p, "cancel", func(c *client.Client) (*api.Task, error) { return c.Cancel(r.ctx, p.last.ID) })
	})
	return p
}

// resolve has a person let a task run again whose call's outcome is not known.
func (r *run) resolve() {
	p := r.submit("resolved", "careful", "fake:status=500;stamp")
	r.await(p, "in review", func() bool { return r.seen(p).State == api.Unknown })
	seen := r.seen(p)
	r.asking.Go(func() {
		r.told(p, "resolve", func(c *client.Client) (*api.Task, error) {
			return c.Resolve(r.ctx, seen.ID, api.Resolve{Action: api.ResolveRetry, Epoch: seen.Epoch, Reason: "nothing happened there"})
		})
	})
}

// redeliver has a person send an effect again that its receiver did not take. The
// same act is repeated until it is answered.
func (r *run) redeliver() {
	p := r.submit("rejected", "plain", "fake:status=400")
	r.await(p, "failed", func() bool { return r.seen(p).State == api.Failed })
	var e api.Effect
	r.await(p, "dead", func() bool {
		all, err := r.client().Effects(r.ctx, r.seen(p).ID)
		if err != nil || len(all) != 1 {
			return false
		}
		e = all[0]
		return e.State == api.EffectDead
	})
	r.asking.Go(func() {
		for r.ctx.Err() == nil {
			_, err := r.client().Redeliver(r.ctx, e.ID, e.Epoch, "the receiver is mended")
			if err == nil {
				return
			}
			if !errors.Is(err, api.ErrUnavailable) {
				r.mistake("redeliver: %v", err)
				return
			}
			r.pause()
		}
	})
}

// holdAndRelease has an operator close a destination, whose command does not get
// through the first time, and open it again.
func (r *run) holdAndRelease() {
	_, _ = r.onefold(r.arms(), "destinations", "hold", "crm", "--reason", "a test")
	for _, args := range [][]string{{"destinations", "hold", "crm", "--reason", "a test"}, {"destinations", "release", "crm"}} {
		if out, err := r.onefold(nil, args...); err != nil {
			r.t.Fatalf("onefold %v: %v\n%s", args, err, out)
		}
	}
}

// holdAKind stops the claims of a kind before there is any work.
func (r *run) holdAKind() {
	if out, err := r.onefold(nil, "hold", "--kind", "plain", "--reason", "a test"); err != nil {
		r.t.Fatalf("onefold hold: %v\n%s", err, out)
	}
}

// letItGo releases the kind once tasks of it are parked: they wait without a
// wake-up, and upkeep gives them theirs.
func (r *run) letItGo() {
	proc.Until(r.t, "a task is parked", func() bool {
		return r.w.Count(r.t, `SELECT count(*) FROM onefold.tasks WHERE kind = 'plain' AND state = 'pending' AND job_id IS NULL`) > 0
	})
	var id string
	if err := r.w.Pool.QueryRow(r.ctx, `SELECT id::text FROM onefold.holds`).Scan(&id); err != nil {
		r.t.Fatal(err)
	}
	if out, err := r.onefold(nil, "release", id); err != nil {
		r.t.Fatalf("onefold release: %v\n%s", err, out)
	}
}

// onefold runs a command of the CLI.
func (r *run) onefold(env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(r.ctx, filepath.Join(proc.Bin(r.t, proc.Build{Tags: "failpoints"}), "onefold"), args...)
	cmd.Env = append(append(os.Environ(), "ONEFOLD_DATABASE_URL="+r.w.Database), env...)
	return cmd.CombinedOutput()
}

// exec changes what no caller can.
func (r *run) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.w.Pool.Exec(r.ctx, sql, args...); err != nil {
		r.t.Fatal(err)
	}
}

// strayWake has a task due for hours whose wake-up lies in a queue that nobody
// serves: to the sweep it lives.
func (r *run) strayWake() {
	p := r.later("astray", "plain")
	id := r.seen(p).ID
	r.exec(`UPDATE onefold.tasks SET run_at = now() - interval '2 h' WHERE id = $1`, id)
	r.exec(`UPDATE onefold.river_job SET queue = 'p-nosuch', state = 'available', scheduled_at = now() WHERE args ->> 'id' = $1`, id)
}

// missADeadline has the deadline of a waiting task pass.
func (r *run) missADeadline() {
	p := r.later("late", "plain")
	r.exec(`UPDATE onefold.tasks SET deadline = now() WHERE id = $1`, r.seen(p).ID)
}

// erase has the payload of a cancelled task taken away, which anybody may ask
// for again.
func (r *run) erase() {
	p := r.cancelled("erased")
	r.await(p, "cancelled", func() bool { return r.seen(p).State == api.Cancelled })
	r.asking.Go(func() {
		r.told(p, "erase", func(c *client.Client) (*api.Task, error) { return c.Erase(r.ctx, p.last.ID, "asked for") })
	})
	id := r.seen(p).ID
	r.after = func() {
		proc.Until(r.t, "the payload is erased, and audited once", func() bool {
			return r.payloadGone(id) && r.w.Count(r.t, `SELECT count(*) FROM onefold.audit WHERE action = 'erase payload' AND target_id = $1`, id) == 1
		})
	}
}

func (r *run) payloadGone(id string) bool {
	return r.w.Count(r.t, `SELECT count(*) FROM onefold.tasks WHERE id = $1 AND payload_purged_at IS NOT NULL AND input IS NULL`, id) == 1
}

// expireAPayload has the retention of a final task's payload pass.
func (r *run) expireAPayload() {
	p := r.cancelled("old")
	r.await(p, "cancelled", func() bool { return r.seen(p).State == api.Cancelled })
	id := r.seen(p).ID
	r.exec(`UPDATE onefold.tasks SET finished_at = now() - interval '25 h' WHERE id = $1`, id)
	r.after = func() {
		proc.Until(r.t, "the payload is purged", func() bool { return r.payloadGone(id) })
	}
}

// expireAKey has the retention of a final task pass. From then on nobody asks
// for it.
func (r *run) expireAKey() {
	p := r.cancelled("expired")
	r.await(p, "cancelled", func() bool { return r.seen(p).State == api.Cancelled })
	id := r.seen(p).ID
	r.mu.Lock()
	p.gone = true
	r.mu.Unlock()
	r.exec(`UPDATE onefold.tasks SET expires_at = now() WHERE id = $1`, id)
	r.after = func() {
		proc.Until(r.t, "the key is purged", func() bool {
			return r.w.Count(r.t, `SELECT count(*) FROM onefold.tombstones WHERE task_id = $1`, id) == 1 &&
				r.w.Count(r.t, `SELECT count(*) FROM onefold.tasks WHERE id = $1`, id) == 0
		})
	}
}
