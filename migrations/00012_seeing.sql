-- +goose Up

-- Which process does something that one at a time does. It renews its row; when it
-- stops, another takes it once until has passed.
CREATE TABLE onefold.elections (
    name    text        PRIMARY KEY,
    process uuid        NOT NULL,
    until   timestamptz NOT NULL
) WITH (fillfactor = 50);

-- What folds the addresses of callers, so that who reads a timeline can tell two callers
-- apart and not who they are.
CREATE TABLE onefold.instance (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    salt bytea   NOT NULL CHECK (octet_length(salt) = 32)
);
INSERT INTO onefold.instance (salt) VALUES (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

-- Who made a task: {"request_id", "client", "user_agent", "actor"}, for its timeline.
ALTER TABLE onefold.tasks ADD COLUMN origin text;

-- The first duplicates of each task, one by one; all are counted in task_duplicates.
CREATE TABLE onefold.task_submits (
    task_id    uuid        NOT NULL REFERENCES onefold.tasks (id) ON DELETE CASCADE,
    at         timestamptz NOT NULL,
    what       text        NOT NULL CHECK (what IN ('folded', 'reopened', 'refused')),
    request_id text        NOT NULL DEFAULT '',
    client     text        NOT NULL DEFAULT '',
    user_agent text        NOT NULL DEFAULT '',
    actor      text        NOT NULL DEFAULT '',
    trace_id   text        NOT NULL DEFAULT ''
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX task_submits_task ON onefold.task_submits (task_id, at);

-- Refused: the key came with another payload.
ALTER TABLE onefold.task_duplicates ADD COLUMN refused bigint NOT NULL DEFAULT 0 CHECK (refused >= 0);
ALTER TABLE onefold.task_duplicates DROP CONSTRAINT task_duplicates_count_check;
ALTER TABLE onefold.task_duplicates ADD CONSTRAINT task_duplicates_count_check CHECK (count >= 0 AND count + refused > 0);

-- Unknown tasks are the settled ones that do not expire. No index may name state: every
-- move would have to be written to it.
CREATE INDEX tasks_unknown ON onefold.tasks (finished_at) WHERE finished_at IS NOT NULL AND expires_at IS NULL;

-- +goose Down
DROP INDEX onefold.tasks_unknown;
DELETE FROM onefold.task_duplicates WHERE count = 0;
ALTER TABLE onefold.task_duplicates DROP CONSTRAINT task_duplicates_count_check;
ALTER TABLE onefold.task_duplicates ADD CONSTRAINT task_duplicates_count_check CHECK (count > 0);
ALTER TABLE onefold.task_duplicates DROP COLUMN refused;
DROP TABLE onefold.task_submits;
ALTER TABLE onefold.tasks DROP COLUMN origin;
DROP TABLE onefold.instance;
DROP TABLE onefold.elections;
