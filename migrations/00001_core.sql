-- +goose Up

-- Who owns what. An API key without a tenant is an instance key.
CREATE TABLE onefold.tenants (
    id         text PRIMARY KEY CHECK (id ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
    weight     integer NOT NULL DEFAULT 100 CHECK (weight > 0),
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE onefold.api_keys (
    id          text PRIMARY KEY CHECK (id ~ '^[a-z0-9]{8,32}$'),
    tenant      text REFERENCES onefold.tenants (id),
    name        text NOT NULL,
    secret_hash bytea NOT NULL CHECK (octet_length(secret_hash) = 32),
    scopes      text[] NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['submit', 'read', 'operate', 'admin']),
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz,
    revoked_at  timestamptz,
    CHECK (tenant IS NULL OR NOT ('admin' = ANY (scopes)))
);
CREATE INDEX api_keys_tenant ON onefold.api_keys (tenant, name);

-- The body of every kind configuration a task was submitted under, so that a
-- worker with another version of the file can still run it.
CREATE TABLE onefold.kind_configs (
    hash       text PRIMARY KEY,
    kind       text NOT NULL,
    body       bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- One row an incarnation: a fresh one per process start and after any missed
-- lease. expires_at is set by its owner alone.
CREATE TABLE onefold.workers (
    incarnation uuid PRIMARY KEY,
    process     uuid NOT NULL,
    instance    text NOT NULL,
    host        text NOT NULL,
    pid         integer NOT NULL,
    version     text NOT NULL,
    providers   text[] NOT NULL DEFAULT '{}',
    started_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL,
    stopped_at  timestamptz
) WITH (fillfactor = 50);

-- Immutable columns and the input come first: updates then leave them alone
-- and stay on the page (fillfactor). No index names state, so that claiming
-- stays a HOT update.
CREATE TABLE onefold.tasks (
    id                  uuid PRIMARY KEY,
    tenant              text NOT NULL,
    kind                text NOT NULL CHECK (kind <> ''),
    key                 text NOT NULL CHECK (octet_length(key) <= 255),
    dedupe              text NOT NULL CHECK (dedupe IN ('key', 'open', 'window', 'none')),
    provider            text NOT NULL,
    priority            smallint NOT NULL DEFAULT 4 CHECK (priority BETWEEN 0 AND 9),
    fingerprint         bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    fingerprint_version smallint NOT NULL,
    input_hash          bytea NOT NULL CHECK (octet_length(input_hash) = 32),
    created_at          timestamptz NOT NULL DEFAULT now(),
    virtual_at          timestamptz NOT NULL DEFAULT now(),
    occurred_at         timestamptz,
    trace_id            text,
    parent_id           uuid,
    batch_id            uuid,
    budget_id           text,
    budget_sends        integer CHECK (budget_sends > 0),
    deadline_after      interval NOT NULL,
    metadata            bytea,
    effects             bytea,
    input               bytea,

    slot                text NOT NULL DEFAULT '',
    config_hash         text NOT NULL REFERENCES onefold.kind_configs (hash),
    state               text NOT NULL DEFAULT 'pending'
                        CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'unknown', 'cancelled')),
    run                 integer NOT NULL DEFAULT 1 CHECK (run > 0),
    epoch               bigint NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    owner               uuid,
    token               uuid,
    job_id              bigint,
    run_at              timestamptz NOT NULL DEFAULT now(),
    deadline            timestamptz NOT NULL,
    attempts            integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    total_attempts      integer NOT NULL DEFAULT 0 CHECK (total_attempts >= attempts),
    not_sent            smallint NOT NULL DEFAULT 0,
    released            smallint NOT NULL DEFAULT 0,
    lost                smallint NOT NULL DEFAULT 0,
    unclear             boolean NOT NULL DEFAULT false,
    cancel_requested    boolean NOT NULL DEFAULT false,
    started_at          timestamptz,
    finished_at         timestamptz,
    expires_at          timestamptz,
    payload_purged_at   timestamptz,
    input_tokens        bigint NOT NULL DEFAULT 0,
    cached_tokens       bigint NOT NULL DEFAULT 0,
    output_tokens       bigint NOT NULL DEFAULT 0,
    reasoning_tokens    bigint NOT NULL DEFAULT 0,
    cost                numeric,
    billed              text NOT NULL DEFAULT 'no' CHECK (billed IN ('yes', 'no', 'unknown')),
    truncated           boolean NOT NULL DEFAULT false,
    finish_reason       text,
    error_code          text,
    error_message       text,
    error_permanent     boolean,
    result_hash         bytea CHECK (octet_length(result_hash) = 32),
    result              bytea,

    CONSTRAINT tasks_key UNIQUE (tenant, kind, key, slot),
    CONSTRAINT tasks_keyed CHECK (key <> '' OR dedupe = 'none'),
    CONSTRAINT tasks_owned CHECK ((state = 'running') = (owner IS NOT NULL) AND (owner IS NULL) = (token IS NULL)),
    CONSTRAINT tasks_settled CHECK ((state IN ('pending', 'running')) = (finished_at IS NULL)),
    CONSTRAINT tasks_failed CHECK ((state IN ('failed', 'unknown')) = (error_code IS NOT NULL)),
    CONSTRAINT tasks_permanent CHECK ((state = 'failed') = (error_permanent IS NOT NULL)),
    CONSTRAINT tasks_result CHECK (result_hash IS NULL OR state = 'succeeded'),
    CONSTRAINT tasks_succeeded CHECK (state <> 'succeeded' OR result_hash IS NOT NULL),
    CONSTRAINT tasks_payload CHECK (payload_purged_at IS NOT NULL OR (input IS NOT NULL AND (result IS NOT NULL) = (result_hash IS NOT NULL)))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tasks_tenant ON onefold.tasks (tenant, id);
CREATE INDEX tasks_run_at ON onefold.tasks (run_at) WHERE finished_at IS NULL;
CREATE INDEX tasks_deadline ON onefold.tasks (deadline) WHERE finished_at IS NULL;
CREATE INDEX tasks_expires ON onefold.tasks (expires_at) WHERE expires_at IS NOT NULL;

-- Duplicates are counted apart, in batches, so that a storm of them never
-- touches the task's row.
CREATE TABLE onefold.task_duplicates (
    task_id uuid PRIMARY KEY REFERENCES onefold.tasks (id) ON DELETE CASCADE,
    count   bigint NOT NULL CHECK (count > 0),
    last_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- The ledger of sends: one row a claim.
CREATE TABLE onefold.attempts (
    task_id          uuid NOT NULL REFERENCES onefold.tasks (id) ON DELETE CASCADE,
    epoch            bigint NOT NULL,
    run              integer NOT NULL,
    number           integer NOT NULL,
    incarnation      uuid NOT NULL,
    token            uuid NOT NULL,
    provider         text NOT NULL,
    config_hash      text NOT NULL,
    regeneration     boolean NOT NULL DEFAULT false,
    claimed_at       timestamptz NOT NULL DEFAULT now(),
    dispatched_at    timestamptz,
    closed_at        timestamptz,
    outcome          text CHECK (outcome IN ('succeeded', 'not_sent', 'refused', 'rejected', 'unauthorized', 'unknown', 'bad_output', 'lost', 'released', 'cancelled', 'failed')),
    counted          boolean NOT NULL DEFAULT true,
    code             text,
    message          text,
    phase            text,
    status           integer,
    model            text,
    request_id       text,
    provider_job     text,
    connect_ms       integer,
    first_byte_ms    integer,
    total_ms         integer,
    bytes            bigint,
    input_tokens     bigint,
    cached_tokens    bigint,
    output_tokens    bigint,
    reasoning_tokens bigint,
    cost             numeric,
    billed           text NOT NULL DEFAULT 'unknown' CHECK (billed IN ('yes', 'no', 'unknown')),
    finish_reason    text,
    truncated        boolean NOT NULL DEFAULT false,
    late_at          timestamptz,
    late_result      bytea,
    partial          bytea,
    kept_result      bytea,
    reply            bytea,
    PRIMARY KEY (task_id, epoch),
    CONSTRAINT attempts_closed CHECK ((closed_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX attempts_open ON onefold.attempts (incarnation) WHERE closed_at IS NULL;

-- The outbox. What is stored here is what is signed and sent.
CREATE TABLE onefold.effects (
    id            uuid PRIMARY KEY,
    task_id       uuid NOT NULL REFERENCES onefold.tasks (id) ON DELETE RESTRICT,
    tenant        text NOT NULL,
    run           integer NOT NULL,
    name          text NOT NULL,
    outcome       text NOT NULL CHECK (outcome IN ('succeeded', 'failed', 'unknown', 'cancelled')),
    type          text NOT NULL,
    destination   text,
    method        text,
    path          text,
    headers       bytea,
    body          bytea,
    created_at    timestamptz NOT NULL DEFAULT now(),

    state         text NOT NULL DEFAULT 'waiting'
                  CHECK (state IN ('waiting', 'delivering', 'delivered', 'held', 'unknown', 'dead', 'discarded')),
    epoch         bigint NOT NULL DEFAULT 0,
    owner         uuid,
    token         uuid,
    job_id        bigint,
    next_at       timestamptz NOT NULL DEFAULT now(),
    attempts      integer NOT NULL DEFAULT 0,
    misses        smallint NOT NULL DEFAULT 0,
    first_miss_at timestamptz,
    unclear       boolean NOT NULL DEFAULT false,
    finished_at   timestamptz,
    error_code    text,
    error_message text,

    CONSTRAINT effects_once UNIQUE (task_id, run, name),
    CONSTRAINT effects_owned CHECK ((state = 'delivering') = (owner IS NOT NULL) AND (owner IS NULL) = (token IS NULL)),
    CONSTRAINT effects_settled CHECK ((state IN ('waiting', 'delivering', 'held')) = (finished_at IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX effects_next ON onefold.effects (next_at) WHERE finished_at IS NULL;

CREATE TABLE onefold.deliveries (
    effect_id    uuid NOT NULL REFERENCES onefold.effects (id) ON DELETE CASCADE,
    epoch        bigint NOT NULL,
    number       integer NOT NULL,
    incarnation  uuid NOT NULL,
    token        uuid NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    closed_at    timestamptz,
    outcome      text CHECK (outcome IN ('delivered', 'retry', 'deferred', 'unknown', 'dead', 'held', 'lost', 'not_sent')),
    status       integer,
    code         text,
    message      text,
    total_ms     integer,
    late_at      timestamptz,
    late_outcome text,
    late_status  integer,
    reply        bytea CHECK (octet_length(reply) <= 16384),
    PRIMARY KEY (effect_id, epoch),
    CONSTRAINT deliveries_closed CHECK ((closed_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX deliveries_open ON onefold.deliveries (incarnation) WHERE closed_at IS NULL;

-- What stays of a task after its purge.
CREATE TABLE onefold.tombstones (
    task_id     uuid PRIMARY KEY,
    tenant      text NOT NULL,
    kind        text NOT NULL,
    key         text NOT NULL,
    state       text NOT NULL,
    error_code  text,
    result_hash bytea,
    created_at  timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    purged_at   timestamptz NOT NULL DEFAULT now()
);

-- What a person did: who, what, why.
CREATE TABLE onefold.audit (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT now(),
    tenant      text,
    actor       text NOT NULL,
    action      text NOT NULL,
    target_type text NOT NULL,
    target_id   text NOT NULL,
    reason      text NOT NULL DEFAULT '',
    request_id  text,
    details     jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_target ON onefold.audit (target_type, target_id, id);

-- River's rows are wake-ups of ours and nothing else: the JSON indexes are
-- never read, and every move of a row would write to them.
DROP INDEX IF EXISTS onefold.river_job_args_index;
DROP INDEX IF EXISTS onefold.river_job_metadata_index;
ALTER TABLE onefold.river_job SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- +goose Down
ALTER TABLE onefold.river_job RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_cost_delay);
CREATE INDEX IF NOT EXISTS river_job_metadata_index ON onefold.river_job USING gin (metadata);
CREATE INDEX IF NOT EXISTS river_job_args_index ON onefold.river_job USING gin (args);
DROP TABLE onefold.audit;
DROP TABLE onefold.tombstones;
DROP TABLE onefold.deliveries;
DROP TABLE onefold.effects;
DROP TABLE onefold.attempts;
DROP TABLE onefold.task_duplicates;
DROP TABLE onefold.tasks;
DROP TABLE onefold.workers;
DROP TABLE onefold.kind_configs;
DROP TABLE onefold.api_keys;
DROP TABLE onefold.tenants;
