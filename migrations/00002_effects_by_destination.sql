-- +goose Up

-- An effect beyond its destination's share of wake-ups waits without one (job_id
-- is null). These two find, by destination, who has a wake-up and who is next.
-- The index on next_at alone goes: the planner would walk it through all
-- effects of all destinations instead.
CREATE INDEX effects_awake ON onefold.effects (destination, next_at) WHERE finished_at IS NULL AND job_id IS NOT NULL;
CREATE INDEX effects_parked ON onefold.effects (destination, next_at) WHERE finished_at IS NULL AND job_id IS NULL;
DROP INDEX onefold.effects_next;

-- +goose Down
CREATE INDEX effects_next ON onefold.effects (next_at) WHERE finished_at IS NULL;
DROP INDEX onefold.effects_parked;
DROP INDEX onefold.effects_awake;
