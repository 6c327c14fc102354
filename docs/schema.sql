-- The schema as all migrations leave it, for readers: River's tables and ours. Made by pg_dump; do not edit.
-- Renew it with: go generate ./migrations

CREATE SCHEMA onefold;

CREATE TYPE onefold.river_job_state AS ENUM (
    'available',
    'cancelled',
    'completed',
    'discarded',
    'pending',
    'retryable',
    'running',
    'scheduled'
);

CREATE FUNCTION onefold.river_job_state_in_bitmask(bitmask bit, state onefold.river_job_state) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE state
        WHEN 'available' THEN get_bit(bitmask, 7)
        WHEN 'cancelled' THEN get_bit(bitmask, 6)
        WHEN 'completed' THEN get_bit(bitmask, 5)
        WHEN 'discarded' THEN get_bit(bitmask, 4)
        WHEN 'pending'   THEN get_bit(bitmask, 3)
        WHEN 'retryable' THEN get_bit(bitmask, 2)
        WHEN 'running'   THEN get_bit(bitmask, 1)
        WHEN 'scheduled' THEN get_bit(bitmask, 0)
        ELSE 0
    END = 1;
$$;

CREATE TABLE onefold.api_keys (
    id text NOT NULL,
    tenant text,
    name text NOT NULL,
    secret_hash bytea NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT api_keys_check CHECK (((tenant IS NULL) OR (NOT ('admin'::text = ANY (scopes))))),
    CONSTRAINT api_keys_id_check CHECK ((id ~ '^[a-z0-9]{8,32}$'::text)),
    CONSTRAINT api_keys_scopes_check CHECK (((cardinality(scopes) > 0) AND (scopes <@ ARRAY['submit'::text, 'read'::text, 'operate'::text, 'admin'::text]))),
    CONSTRAINT api_keys_secret_hash_check CHECK ((octet_length(secret_hash) = 32))
);

CREATE TABLE onefold.attempts (
    task_id uuid NOT NULL,
    epoch bigint NOT NULL,
    run integer NOT NULL,
    number integer NOT NULL,
    incarnation uuid NOT NULL,
    token uuid NOT NULL,
    provider text NOT NULL,
    config_hash text NOT NULL,
    regeneration boolean DEFAULT false NOT NULL,
    claimed_at timestamp with time zone DEFAULT now() NOT NULL,
    dispatched_at timestamp with time zone,
    closed_at timestamp with time zone,
    outcome text,
    counted boolean DEFAULT true NOT NULL,
    code text,
    message text,
    phase text,
    status integer,
    model text,
    request_id text,
    provider_job text,
    connect_ms integer,
    first_byte_ms integer,
    total_ms integer,
    bytes bigint,
    input_tokens bigint,
    cached_tokens bigint,
    output_tokens bigint,
    reasoning_tokens bigint,
    cost numeric,
    billed text DEFAULT 'unknown'::text NOT NULL,
    finish_reason text,
    truncated boolean DEFAULT false NOT NULL,
    late_at timestamp with time zone,
    late_result bytea,
    partial bytea,
    kept_result bytea,
    reply bytea,
    orphaned boolean DEFAULT false NOT NULL,
    provider_hash text DEFAULT ''::text NOT NULL,
    sends integer DEFAULT 1 NOT NULL,
    kept_effects bytea,
    job_over boolean DEFAULT false NOT NULL,
    asked_model text,
    CONSTRAINT attempts_billed_check CHECK ((billed = ANY (ARRAY['yes'::text, 'no'::text, 'unknown'::text]))),
    CONSTRAINT attempts_closed CHECK (((closed_at IS NULL) = (outcome IS NULL))),
    CONSTRAINT attempts_outcome_check CHECK ((outcome = ANY (ARRAY['succeeded'::text, 'not_sent'::text, 'refused'::text, 'rejected'::text, 'unauthorized'::text, 'unknown'::text, 'bad_output'::text, 'lost'::text, 'released'::text, 'cancelled'::text, 'failed'::text]))),
    CONSTRAINT attempts_sends_check CHECK ((sends >= 0))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    tenant text,
    actor text NOT NULL,
    action text NOT NULL,
    target_type text NOT NULL,
    target_id text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    request_id text,
    details jsonb DEFAULT '{}'::jsonb NOT NULL
);

