-- Models as a replaceable service: providers and their secrets, roles with fallbacks, versioned prompts,
-- every call on record, and budgets that are reserved before a call and settled after it.
--
-- Money is in micro-units of one currency, prices in micro-units per million tokens.

CREATE TABLE secrets (
    id uuid PRIMARY KEY,
    sealed bytea NOT NULL,
    hint text NOT NULL DEFAULT '',
    set_by text NOT NULL,
    set_at timestamptz NOT NULL
);
COMMENT ON COLUMN secrets.sealed IS 'AES-256-GCM under a key that is not here; bound to the id of this row and the host that it is for';
SELECT noema_open_table('secrets');

CREATE TABLE llm_providers (
    id uuid PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    kind text NOT NULL CHECK (kind IN ('openai', 'azure', 'anthropic', 'ollama', 'bedrock', 'echo')),
    endpoint text NOT NULL DEFAULT '',
    model text NOT NULL DEFAULT '',
    parameters jsonb NOT NULL DEFAULT '{}',
    prices jsonb NOT NULL DEFAULT '{}',
    secret_id uuid REFERENCES secrets,
    allows_private boolean NOT NULL DEFAULT false,
    is_enabled boolean NOT NULL DEFAULT true,
    version int NOT NULL DEFAULT 1,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    updated_by text NOT NULL,
    updated_at timestamptz NOT NULL
);
SELECT noema_open_table('llm_providers');

-- Position 0 is the primary, the rest are fallbacks in order. Every version stays.
CREATE TABLE llm_roles (
    role text NOT NULL,
    version int NOT NULL CHECK (version > 0),
    chain jsonb NOT NULL,
    deadline_ms int NOT NULL CHECK (deadline_ms > 0),
    actor text NOT NULL,
    set_at timestamptz NOT NULL,
    PRIMARY KEY (role, version)
);
COMMENT ON COLUMN llm_roles.chain IS '[{provider, model?, parameters?}], the primary first; empty turns the role off';
SELECT noema_open_table('llm_roles');

CREATE TABLE prompts (
    name text NOT NULL,
    version int NOT NULL CHECK (version > 0),
    system text NOT NULL DEFAULT '',
    template text NOT NULL,
    note text NOT NULL DEFAULT '',
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (name, version)
);
SELECT noema_open_table('prompts');

-- Which version of a prompt is in use; rolling back is a new row here, never a change of a version.
CREATE TABLE prompt_uses (
    name text NOT NULL,
    version int NOT NULL,
    actor text NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (name, since),
    FOREIGN KEY (name, version) REFERENCES prompts
);
SELECT noema_open_table('prompt_uses');

-- One row per call, written before the call is made and again before its answer is used. content holds
-- all text: rendered messages, answer, schema; a redaction replaces it.
CREATE TABLE llm_calls (
    id uuid PRIMARY KEY,
    namespace text NOT NULL,
    mind_id uuid,
    cycle bigint,
    process text NOT NULL DEFAULT '',
    ordinal int NOT NULL DEFAULT 0,
    request_hash bytea NOT NULL CHECK (octet_length(request_hash) = 32),
    role text NOT NULL,
    prompt_name text,
    prompt_version int,
    state text NOT NULL CHECK (state IN ('in flight', 'answered', 'failed', 'unknown')),
    daemon uuid NOT NULL,
    content jsonb NOT NULL DEFAULT '{}',
    provider text,
    model text,
    parameters jsonb NOT NULL DEFAULT '{}',
    finish text,
    attempts jsonb NOT NULL DEFAULT '[]',
    input_tokens bigint,
    output_tokens bigint,
    reasoning_tokens bigint,
    cache_read_tokens bigint,
    cache_write_tokens bigint,
    cost_micros bigint,
    cost_kind text CHECK (cost_kind IN ('known', 'estimated', 'unknown', 'free')),
    latency_ms int,
    error text NOT NULL DEFAULT '',
    started_at timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    finished_at timestamptz
);
COMMENT ON COLUMN llm_calls.due_at IS 'by then it has ended, whatever comes of it';
COMMENT ON COLUMN llm_calls.error IS 'the code alone; what it says stands in content';
-- An answer on record is used and never asked for again, nor is one that is on its way.
CREATE UNIQUE INDEX llm_calls_once ON llm_calls (mind_id, cycle, process, ordinal, request_hash)
    WHERE mind_id IS NOT NULL AND cycle IS NOT NULL AND state IN ('in flight', 'answered');
CREATE INDEX llm_calls_time ON llm_calls (started_at, id);
CREATE INDEX llm_calls_mind ON llm_calls (mind_id, started_at) WHERE mind_id IS NOT NULL;
CREATE INDEX llm_calls_namespace ON llm_calls (namespace, started_at);
CREATE INDEX llm_calls_flying ON llm_calls (daemon) WHERE state = 'in flight';
SELECT noema_open_table('llm_calls');

-- A limit over one window: a cycle, or a day (UTC). key is a mind, a role, a provider; '*' is each.
CREATE TABLE budgets (
    id uuid PRIMARY KEY,
    scope text NOT NULL CHECK (scope IN ('cycle', 'mind', 'role', 'provider', 'everything')),
    key text NOT NULL DEFAULT '*',
    period text NOT NULL CHECK (period IN ('cycle', 'day', 'month')),
    money_micros bigint CHECK (money_micros >= 0),
    tokens bigint CHECK (tokens >= 0),
    actor text NOT NULL,
    set_at timestamptz NOT NULL,
    ended_at timestamptz,
    CHECK (money_micros IS NOT NULL OR tokens IS NOT NULL)
);
CREATE UNIQUE INDEX budgets_current ON budgets (scope, key, period) WHERE ended_at IS NULL;
SELECT noema_open_table('budgets');

CREATE TABLE budget_windows (
    budget_id uuid NOT NULL REFERENCES budgets,
    key text NOT NULL,
    starts text NOT NULL,
    reserved_micros bigint NOT NULL DEFAULT 0,
    spent_micros bigint NOT NULL DEFAULT 0,
    reserved_tokens bigint NOT NULL DEFAULT 0,
    spent_tokens bigint NOT NULL DEFAULT 0,
    unknown_calls int NOT NULL DEFAULT 0,
    stopped int NOT NULL DEFAULT 0,
    PRIMARY KEY (budget_id, key, starts)
);
COMMENT ON COLUMN budget_windows.starts IS 'the UTC day or month, or mind:cycle';
SELECT noema_open_table('budget_windows');

-- What one attempt holds until it is settled; what a crash leaves is settled as unknown at its full size.
CREATE TABLE budget_reservations (
    call_id uuid NOT NULL REFERENCES llm_calls,
    attempt int NOT NULL,
    budget_id uuid NOT NULL,
    key text NOT NULL,
    starts text NOT NULL,
    micros bigint NOT NULL,
    tokens bigint NOT NULL,
    PRIMARY KEY (call_id, attempt, budget_id, key, starts),
    FOREIGN KEY (budget_id, key, starts) REFERENCES budget_windows
);
SELECT noema_open_table('budget_reservations');
