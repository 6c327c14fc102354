-- +goose Up

-- A task's place among all tenants' is virtual_at: a time long past, so that
-- River's order by scheduled_at is the fair one. What waits now comes first, in
-- the order of its wake-ups; the default is for programs that know no places.
ALTER TABLE onefold.tasks ALTER COLUMN virtual_at SET DEFAULT '2000-01-01 00:00:00+00';
UPDATE onefold.tasks SET virtual_at = '2000-01-01 00:00:00+00' WHERE finished_at IS NULL;

-- How far the places given out reach: one row for each provider, tenant, sort of
-- traffic and priority, in nanoseconds of virtual time. Written by each process
-- a few times a second, never by a submit.
CREATE TABLE onefold.flows (
    provider text NOT NULL,
    tenant   text NOT NULL,
    batch    boolean NOT NULL,
    priority smallint NOT NULL CHECK (priority BETWEEN 0 AND 9),
    finish   bigint NOT NULL DEFAULT 0 CHECK (finish >= 0),
    PRIMARY KEY (provider, tenant, batch, priority)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- The same, as transactions of callers leave it behind (package enqueue): they
-- only insert, since a row they updated would stay locked as long as they like.
CREATE TABLE onefold.flow_charges (
    provider text NOT NULL,
    tenant   text NOT NULL,
    batch    boolean NOT NULL,
    priority smallint NOT NULL,
    finish   bigint NOT NULL CHECK (finish >= 0)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- What operators set for a tenant, or with the name * for all that have no
-- setting of their own. Null: as for *. Infinity: no bound.
CREATE TABLE onefold.tenant_settings (
    tenant              text PRIMARY KEY CHECK (tenant = '*' OR tenant ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
    weight              integer CHECK (weight BETWEEN 1 AND 10000),
    requests_per_second numeric CHECK (requests_per_second > 0),
    queued              numeric CHECK (queued > 0),
    running             numeric CHECK (running > 0),
    spend_per_day       numeric CHECK (spend_per_day > 0),
    updated_at          timestamptz NOT NULL DEFAULT now()
);

-- What each tenant with a bound has, counted about once a second by one process
-- for all.
CREATE TABLE onefold.tenant_counts (
    tenant     text PRIMARY KEY,
    queued     bigint NOT NULL,
    spent      numeric NOT NULL,
    day        date NOT NULL,
    counted_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

ALTER TABLE onefold.shares DROP CONSTRAINT shares_scope_check;
ALTER TABLE onefold.shares ADD CONSTRAINT shares_scope_check CHECK (scope IN ('provider', 'destination', 'kind', 'tenant'));
ALTER TABLE onefold.rates DROP CONSTRAINT rates_scope_check;
ALTER TABLE onefold.rates ADD CONSTRAINT rates_scope_check CHECK (scope IN ('provider', 'destination', 'tenant'));

-- Counting what a tenant has queued reads the index alone.
DROP INDEX onefold.tasks_run_at;
CREATE INDEX tasks_run_at ON onefold.tasks (run_at) INCLUDE (tenant) WHERE finished_at IS NULL;

-- +goose Down
DROP INDEX onefold.tasks_run_at;
CREATE INDEX tasks_run_at ON onefold.tasks (run_at) WHERE finished_at IS NULL;
DELETE FROM onefold.rates WHERE scope = 'tenant';
DELETE FROM onefold.shares WHERE scope = 'tenant';
ALTER TABLE onefold.rates DROP CONSTRAINT rates_scope_check;
ALTER TABLE onefold.rates ADD CONSTRAINT rates_scope_check CHECK (scope IN ('provider', 'destination'));
ALTER TABLE onefold.shares DROP CONSTRAINT shares_scope_check;
ALTER TABLE onefold.shares ADD CONSTRAINT shares_scope_check CHECK (scope IN ('provider', 'destination', 'kind'));
DROP TABLE onefold.tenant_counts;
DROP TABLE onefold.tenant_settings;
DROP TABLE onefold.flow_charges;
DROP TABLE onefold.flows;
ALTER TABLE onefold.tasks ALTER COLUMN virtual_at SET DEFAULT now();
