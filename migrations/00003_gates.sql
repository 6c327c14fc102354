-- +goose Up

-- The automatic state of each provider and destination. The row moves in the
-- transaction of the outcome that says so. salt keys the fingerprints of
-- credentials; refused are those that were turned away since an operator last
-- released the gate. suspects are different tasks that were turned away in a
-- row without a word why. epoch goes up with every change of state.
CREATE TABLE onefold.gates (
    scope           text NOT NULL CHECK (scope IN ('provider', 'destination')),
    name            text NOT NULL CHECK (name <> ''),
    salt            bytea NOT NULL CHECK (octet_length(salt) = 32),
    state           text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'cooling', 'held', 'disabled')),
    until           timestamptz,
    code            text,
    reason          text,
    actor           text,
    since           timestamptz NOT NULL DEFAULT now(),
    epoch           bigint NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    failures        integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    needs_attention boolean NOT NULL DEFAULT false,
    suspects        uuid[] NOT NULL DEFAULT '{}',
    refused         bytea[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (scope, name),
    CONSTRAINT gates_cooling CHECK ((state = 'cooling') = (until IS NOT NULL)),
    CONSTRAINT gates_reason CHECK ((state = 'open') = (code IS NULL))
) WITH (fillfactor = 50);

-- Switches an operator sets. A hold concerns what has all that it names.
CREATE TABLE onefold.holds (
    id          uuid PRIMARY KEY,
    tenant      text,
    kind        text,
    provider    text,
    destination text,
    stops       text[] NOT NULL CHECK (cardinality(stops) > 0 AND stops <@ ARRAY['submits', 'claims', 'retries']),
    reason      text NOT NULL CHECK (reason <> ''),
    actor       text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT holds_subject CHECK (num_nonnulls(tenant, kind, provider, destination) > 0),
    CONSTRAINT holds_destination CHECK (destination IS NULL OR (kind IS NULL AND provider IS NULL AND NOT 'submits' = ANY (stops))),
    CONSTRAINT holds_once UNIQUE NULLS NOT DISTINCT (tenant, kind, provider, destination)
);

-- What each process may have in flight of what has a bound: the shares of the
-- living ones never add up to more than it. A process moves its own row, a few
-- times a second at most, under a lock all shares have in common.
CREATE TABLE onefold.shares (
    scope       text NOT NULL CHECK (scope IN ('provider', 'destination', 'kind')),
    name        text NOT NULL,
    incarnation uuid NOT NULL REFERENCES onefold.workers (incarnation) ON DELETE CASCADE,
    slots       integer NOT NULL CHECK (slots >= used),
    used        integer NOT NULL CHECK (used >= 0),
    wanted      integer NOT NULL CHECK (wanted >= 0),
    PRIMARY KEY (scope, name, incarnation)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Requests and tokens a minute. Each column is the moment up to which they are
-- given out; a process takes several at a time.
CREATE TABLE onefold.rates (
    scope       text NOT NULL CHECK (scope IN ('provider', 'destination')),
    name        text NOT NULL,
    requests_at timestamptz NOT NULL DEFAULT '-infinity',
    tokens_at   timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (scope, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- A task that may not run now waits without a wake-up (job_id is null) until
-- upkeep gives it one.
CREATE INDEX tasks_parked ON onefold.tasks (provider, kind, tenant, run_at) WHERE finished_at IS NULL AND job_id IS NULL;

-- +goose Down
DROP INDEX onefold.tasks_parked;
DROP TABLE onefold.rates;
DROP TABLE onefold.shares;
DROP TABLE onefold.holds;
DROP TABLE onefold.gates;
