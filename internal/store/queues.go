package store

import (
	"context"
	"fmt"
)

// pauseQueues derives the pause of each provider's queue from what may be begun
// there, and tells River's clients of those that moved. $1 is true now and then:
// then all are told again, for a lost word would hold a queue for a minute.
const pauseQueues = `
WITH want AS (
    SELECT q.name,
           EXISTS (
               SELECT
               FROM onefold.gates AS g
               WHERE g.scope = 'provider' AND 'p-' || g.name = q.name
                   AND (g.state IN ('held', 'disabled') OR g.state = 'cooling' AND g.until > now()))
           OR EXISTS (
               SELECT
               FROM onefold.holds AS h
               WHERE 'p-' || h.provider = q.name AND h.tenant IS NULL AND h.kind IS NULL AND 'claims' = ANY (h.stops)) AS paused
    FROM onefold.river_queue AS q
    WHERE q.name LIKE 'p-%'
), moved AS (
    UPDATE onefold.river_queue AS q
    SET paused_at = CASE WHEN w.paused THEN now() END,
        updated_at = now()
    FROM want AS w
    WHERE q.name = w.name AND (q.paused_at IS NOT NULL) <> w.paused
    RETURNING q.name
)
SELECT pg_notify('onefold.river_control',
    jsonb_build_object('action', CASE WHEN w.paused THEN 'pause' ELSE 'resume' END, 'queue', w.name)::text)
FROM want AS w
WHERE $1 OR w.name IN (SELECT m.name FROM moved AS m)`

// PauseQueues pauses and resumes the queues of providers as their gates and
// holds stand. A queue nobody has started is left out.
func PauseQueues(ctx context.Context, db DBTX, again bool) error {
	if _, err := db.Exec(ctx, pauseQueues, again); err != nil {
		return fmt.Errorf("pause queues: %w", err)
	}
	return nil
}
