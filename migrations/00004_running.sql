-- +goose Up

-- The error of the present run's last attempt, how many attempts in a row ended
-- with it where it looks final, and the sends that services which do the work
-- themselves reported beyond ours.
ALTER TABLE onefold.tasks
    ADD COLUMN last_error text,
    ADD COLUMN same smallint NOT NULL DEFAULT 0,
    ADD COLUMN reported integer NOT NULL DEFAULT 0;
CREATE INDEX tasks_budget ON onefold.tasks (tenant, budget_id) WHERE budget_id IS NOT NULL;

-- orphaned: the call was given up while the provider may have been at work.
-- provider_hash says under which settings of the provider the times were
-- measured. sends is what the call cost of a budget.
ALTER TABLE onefold.attempts
    ADD COLUMN orphaned boolean NOT NULL DEFAULT false,
    ADD COLUMN provider_hash text NOT NULL DEFAULT '',
    ADD COLUMN sends integer NOT NULL DEFAULT 1 CHECK (sends >= 0);

-- For what looks at a span of time: usage, and timeouts against what calls took.
-- A block range index costs the claim next to nothing.
CREATE INDEX attempts_claimed ON onefold.attempts USING brin (claimed_at) WITH (pages_per_range = 32, autosummarize = on);

-- One number of sends shared by all tasks that name it. used goes up in the
-- transaction that claims, so that no crash lets more calls out than sends.
CREATE TABLE onefold.budgets (
    tenant     text NOT NULL,
    id         text NOT NULL CHECK (id <> ''),
    sends      integer NOT NULL CHECK (sends > 0),
    used       integer NOT NULL DEFAULT 0 CHECK (used >= 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    used_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- What the attempts of purged tasks came to, a row a day: the purge adds to it
-- what it deletes, so that usage can be told for longer than tasks are kept.
CREATE TABLE onefold.usage_days (
    day               date NOT NULL,
    tenant            text NOT NULL,
    kind              text NOT NULL,
    provider          text NOT NULL,
    model             text NOT NULL,
    calls             bigint NOT NULL DEFAULT 0,
    succeeded         bigint NOT NULL DEFAULT 0,
    regenerations     bigint NOT NULL DEFAULT 0,
    orphaned          bigint NOT NULL DEFAULT 0,
    unknown_billed    bigint NOT NULL DEFAULT 0,
    input_tokens      bigint NOT NULL DEFAULT 0,
    cached_tokens     bigint NOT NULL DEFAULT 0,
    output_tokens     bigint NOT NULL DEFAULT 0,
    reasoning_tokens  bigint NOT NULL DEFAULT 0,
    cost              numeric,
    saved_calls       bigint NOT NULL DEFAULT 0,
    saved_input_tokens  bigint NOT NULL DEFAULT 0,
    saved_output_tokens bigint NOT NULL DEFAULT 0,
    saved_cost        numeric,
    PRIMARY KEY (day, tenant, kind, provider, model)
);

-- +goose Down
DROP TABLE onefold.usage_days;
DROP TABLE onefold.budgets;
DROP INDEX onefold.attempts_claimed;
ALTER TABLE onefold.attempts DROP COLUMN sends, DROP COLUMN provider_hash, DROP COLUMN orphaned;
DROP INDEX onefold.tasks_budget;
ALTER TABLE onefold.tasks DROP COLUMN reported, DROP COLUMN same, DROP COLUMN last_error;
