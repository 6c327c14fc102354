-- +goose Up

-- What the reconciler did for a row that was due and did not move. stuck_for is
-- the due time (run_at, next_at) that both others are about: once the row has
-- moved on it differs, and they mean nothing. compensations counts the fresh
-- wake-ups it got for that time; stuck_at is when it was put into review.
ALTER TABLE onefold.tasks
    ADD COLUMN compensations smallint NOT NULL DEFAULT 0,
    ADD COLUMN stuck_for timestamptz,
    ADD COLUMN stuck_at timestamptz,
    ADD COLUMN duplicate_of uuid;
ALTER TABLE onefold.effects
    ADD COLUMN compensations smallint NOT NULL DEFAULT 0,
    ADD COLUMN stuck_for timestamptz,
    ADD COLUMN stuck_at timestamptz;

-- The review queue, the longest in it first. What the conditions name changes
-- only when a task settles or the reconciler marks it: claims and retries stay
-- updates that touch no index.
CREATE INDEX tasks_review ON onefold.tasks (coalesce(finished_at, stuck_at), id)
    WHERE (error_code IS NOT NULL AND error_permanent IS NOT TRUE) OR (stuck_at IS NOT NULL AND finished_at IS NULL);
CREATE INDEX tasks_review_tenant ON onefold.tasks (tenant, coalesce(finished_at, stuck_at), id)
    WHERE (error_code IS NOT NULL AND error_permanent IS NOT TRUE) OR (stuck_at IS NOT NULL AND finished_at IS NULL);
CREATE INDEX effects_review ON onefold.effects (coalesce(finished_at, stuck_at), id)
    WHERE state IN ('unknown', 'dead') OR (stuck_at IS NOT NULL AND finished_at IS NULL);
CREATE INDEX effects_review_tenant ON onefold.effects (tenant, coalesce(finished_at, stuck_at), id)
    WHERE state IN ('unknown', 'dead') OR (stuck_at IS NOT NULL AND finished_at IS NULL);

-- Submits that were refused because their key was used with another payload.
CREATE TABLE onefold.key_conflicts (
    tenant    text NOT NULL,
    kind      text NOT NULL,
    prefix    text NOT NULL,
    day       date NOT NULL,
    count     bigint NOT NULL CHECK (count > 0),
    last_task uuid NOT NULL,
    last_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (day, tenant, kind, prefix)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE onefold.key_conflicts;
DROP INDEX onefold.effects_review_tenant;
DROP INDEX onefold.effects_review;
DROP INDEX onefold.tasks_review_tenant;
DROP INDEX onefold.tasks_review;
ALTER TABLE onefold.effects DROP COLUMN compensations, DROP COLUMN stuck_for, DROP COLUMN stuck_at;
ALTER TABLE onefold.tasks DROP COLUMN compensations, DROP COLUMN stuck_for, DROP COLUMN stuck_at, DROP COLUMN duplicate_of;
