-- +goose Up

-- Who is held where, so that a release finds them; tried means that a delivery
-- was made before.
CREATE INDEX effects_held ON onefold.effects (destination, tenant, (epoch > 0)) WHERE state = 'held';

-- +goose Down
DROP INDEX onefold.effects_held;
