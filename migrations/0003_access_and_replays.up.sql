-- The first way in: one bootstrap token, one-time links, cookie sessions. Hashes only.
CREATE TABLE api_tokens (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    hash bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    hint text NOT NULL,
    namespace text NOT NULL,
    memory_role text NOT NULL,
    console_role text NOT NULL,
    created_at timestamptz NOT NULL,
    last_used_at timestamptz,
    revoked_at timestamptz
);
SELECT noema_open_table('api_tokens');

CREATE TABLE login_links (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    token_id uuid NOT NULL REFERENCES api_tokens,
    expires_at timestamptz NOT NULL,
    used_at timestamptz
);
SELECT noema_open_table('login_links');

CREATE TABLE sessions (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    token_id uuid NOT NULL REFERENCES api_tokens,
    csrf text NOT NULL,
    created_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
SELECT noema_open_table('sessions');

CREATE TABLE replays (
    id uuid PRIMARY KEY,
    mind_id uuid NOT NULL REFERENCES minds,
    kind text NOT NULL CHECK (kind IN ('verify')),
    state text NOT NULL CHECK (state IN ('running', 'done', 'failed')),
    from_cycle bigint,
    to_cycle bigint,
    cycles bigint NOT NULL DEFAULT 0,
    verified bigint NOT NULL DEFAULT 0,
    first_difference jsonb,
    notes jsonb NOT NULL DEFAULT '[]',
    error text,
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    finished_at timestamptz
);
CREATE INDEX replays_age ON replays (created_at);
SELECT noema_open_table('replays');
