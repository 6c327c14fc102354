-- +goose Up

-- reference: what an outside API knows the effect by; the child's id where the
-- effect is a follow-up task. order_key, order_seq: effects of one key leave
-- one after the other; one that is behind another has next_at = infinity.
-- asked counts the checks made since the last delivery of unknown outcome.
ALTER TABLE onefold.effects
    ADD COLUMN reference text,
    ADD COLUMN order_key text,
    ADD COLUMN order_seq bigint,
    ADD COLUMN asked smallint NOT NULL DEFAULT 0;
CREATE INDEX effects_order ON onefold.effects (tenant, destination, order_key, order_seq)
    WHERE order_key IS NOT NULL AND state NOT IN ('delivered', 'discarded');

-- One row a key that orders effects, locked by whoever gives out the next
-- number and by whoever lets the next effect go.
CREATE TABLE onefold.effect_orders (
    tenant      text NOT NULL,
    destination text NOT NULL,
    key         text NOT NULL,
    last        bigint NOT NULL CHECK (last > 0),
    PRIMARY KEY (tenant, destination, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- answer, answer_status: what the destination said when it was asked whether an
-- earlier delivery had arrived. signed: the ids of the secrets that signed.
ALTER TABLE onefold.deliveries
    ADD COLUMN answer text CHECK (answer IN ('done', 'not_done', 'cannot_tell')),
    ADD COLUMN answer_status integer,
    ADD COLUMN signed text[];

-- The effects that a service asked for with its answer, kept with the result
-- that could not be stored.
ALTER TABLE onefold.attempts ADD COLUMN kept_effects bytea;

-- What tells a process from every other on its machine: who is asked there can
-- say whether it has ended.
ALTER TABLE onefold.workers ADD COLUMN identity text;

-- Destinations made through the API; those of onefold.yaml stand there. body
-- holds the fields as they were given, without address and secrets.
CREATE TABLE onefold.destinations (
    name       text PRIMARY KEY CHECK (name <> ''),
    body       bytea NOT NULL,
    url_shown  text NOT NULL,
    url        bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- Their secrets, sealed. A signing secret that was replaced signs on until
-- retires_at, so that receivers have time to learn the new one.
CREATE TABLE onefold.destination_secrets (
    id          text PRIMARY KEY CHECK (id <> ''),
    destination text NOT NULL REFERENCES onefold.destinations (name) ON DELETE CASCADE,
    purpose     text NOT NULL CHECK (purpose IN ('sign', 'auth')),
    sealed      bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    retires_at  timestamptz
);
CREATE INDEX destination_secrets_of ON onefold.destination_secrets (destination, purpose, created_at);

-- A delivery tried on purpose, by a worker, from where effects leave.
CREATE TABLE onefold.destination_tests (
    id           uuid PRIMARY KEY,
    destination  text NOT NULL,
    actor        text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    started_at   timestamptz,
    finished_at  timestamptz,
    class        text,
    status       integer,
    code         text,
    message      text,
    total_ms     integer,
    reply        bytea
);
CREATE INDEX destination_tests_open ON onefold.destination_tests (requested_at) WHERE started_at IS NULL;

-- +goose Down
DROP TABLE onefold.destination_tests;
DROP TABLE onefold.destination_secrets;
DROP TABLE onefold.destinations;
ALTER TABLE onefold.workers DROP COLUMN identity;
ALTER TABLE onefold.attempts DROP COLUMN kept_effects;
ALTER TABLE onefold.deliveries DROP COLUMN answer, DROP COLUMN answer_status, DROP COLUMN signed;
DROP TABLE onefold.effect_orders;
DROP INDEX onefold.effects_order;
ALTER TABLE onefold.effects DROP COLUMN reference, DROP COLUMN order_key, DROP COLUMN order_seq, DROP COLUMN asked;
