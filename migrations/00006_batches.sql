-- +goose Up

-- Which version of a kind is the newest one: that of the process that started
-- last. Those who submit inside a transaction of their own have no onefold.yaml.
ALTER TABLE onefold.kind_configs ADD COLUMN newest_at timestamptz NOT NULL DEFAULT now();

-- A JSONL file of tasks. While it is uploaded it is staging and nothing of it
-- runs; upload names the request that does it. A file that was refused, given
-- up or is past its retention is dropped: out of sight at once, its lines
-- removed bit by bit.
CREATE TABLE onefold.batches (
    id             uuid PRIMARY KEY,
    tenant         text NOT NULL,
    key            text NOT NULL CHECK (key <> '' AND octet_length(key) <= 255),
    kind           text NOT NULL,
    webhook        text,
    deadline_after interval NOT NULL,
    options_hash   bytea NOT NULL CHECK (octet_length(options_hash) = 32),
    trace_id       text,
    created_at     timestamptz NOT NULL DEFAULT now(),

    form           text CHECK (form IN ('onefold', 'openai')),
    state          text NOT NULL DEFAULT 'staging'
                   CHECK (state IN ('staging', 'running', 'cancelling', 'completed', 'cancelled', 'expired', 'dropped')),
    upload         uuid,
    progress_at    timestamptz NOT NULL DEFAULT now(),
    chunks         integer NOT NULL DEFAULT 0,
    lines          integer NOT NULL DEFAULT 0,
    last_line      integer NOT NULL DEFAULT 0,
    bytes          bigint NOT NULL DEFAULT 0,
    hash           bytea CHECK (octet_length(hash) = 32),
    run            integer NOT NULL DEFAULT 1 CHECK (run > 0),
    released       integer NOT NULL DEFAULT 0,
    finished       integer NOT NULL DEFAULT 0,
    started_at     timestamptz,
    deadline       timestamptz,
    ended_at       timestamptz,
    expires_at     timestamptz,

    CONSTRAINT batches_started CHECK ((state IN ('staging', 'dropped')) OR (started_at IS NOT NULL AND deadline IS NOT NULL AND hash IS NOT NULL AND form IS NOT NULL AND lines > 0)),
    CONSTRAINT batches_ended CHECK ((state IN ('completed', 'cancelled', 'expired')) = (ended_at IS NOT NULL) OR state = 'dropped')
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX batches_key ON onefold.batches (tenant, key) WHERE state <> 'dropped';
CREATE INDEX batches_tenant ON onefold.batches (tenant, id);
CREATE INDEX batches_open ON onefold.batches (id) WHERE ended_at IS NULL;
CREATE INDEX batches_expires ON onefold.batches (expires_at) WHERE expires_at IS NOT NULL;

-- One row a line. task_id is chosen when the line is staged and becomes the
-- task's id, so that releasing a line writes nothing here; where the line's key
-- meets a task that is there already, it names that one and folded is true. A
-- line is open until its task has settled; finished is its place in the order
-- of finishing. A line up to the batch's released has been handed over. What its
-- task used is copied when it settles, nothing where it is folded: another
-- submit pays for that one.
CREATE TABLE onefold.batch_lines (
    batch_id      uuid NOT NULL REFERENCES onefold.batches (id),
    number        integer NOT NULL CHECK (number > 0),
    line_id       text NOT NULL,
    kind          text NOT NULL,
    task_id       uuid NOT NULL,
    state         text NOT NULL DEFAULT 'open'
                  CHECK (state IN ('open', 'succeeded', 'failed', 'unknown', 'cancelled', 'expired', 'invalid')),
    run           integer NOT NULL DEFAULT 1,
    folded        boolean NOT NULL DEFAULT false,
    finished      integer,
    error_code    text,
    error_message text,
    error_field   text,
    input_tokens  bigint,
    cached_tokens bigint,
    output_tokens bigint,
    reasoning_tokens bigint,
    cost          numeric,
    billed        text,
    PRIMARY KEY (batch_id, number),
    CONSTRAINT batch_lines_finished CHECK ((state = 'open') = (finished IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX batch_lines_id ON onefold.batch_lines (batch_id, line_id, kind) WHERE line_id <> '';
CREATE INDEX batch_lines_open ON onefold.batch_lines (batch_id, number) WHERE state = 'open';
CREATE UNIQUE INDEX batch_lines_finished ON onefold.batch_lines (batch_id, finished) WHERE finished IS NOT NULL;

-- The lines as they stood in the file, until each has its task.
CREATE TABLE onefold.batch_bodies (
    batch_id uuid NOT NULL,
    number   integer NOT NULL,
    body     bytea NOT NULL,
    PRIMARY KEY (batch_id, number)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX tasks_batch ON onefold.tasks (batch_id, id) WHERE batch_id IS NOT NULL;

-- +goose Down
DROP INDEX onefold.tasks_batch;
DROP TABLE onefold.batch_bodies;
DROP TABLE onefold.batch_lines;
DROP TABLE onefold.batches;
ALTER TABLE onefold.kind_configs DROP COLUMN newest_at;
