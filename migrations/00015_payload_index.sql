-- +goose NO TRANSACTION
-- +goose Up

-- The same tasks as those of tasks_payload, told without their state: an index
-- that names state makes every claim write to all indexes.
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_payload_due ON onefold.tasks (kind, finished_at)
    WHERE payload_purged_at IS NULL AND finished_at IS NOT NULL AND (error_code IS NULL OR error_permanent);
DROP INDEX IF EXISTS onefold.tasks_payload;

-- +goose Down
CREATE INDEX IF NOT EXISTS tasks_payload ON onefold.tasks (kind, finished_at)
    WHERE payload_purged_at IS NULL AND (state IN ('succeeded', 'cancelled') OR error_permanent);
DROP INDEX onefold.tasks_payload_due;
