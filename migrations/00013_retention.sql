-- +goose NO TRANSACTION
-- +goose Up

-- Whose payload is to go next: tasks that cannot run again, by kind.
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_payload ON onefold.tasks (kind, finished_at)
    WHERE payload_purged_at IS NULL AND (state IN ('succeeded', 'cancelled') OR error_permanent);

CREATE INDEX CONCURRENTLY IF NOT EXISTS tombstones_purged ON onefold.tombstones (purged_at);

-- The longest time between a first submit and a duplicate of it, by day.
CREATE TABLE IF NOT EXISTS onefold.duplicate_spans (
    day     date     NOT NULL,
    tenant  text     NOT NULL,
    kind    text     NOT NULL,
    longest interval NOT NULL,
    PRIMARY KEY (day, tenant, kind)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE onefold.duplicate_spans;
DROP INDEX onefold.tombstones_purged;
DROP INDEX onefold.tasks_payload;