ALTER TABLE onefold.audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME onefold.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE onefold.batch_bodies (
    batch_id uuid NOT NULL,
    number integer NOT NULL,
    body bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.batch_lines (
    batch_id uuid NOT NULL,
    number integer NOT NULL,
    line_id text NOT NULL,
    kind text NOT NULL,
    task_id uuid NOT NULL,
    state text DEFAULT 'open'::text NOT NULL,
    run integer DEFAULT 1 NOT NULL,
    folded boolean DEFAULT false NOT NULL,
    finished integer,
    error_code text,
    error_message text,
    error_field text,
    input_tokens bigint,
    cached_tokens bigint,
    output_tokens bigint,
    reasoning_tokens bigint,
    cost numeric,
    billed text,
    CONSTRAINT batch_lines_finished CHECK (((state = 'open'::text) = (finished IS NULL))),
    CONSTRAINT batch_lines_number_check CHECK ((number > 0)),
    CONSTRAINT batch_lines_state_check CHECK ((state = ANY (ARRAY['open'::text, 'succeeded'::text, 'failed'::text, 'unknown'::text, 'cancelled'::text, 'expired'::text, 'invalid'::text])))
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.batches (
    id uuid NOT NULL,
    tenant text NOT NULL,
    key text NOT NULL,
    kind text NOT NULL,
    webhook text,
    deadline_after interval NOT NULL,
    options_hash bytea NOT NULL,
    trace_id text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    form text,
    state text DEFAULT 'staging'::text NOT NULL,
    upload uuid,
    progress_at timestamp with time zone DEFAULT now() NOT NULL,
    chunks integer DEFAULT 0 NOT NULL,
    lines integer DEFAULT 0 NOT NULL,
    last_line integer DEFAULT 0 NOT NULL,
    bytes bigint DEFAULT 0 NOT NULL,
    hash bytea,
    run integer DEFAULT 1 NOT NULL,
    released integer DEFAULT 0 NOT NULL,
    finished integer DEFAULT 0 NOT NULL,
    started_at timestamp with time zone,
    deadline timestamp with time zone,
    ended_at timestamp with time zone,
    expires_at timestamp with time zone,
    traceparent text,
    CONSTRAINT batches_ended CHECK ((((state = ANY (ARRAY['completed'::text, 'cancelled'::text, 'expired'::text])) = (ended_at IS NOT NULL)) OR (state = 'dropped'::text))),
    CONSTRAINT batches_form_check CHECK ((form = ANY (ARRAY['onefold'::text, 'openai'::text]))),
    CONSTRAINT batches_hash_check CHECK ((octet_length(hash) = 32)),
    CONSTRAINT batches_key_check CHECK (((key <> ''::text) AND (octet_length(key) <= 255))),
    CONSTRAINT batches_options_hash_check CHECK ((octet_length(options_hash) = 32)),
    CONSTRAINT batches_run_check CHECK ((run > 0)),
    CONSTRAINT batches_started CHECK (((state = ANY (ARRAY['staging'::text, 'dropped'::text])) OR ((started_at IS NOT NULL) AND (deadline IS NOT NULL) AND (hash IS NOT NULL) AND (form IS NOT NULL) AND (lines > 0)))),
    CONSTRAINT batches_state_check CHECK ((state = ANY (ARRAY['staging'::text, 'running'::text, 'cancelling'::text, 'completed'::text, 'cancelled'::text, 'expired'::text, 'dropped'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.budgets (
    tenant text NOT NULL,
    id text NOT NULL,
    sends integer NOT NULL,
    used integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    used_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT budgets_id_check CHECK ((id <> ''::text)),
    CONSTRAINT budgets_sends_check CHECK ((sends > 0)),
    CONSTRAINT budgets_used_check CHECK ((used >= 0))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.deliveries (
    effect_id uuid NOT NULL,
    epoch bigint NOT NULL,
    number integer NOT NULL,
    incarnation uuid NOT NULL,
    token uuid NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    closed_at timestamp with time zone,
    outcome text,
    status integer,
    code text,
    message text,
    total_ms integer,
    late_at timestamp with time zone,
    late_outcome text,
    late_status integer,
    reply bytea,
    answer text,
    answer_status integer,
    signed text[],
    CONSTRAINT deliveries_answer_check CHECK ((answer = ANY (ARRAY['done'::text, 'not_done'::text, 'cannot_tell'::text]))),
    CONSTRAINT deliveries_closed CHECK (((closed_at IS NULL) = (outcome IS NULL))),
    CONSTRAINT deliveries_outcome_check CHECK ((outcome = ANY (ARRAY['delivered'::text, 'retry'::text, 'deferred'::text, 'unknown'::text, 'dead'::text, 'held'::text, 'lost'::text, 'not_sent'::text]))),
    CONSTRAINT deliveries_reply_check CHECK ((octet_length(reply) <= 16384))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.destination_secrets (
    id text NOT NULL,
    destination text NOT NULL,
    purpose text NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    retires_at timestamp with time zone,
    CONSTRAINT destination_secrets_id_check CHECK ((id <> ''::text)),
    CONSTRAINT destination_secrets_purpose_check CHECK ((purpose = ANY (ARRAY['sign'::text, 'auth'::text])))
);

CREATE TABLE onefold.destination_signers (
    destination text NOT NULL,
    secret text NOT NULL,
    first_at timestamp with time zone DEFAULT now() NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL,
    deliveries bigint NOT NULL,
    CONSTRAINT destination_signers_deliveries_check CHECK ((deliveries > 0))
)
WITH (fillfactor='50');

CREATE TABLE onefold.destination_tests (
    id uuid NOT NULL,
    destination text NOT NULL,
    actor text NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    class text,
    status integer,
    code text,
    message text,
    total_ms integer,
    reply bytea,
    recipient text,
    signed text[]
);

CREATE TABLE onefold.destinations (
    name text NOT NULL,
    body bytea NOT NULL,
    url_shown text NOT NULL,
    url bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT destinations_name_check CHECK ((name <> ''::text))
);

CREATE TABLE onefold.duplicate_spans (
    day date NOT NULL,
    tenant text NOT NULL,
    kind text NOT NULL,
    longest interval NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE onefold.effect_orders (
    tenant text NOT NULL,
    destination text NOT NULL,
    key text NOT NULL,
    last bigint NOT NULL,
    CONSTRAINT effect_orders_last_check CHECK ((last > 0))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.effects (
    id uuid NOT NULL,
    task_id uuid NOT NULL,
    tenant text NOT NULL,
    run integer NOT NULL,
    name text NOT NULL,
    outcome text NOT NULL,
    type text NOT NULL,
    destination text,
    method text,
    path text,
    headers bytea,
    body bytea,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    owner uuid,
    token uuid,
    job_id bigint,
    next_at timestamp with time zone DEFAULT now() NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    misses smallint DEFAULT 0 NOT NULL,
    first_miss_at timestamp with time zone,
    unclear boolean DEFAULT false NOT NULL,
    finished_at timestamp with time zone,
    error_code text,
    error_message text,
    reference text,
    order_key text,
    order_seq bigint,
    asked smallint DEFAULT 0 NOT NULL,
    compensations smallint DEFAULT 0 NOT NULL,
    stuck_for timestamp with time zone,
    stuck_at timestamp with time zone,
    traceparent text,
    CONSTRAINT effects_outcome_check CHECK ((outcome = ANY (ARRAY['succeeded'::text, 'failed'::text, 'unknown'::text, 'cancelled'::text]))),
    CONSTRAINT effects_owned CHECK ((((state = 'delivering'::text) = (owner IS NOT NULL)) AND ((owner IS NULL) = (token IS NULL)))),
    CONSTRAINT effects_settled CHECK (((state = ANY (ARRAY['waiting'::text, 'delivering'::text, 'held'::text])) = (finished_at IS NULL))),
    CONSTRAINT effects_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'delivering'::text, 'delivered'::text, 'held'::text, 'unknown'::text, 'dead'::text, 'discarded'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.elections (
    name text NOT NULL,
    process uuid NOT NULL,
    until timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE onefold.flow_charges (
    provider text NOT NULL,
    tenant text NOT NULL,
    batch boolean NOT NULL,
    priority smallint NOT NULL,
    finish bigint NOT NULL,
    CONSTRAINT flow_charges_finish_check CHECK ((finish >= 0))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.flows (
    provider text NOT NULL,
    tenant text NOT NULL,
    batch boolean NOT NULL,
    priority smallint NOT NULL,
    finish bigint DEFAULT 0 NOT NULL,
    CONSTRAINT flows_finish_check CHECK ((finish >= 0)),
    CONSTRAINT flows_priority_check CHECK (((priority >= 0) AND (priority <= 9)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.gates (
    scope text NOT NULL,
    name text NOT NULL,
    salt bytea NOT NULL,
    state text DEFAULT 'open'::text NOT NULL,
    until timestamp with time zone,
    code text,
    reason text,
    actor text,
    since timestamp with time zone DEFAULT now() NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    needs_attention boolean DEFAULT false NOT NULL,
    suspects uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    refused bytea[] DEFAULT '{}'::bytea[] NOT NULL,
    CONSTRAINT gates_cooling CHECK (((state = 'cooling'::text) = (until IS NOT NULL))),
    CONSTRAINT gates_epoch_check CHECK ((epoch >= 0)),
    CONSTRAINT gates_failures_check CHECK ((failures >= 0)),
    CONSTRAINT gates_name_check CHECK ((name <> ''::text)),
    CONSTRAINT gates_reason CHECK (((state = 'open'::text) = (code IS NULL))),
    CONSTRAINT gates_salt_check CHECK ((octet_length(salt) = 32)),
    CONSTRAINT gates_scope_check CHECK ((scope = ANY (ARRAY['provider'::text, 'destination'::text]))),
    CONSTRAINT gates_state_check CHECK ((state = ANY (ARRAY['open'::text, 'cooling'::text, 'held'::text, 'disabled'::text])))
)
WITH (fillfactor='50');

CREATE TABLE onefold.goose_version (
    id integer NOT NULL,
    version_id bigint NOT NULL,
    is_applied boolean NOT NULL,
    tstamp timestamp without time zone DEFAULT now() NOT NULL
);

ALTER TABLE onefold.goose_version ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME onefold.goose_version_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE onefold.holds (
    id uuid NOT NULL,
    tenant text,
    kind text,
    provider text,
    destination text,
    stops text[] NOT NULL,
    reason text NOT NULL,
    actor text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT holds_destination CHECK (((destination IS NULL) OR ((kind IS NULL) AND (provider IS NULL) AND (NOT ('submits'::text = ANY (stops)))))),
    CONSTRAINT holds_reason_check CHECK ((reason <> ''::text)),
    CONSTRAINT holds_stops_check CHECK (((cardinality(stops) > 0) AND (stops <@ ARRAY['submits'::text, 'claims'::text, 'retries'::text]))),
    CONSTRAINT holds_subject CHECK ((num_nonnulls(tenant, kind, provider, destination) > 0))
);

CREATE TABLE onefold.instance (
    one boolean DEFAULT true NOT NULL,
    salt bytea NOT NULL,
    CONSTRAINT instance_one_check CHECK (one),
    CONSTRAINT instance_salt_check CHECK ((octet_length(salt) = 32))
);

CREATE TABLE onefold.key_conflicts (
    tenant text NOT NULL,
    kind text NOT NULL,
    prefix text NOT NULL,
    day date NOT NULL,
    count bigint NOT NULL,
    last_task uuid NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT key_conflicts_count_check CHECK ((count > 0))
)
WITH (fillfactor='50');

CREATE TABLE onefold.kind_configs (
    hash text NOT NULL,
    kind text NOT NULL,
    body bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    newest_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE onefold.rates (
    scope text NOT NULL,
    name text NOT NULL,
    requests_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    tokens_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    CONSTRAINT rates_scope_check CHECK ((scope = ANY (ARRAY['provider'::text, 'destination'::text, 'tenant'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.river_job (
    id bigint NOT NULL,
    state onefold.river_job_state DEFAULT 'available'::onefold.river_job_state NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    max_attempts smallint DEFAULT 25 NOT NULL,
    attempted_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    finalized_at timestamp with time zone,
    scheduled_at timestamp with time zone DEFAULT now() NOT NULL,
    priority smallint DEFAULT 1 NOT NULL,
    args jsonb NOT NULL,
    attempted_by text[],
    errors jsonb[],
    kind text NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    queue text DEFAULT 'default'::text NOT NULL,
    tags character varying(255)[] DEFAULT '{}'::character varying[] NOT NULL,
    unique_key bytea,
    unique_states bit(8),
    CONSTRAINT finalized_or_finalized_at_null CHECK ((((finalized_at IS NULL) AND (state <> ALL (ARRAY['cancelled'::onefold.river_job_state, 'completed'::onefold.river_job_state, 'discarded'::onefold.river_job_state]))) OR ((finalized_at IS NOT NULL) AND (state = ANY (ARRAY['cancelled'::onefold.river_job_state, 'completed'::onefold.river_job_state, 'discarded'::onefold.river_job_state]))))),
    CONSTRAINT kind_length CHECK (((char_length(kind) > 0) AND (char_length(kind) < 128))),
    CONSTRAINT max_attempts_is_positive CHECK ((max_attempts > 0)),
    CONSTRAINT priority_in_range CHECK (((priority >= 1) AND (priority <= 4))),
    CONSTRAINT queue_length CHECK (((char_length(queue) > 0) AND (char_length(queue) < 128)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_cost_delay='0');

CREATE SEQUENCE onefold.river_job_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE onefold.river_job_id_seq OWNED BY onefold.river_job.id;

CREATE UNLOGGED TABLE onefold.river_leader (
    elected_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    leader_id text NOT NULL,
    name text DEFAULT 'default'::text NOT NULL,
    CONSTRAINT leader_id_length CHECK (((char_length(leader_id) > 0) AND (char_length(leader_id) < 128))),
    CONSTRAINT name_length CHECK ((name = 'default'::text))
);

CREATE TABLE onefold.river_migration (
    line text NOT NULL,
    version bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT line_length CHECK (((char_length(line) > 0) AND (char_length(line) < 128))),
    CONSTRAINT version_gte_1 CHECK ((version >= 1))
);

CREATE TABLE onefold.river_notification (
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    payload text NOT NULL,
    topic text NOT NULL,
    CONSTRAINT topic_length CHECK (((length(topic) > 0) AND (length(topic) < 128)))
);

CREATE SEQUENCE onefold.river_notification_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE onefold.river_notification_id_seq OWNED BY onefold.river_notification.id;

CREATE TABLE onefold.river_queue (
    name text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    paused_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP NOT NULL
);

CREATE TABLE onefold.shares (
    scope text NOT NULL,
    name text NOT NULL,
    incarnation uuid NOT NULL,
    slots integer NOT NULL,
    used integer NOT NULL,
    wanted integer NOT NULL,
    CONSTRAINT shares_check CHECK ((slots >= used)),
    CONSTRAINT shares_scope_check CHECK ((scope = ANY (ARRAY['provider'::text, 'destination'::text, 'kind'::text, 'tenant'::text]))),
    CONSTRAINT shares_used_check CHECK ((used >= 0)),
    CONSTRAINT shares_wanted_check CHECK ((wanted >= 0))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.source_secrets (
    source text NOT NULL,
    secret text NOT NULL,
    hour timestamp with time zone NOT NULL,
    count bigint NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT source_secrets_count_check CHECK ((count > 0))
)
WITH (fillfactor='50');

CREATE TABLE onefold.task_duplicates (
    task_id uuid NOT NULL,
    count bigint NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL,
    refused bigint DEFAULT 0 NOT NULL,
    CONSTRAINT task_duplicates_count_check CHECK (((count >= 0) AND ((count + refused) > 0))),
    CONSTRAINT task_duplicates_refused_check CHECK ((refused >= 0))
)
WITH (fillfactor='50');

CREATE TABLE onefold.task_submits (
    task_id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    what text NOT NULL,
    request_id text DEFAULT ''::text NOT NULL,
    client text DEFAULT ''::text NOT NULL,
    user_agent text DEFAULT ''::text NOT NULL,
    actor text DEFAULT ''::text NOT NULL,
    trace_id text DEFAULT ''::text NOT NULL,
    CONSTRAINT task_submits_what_check CHECK ((what = ANY (ARRAY['folded'::text, 'reopened'::text, 'refused'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.tasks (
    id uuid NOT NULL,
    tenant text NOT NULL,
    kind text NOT NULL,
    key text NOT NULL,
    dedupe text NOT NULL,
    provider text NOT NULL,
    priority smallint DEFAULT 4 NOT NULL,
    fingerprint bytea NOT NULL,
    fingerprint_version smallint NOT NULL,
    input_hash bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    virtual_at timestamp with time zone DEFAULT '2000-01-01 00:00:00+00'::timestamp with time zone NOT NULL,
    occurred_at timestamp with time zone,
    trace_id text,
    parent_id uuid,
    batch_id uuid,
    budget_id text,
    budget_sends integer,
    deadline_after interval NOT NULL,
    metadata bytea,
    effects bytea,
    input bytea,
    slot text DEFAULT ''::text NOT NULL,
    config_hash text NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    run integer DEFAULT 1 NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    owner uuid,
    token uuid,
    job_id bigint,
    run_at timestamp with time zone DEFAULT now() NOT NULL,
    deadline timestamp with time zone NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    total_attempts integer DEFAULT 0 NOT NULL,
    not_sent smallint DEFAULT 0 NOT NULL,
    released smallint DEFAULT 0 NOT NULL,
    lost smallint DEFAULT 0 NOT NULL,
    unclear boolean DEFAULT false NOT NULL,
    cancel_requested boolean DEFAULT false NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    expires_at timestamp with time zone,
    payload_purged_at timestamp with time zone,
    input_tokens bigint DEFAULT 0 NOT NULL,
    cached_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    reasoning_tokens bigint DEFAULT 0 NOT NULL,
    cost numeric,
    billed text DEFAULT 'no'::text NOT NULL,
    truncated boolean DEFAULT false NOT NULL,
    finish_reason text,
    error_code text,
    error_message text,
    error_permanent boolean,
    result_hash bytea,
    result bytea,
    last_error text,
    same smallint DEFAULT 0 NOT NULL,
    reported integer DEFAULT 0 NOT NULL,
    compensations smallint DEFAULT 0 NOT NULL,
    stuck_for timestamp with time zone,
    stuck_at timestamp with time zone,
    duplicate_of uuid,
    origin text,
    traceparent text,
    CONSTRAINT tasks_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT tasks_billed_check CHECK ((billed = ANY (ARRAY['yes'::text, 'no'::text, 'unknown'::text]))),
    CONSTRAINT tasks_budget_sends_check CHECK ((budget_sends > 0)),
    CONSTRAINT tasks_check CHECK ((total_attempts >= attempts)),
    CONSTRAINT tasks_dedupe_check CHECK ((dedupe = ANY (ARRAY['key'::text, 'open'::text, 'window'::text, 'none'::text]))),
    CONSTRAINT tasks_epoch_check CHECK ((epoch >= 0)),
    CONSTRAINT tasks_failed CHECK (((state = ANY (ARRAY['failed'::text, 'unknown'::text])) = (error_code IS NOT NULL))),
    CONSTRAINT tasks_fingerprint_check CHECK ((octet_length(fingerprint) = 32)),
    CONSTRAINT tasks_input_hash_check CHECK ((octet_length(input_hash) = 32)),
    CONSTRAINT tasks_key_check CHECK ((octet_length(key) <= 255)),
    CONSTRAINT tasks_keyed CHECK (((key <> ''::text) OR (dedupe = 'none'::text))),
    CONSTRAINT tasks_kind_check CHECK ((kind <> ''::text)),
    CONSTRAINT tasks_owned CHECK ((((state = 'running'::text) = (owner IS NOT NULL)) AND ((owner IS NULL) = (token IS NULL)))),
    CONSTRAINT tasks_payload CHECK (((payload_purged_at IS NOT NULL) OR ((input IS NOT NULL) AND ((result IS NOT NULL) = (result_hash IS NOT NULL))))),
    CONSTRAINT tasks_permanent CHECK (((state = 'failed'::text) = (error_permanent IS NOT NULL))),
    CONSTRAINT tasks_priority_check CHECK (((priority >= 0) AND (priority <= 9))),
    CONSTRAINT tasks_result CHECK (((result_hash IS NULL) OR (state = 'succeeded'::text))),
    CONSTRAINT tasks_result_hash_check CHECK ((octet_length(result_hash) = 32)),
    CONSTRAINT tasks_run_check CHECK ((run > 0)),
    CONSTRAINT tasks_settled CHECK (((state = ANY (ARRAY['pending'::text, 'running'::text])) = (finished_at IS NULL))),
    CONSTRAINT tasks_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'running'::text, 'succeeded'::text, 'failed'::text, 'unknown'::text, 'cancelled'::text]))),
    CONSTRAINT tasks_succeeded CHECK (((state <> 'succeeded'::text) OR (result_hash IS NOT NULL)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.tenant_counts (
    tenant text NOT NULL,
    queued bigint NOT NULL,
    spent numeric NOT NULL,
    day date NOT NULL,
    counted_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');

CREATE TABLE onefold.tenant_settings (
    tenant text NOT NULL,
    weight integer,
    requests_per_second numeric,
    queued numeric,
    running numeric,
    spend_per_day numeric,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT tenant_settings_queued_check CHECK ((queued > (0)::numeric)),
    CONSTRAINT tenant_settings_requests_per_second_check CHECK ((requests_per_second > (0)::numeric)),
    CONSTRAINT tenant_settings_running_check CHECK ((running > (0)::numeric)),
    CONSTRAINT tenant_settings_spend_per_day_check CHECK ((spend_per_day > (0)::numeric)),
    CONSTRAINT tenant_settings_tenant_check CHECK (((tenant = '*'::text) OR (tenant ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'::text))),
    CONSTRAINT tenant_settings_weight_check CHECK (((weight >= 1) AND (weight <= 10000)))
);

CREATE TABLE onefold.tenants (
    id text NOT NULL,
    weight integer DEFAULT 100 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT tenants_id_check CHECK ((id ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'::text)),
    CONSTRAINT tenants_weight_check CHECK ((weight > 0))
);

CREATE TABLE onefold.tombstones (
    task_id uuid NOT NULL,
    tenant text NOT NULL,
    kind text NOT NULL,
    key text NOT NULL,
    state text NOT NULL,
    error_code text,
    result_hash bytea,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    purged_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE onefold.usage_days (
    day date NOT NULL,
    tenant text NOT NULL,
    kind text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    calls bigint DEFAULT 0 NOT NULL,
    succeeded bigint DEFAULT 0 NOT NULL,
    regenerations bigint DEFAULT 0 NOT NULL,
    orphaned bigint DEFAULT 0 NOT NULL,
    unknown_billed bigint DEFAULT 0 NOT NULL,
    input_tokens bigint DEFAULT 0 NOT NULL,
    cached_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    reasoning_tokens bigint DEFAULT 0 NOT NULL,
    cost numeric,
    saved_calls bigint DEFAULT 0 NOT NULL,
    saved_input_tokens bigint DEFAULT 0 NOT NULL,
    saved_output_tokens bigint DEFAULT 0 NOT NULL,
    saved_cost numeric
);

CREATE TABLE onefold.workers (
    incarnation uuid NOT NULL,
    process uuid NOT NULL,
    instance text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    providers text[] DEFAULT '{}'::text[] NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    stopped_at timestamp with time zone,
    identity text
)
WITH (fillfactor='50');

ALTER TABLE ONLY onefold.river_job ALTER COLUMN id SET DEFAULT nextval('onefold.river_job_id_seq'::regclass);

ALTER TABLE ONLY onefold.river_notification ALTER COLUMN id SET DEFAULT nextval('onefold.river_notification_id_seq'::regclass);

ALTER TABLE ONLY onefold.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);

ALTER TABLE ONLY onefold.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (task_id, epoch);

ALTER TABLE ONLY onefold.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY onefold.batch_bodies
    ADD CONSTRAINT batch_bodies_pkey PRIMARY KEY (batch_id, number);

ALTER TABLE ONLY onefold.batch_lines
    ADD CONSTRAINT batch_lines_pkey PRIMARY KEY (batch_id, number);

ALTER TABLE ONLY onefold.batches
    ADD CONSTRAINT batches_pkey PRIMARY KEY (id);

ALTER TABLE ONLY onefold.budgets
    ADD CONSTRAINT budgets_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY onefold.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (effect_id, epoch);

ALTER TABLE ONLY onefold.destination_secrets
    ADD CONSTRAINT destination_secrets_pkey PRIMARY KEY (id);

ALTER TABLE ONLY onefold.destination_signers
    ADD CONSTRAINT destination_signers_pkey PRIMARY KEY (destination, secret);

ALTER TABLE ONLY onefold.destination_tests
    ADD CONSTRAINT destination_tests_pkey PRIMARY KEY (id);

ALTER TABLE ONLY onefold.destinations
    ADD CONSTRAINT destinations_pkey PRIMARY KEY (name);

ALTER TABLE ONLY onefold.duplicate_spans
    ADD CONSTRAINT duplicate_spans_pkey PRIMARY KEY (day, tenant, kind);

ALTER TABLE ONLY onefold.effect_orders
    ADD CONSTRAINT effect_orders_pkey PRIMARY KEY (tenant, destination, key);

ALTER TABLE ONLY onefold.effects
    ADD CONSTRAINT effects_once UNIQUE (task_id, run, name);

ALTER TABLE ONLY onefold.effects
    ADD CONSTRAINT effects_pkey PRIMARY KEY (id);

ALTER TABLE ONLY onefold.elections
    ADD CONSTRAINT elections_pkey PRIMARY KEY (name);

ALTER TABLE ONLY onefold.flows
    ADD CONSTRAINT flows_pkey PRIMARY KEY (provider, tenant, batch, priority);

ALTER TABLE ONLY onefold.gates
    ADD CONSTRAINT gates_pkey PRIMARY KEY (scope, name);

ALTER TABLE ONLY onefold.goose_version
    ADD CONSTRAINT goose_version_pkey PRIMARY KEY (id);

ALTER TABLE ONLY onefold.holds
    ADD CONSTRAINT holds_once UNIQUE NULLS NOT DISTINCT (tenant, kind, provider, destination);

ALTER TABLE ONLY onefold.holds
    ADD CONSTRAINT holds_pkey PRIMARY KEY (id);

ALTER TABLE ONLY onefold.instance
    ADD CONSTRAINT instance_pkey PRIMARY KEY (one);

ALTER TABLE ONLY onefold.key_conflicts
    ADD CONSTRAINT key_conflicts_pkey PRIMARY KEY (day, tenant, kind, prefix);

ALTER TABLE ONLY onefold.kind_configs
    ADD CONSTRAINT kind_configs_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY onefold.rates
    ADD CONSTRAINT rates_pkey PRIMARY KEY (scope, name);

ALTER TABLE ONLY onefold.river_job
    ADD CONSTRAINT river_job_pkey PRIMARY KEY (id);

ALTER TABLE ONLY onefold.river_leader
    ADD CONSTRAINT river_leader_pkey PRIMARY KEY (name);

ALTER TABLE ONLY onefold.river_migration
    ADD CONSTRAINT river_migration_pkey1 PRIMARY KEY (line, version);

ALTER TABLE ONLY onefold.river_notification
    ADD CONSTRAINT river_notification_pkey PRIMARY KEY (id);

ALTER TABLE ONLY onefold.river_queue
    ADD CONSTRAINT river_queue_pkey PRIMARY KEY (name);

ALTER TABLE ONLY onefold.shares
    ADD CONSTRAINT shares_pkey PRIMARY KEY (scope, name, incarnation);

ALTER TABLE ONLY onefold.source_secrets
    ADD CONSTRAINT source_secrets_pkey PRIMARY KEY (source, secret, hour);

ALTER TABLE ONLY onefold.task_duplicates
    ADD CONSTRAINT task_duplicates_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY onefold.tasks
    ADD CONSTRAINT tasks_key UNIQUE (tenant, kind, key, slot);

ALTER TABLE ONLY onefold.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (id);

ALTER TABLE ONLY onefold.tenant_counts
    ADD CONSTRAINT tenant_counts_pkey PRIMARY KEY (tenant);

ALTER TABLE ONLY onefold.tenant_settings
    ADD CONSTRAINT tenant_settings_pkey PRIMARY KEY (tenant);

ALTER TABLE ONLY onefold.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (id);

ALTER TABLE ONLY onefold.tombstones
    ADD CONSTRAINT tombstones_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY onefold.usage_days
    ADD CONSTRAINT usage_days_pkey PRIMARY KEY (day, tenant, kind, provider, model);

ALTER TABLE ONLY onefold.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (incarnation);

CREATE INDEX api_keys_tenant ON onefold.api_keys USING btree (tenant, name);

CREATE INDEX attempts_claimed ON onefold.attempts USING brin (claimed_at) WITH (pages_per_range='32', autosummarize='on');

CREATE INDEX attempts_open ON onefold.attempts USING btree (incarnation) WHERE (closed_at IS NULL);

CREATE INDEX audit_target ON onefold.audit USING btree (target_type, target_id, id);

CREATE UNIQUE INDEX batch_lines_finished ON onefold.batch_lines USING btree (batch_id, finished) WHERE (finished IS NOT NULL);

CREATE UNIQUE INDEX batch_lines_id ON onefold.batch_lines USING btree (batch_id, line_id, kind) WHERE (line_id <> ''::text);

CREATE INDEX batch_lines_open ON onefold.batch_lines USING btree (batch_id, number) WHERE (state = 'open'::text);

CREATE INDEX batches_expires ON onefold.batches USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE UNIQUE INDEX batches_key ON onefold.batches USING btree (tenant, key) WHERE (state <> 'dropped'::text);

CREATE INDEX batches_open ON onefold.batches USING btree (id) WHERE (ended_at IS NULL);

CREATE INDEX batches_tenant ON onefold.batches USING btree (tenant, id);

CREATE INDEX deliveries_open ON onefold.deliveries USING btree (incarnation) WHERE (closed_at IS NULL);

CREATE INDEX destination_secrets_of ON onefold.destination_secrets USING btree (destination, purpose, created_at);

CREATE INDEX destination_tests_open ON onefold.destination_tests USING btree (requested_at) WHERE (started_at IS NULL);

CREATE INDEX effects_awake ON onefold.effects USING btree (destination, next_at) WHERE ((finished_at IS NULL) AND (job_id IS NOT NULL));

CREATE INDEX effects_held ON onefold.effects USING btree (destination, tenant, ((epoch > 0))) WHERE (state = 'held'::text);

CREATE INDEX effects_order ON onefold.effects USING btree (tenant, destination, order_key, order_seq) WHERE ((order_key IS NOT NULL) AND (state <> ALL (ARRAY['delivered'::text, 'discarded'::text])));

CREATE INDEX effects_parked ON onefold.effects USING btree (destination, next_at) WHERE ((finished_at IS NULL) AND (job_id IS NULL));

CREATE INDEX effects_review ON onefold.effects USING btree (COALESCE(finished_at, stuck_at), id) WHERE ((state = ANY (ARRAY['unknown'::text, 'dead'::text])) OR ((stuck_at IS NOT NULL) AND (finished_at IS NULL)));

CREATE INDEX effects_review_tenant ON onefold.effects USING btree (tenant, COALESCE(finished_at, stuck_at), id) WHERE ((state = ANY (ARRAY['unknown'::text, 'dead'::text])) OR ((stuck_at IS NOT NULL) AND (finished_at IS NULL)));

CREATE INDEX river_job_kind ON onefold.river_job USING btree (kind);

CREATE INDEX river_job_prioritized_fetching_index ON onefold.river_job USING btree (state, queue, priority, scheduled_at, id);

CREATE INDEX river_job_state_and_finalized_at_index ON onefold.river_job USING btree (state, finalized_at) WHERE (finalized_at IS NOT NULL);

CREATE UNIQUE INDEX river_job_unique_idx ON onefold.river_job USING btree (unique_key) WHERE ((unique_key IS NOT NULL) AND (unique_states IS NOT NULL) AND onefold.river_job_state_in_bitmask(unique_states, state));

CREATE INDEX river_notification_created_at_idx ON onefold.river_notification USING btree (created_at);

CREATE INDEX river_notification_topic_id_idx ON onefold.river_notification USING btree (topic, id);

CREATE INDEX task_submits_task ON onefold.task_submits USING btree (task_id, at);

CREATE INDEX tasks_batch ON onefold.tasks USING btree (batch_id, id) WHERE (batch_id IS NOT NULL);

CREATE INDEX tasks_budget ON onefold.tasks USING btree (tenant, budget_id) WHERE (budget_id IS NOT NULL);

CREATE INDEX tasks_deadline ON onefold.tasks USING btree (deadline) WHERE (finished_at IS NULL);

CREATE INDEX tasks_expires ON onefold.tasks USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX tasks_parked ON onefold.tasks USING btree (provider, kind, tenant, run_at) WHERE ((finished_at IS NULL) AND (job_id IS NULL));

CREATE INDEX tasks_payload_due ON onefold.tasks USING btree (kind, finished_at) WHERE ((payload_purged_at IS NULL) AND (finished_at IS NOT NULL) AND ((error_code IS NULL) OR error_permanent));

CREATE INDEX tasks_review ON onefold.tasks USING btree (COALESCE(finished_at, stuck_at), id) WHERE (((error_code IS NOT NULL) AND (error_permanent IS NOT TRUE)) OR ((stuck_at IS NOT NULL) AND (finished_at IS NULL)));

CREATE INDEX tasks_review_tenant ON onefold.tasks USING btree (tenant, COALESCE(finished_at, stuck_at), id) WHERE (((error_code IS NOT NULL) AND (error_permanent IS NOT TRUE)) OR ((stuck_at IS NOT NULL) AND (finished_at IS NULL)));

CREATE INDEX tasks_run_at ON onefold.tasks USING btree (run_at) INCLUDE (tenant) WHERE (finished_at IS NULL);

CREATE INDEX tasks_tenant ON onefold.tasks USING btree (tenant, id);

CREATE INDEX tasks_unknown ON onefold.tasks USING btree (finished_at) WHERE ((finished_at IS NOT NULL) AND (expires_at IS NULL));

CREATE INDEX tombstones_purged ON onefold.tombstones USING btree (purged_at);

ALTER TABLE ONLY onefold.api_keys
    ADD CONSTRAINT api_keys_tenant_fkey FOREIGN KEY (tenant) REFERENCES onefold.tenants(id);

ALTER TABLE ONLY onefold.attempts
    ADD CONSTRAINT attempts_task_id_fkey FOREIGN KEY (task_id) REFERENCES onefold.tasks(id) ON DELETE CASCADE;

ALTER TABLE ONLY onefold.batch_lines
    ADD CONSTRAINT batch_lines_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES onefold.batches(id);

ALTER TABLE ONLY onefold.deliveries
    ADD CONSTRAINT deliveries_effect_id_fkey FOREIGN KEY (effect_id) REFERENCES onefold.effects(id) ON DELETE CASCADE;

ALTER TABLE ONLY onefold.destination_secrets
    ADD CONSTRAINT destination_secrets_destination_fkey FOREIGN KEY (destination) REFERENCES onefold.destinations(name) ON DELETE CASCADE;

ALTER TABLE ONLY onefold.effects
    ADD CONSTRAINT effects_task_id_fkey FOREIGN KEY (task_id) REFERENCES onefold.tasks(id) ON DELETE RESTRICT;

ALTER TABLE ONLY onefold.shares
    ADD CONSTRAINT shares_incarnation_fkey FOREIGN KEY (incarnation) REFERENCES onefold.workers(incarnation) ON DELETE CASCADE;

ALTER TABLE ONLY onefold.task_duplicates
    ADD CONSTRAINT task_duplicates_task_id_fkey FOREIGN KEY (task_id) REFERENCES onefold.tasks(id) ON DELETE CASCADE;

ALTER TABLE ONLY onefold.task_submits
    ADD CONSTRAINT task_submits_task_id_fkey FOREIGN KEY (task_id) REFERENCES onefold.tasks(id) ON DELETE CASCADE;

ALTER TABLE ONLY onefold.tasks
    ADD CONSTRAINT tasks_config_hash_fkey FOREIGN KEY (config_hash) REFERENCES onefold.kind_configs(hash);
