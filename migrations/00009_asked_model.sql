-- +goose Up

-- The model a call asked for: what a call that was cut before any reply is
-- grouped by, beside those whose reply names the model in its own words.
ALTER TABLE onefold.attempts ADD COLUMN asked_model text;

-- +goose Down
ALTER TABLE onefold.attempts DROP COLUMN asked_model;
