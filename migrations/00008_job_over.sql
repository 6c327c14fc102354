-- +goose Up

-- A background job (provider_job) that is over or gone cannot be polled again:
-- what follows it may be sent anew. Until then it is polled, never sent twice.
ALTER TABLE onefold.attempts ADD COLUMN job_over boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE onefold.attempts DROP COLUMN job_over;
