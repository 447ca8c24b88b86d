-- Accounts: tenants and namespaces, people and their memberships, sessions, tokens, links, and the
-- audit log. Of every secret only a hash is kept; a TOTP seed is encrypted under a key that is not here.

-- A tenant is the first segment of a namespace. Nobody comes in through a suspended one.
CREATE TABLE tenants (
    name text PRIMARY KEY CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended')),
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
SELECT noema_open_table('tenants');

CREATE TABLE namespaces (
    path text PRIMARY KEY CHECK (path ~ '^[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}){0,7}$'),
    tenant text NOT NULL REFERENCES tenants CHECK (tenant = split_part(path, '/', 1)),
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
SELECT noema_open_table('namespaces');

-- A fresh install has `home`; an older one also what its minds already live in.
INSERT INTO tenants (name, created_by)
    SELECT 'home', 'migration' UNION SELECT split_part(namespace, '/', 1), 'migration' FROM minds;
INSERT INTO namespaces (path, tenant, created_by)
    SELECT 'home', 'home', 'migration'
    UNION SELECT namespace, split_part(namespace, '/', 1), 'migration' FROM minds;

-- The epoch grows with every change of a password, a second factor or a role, and with disabling;
-- a session or link of an earlier epoch is dead, even one that is written a moment later.
CREATE TABLE users (
    id uuid PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9._@-]{0,62}$'),
    password_hash text,
    console_role text NOT NULL CHECK (console_role IN ('administrator', 'operator', 'observer')),
    credentials_epoch bigint NOT NULL DEFAULT 0,
    active_namespace text REFERENCES namespaces,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    password_changed_at timestamptz,
    last_login_at timestamptz,
    disabled_at timestamptz,
    totp_secret bytea,
    totp_confirmed_at timestamptz,
    totp_last_step bigint,
    CHECK (totp_confirmed_at IS NULL OR totp_secret IS NOT NULL)
);
SELECT noema_open_table('users');

-- Rows are closed, not deleted: who could see what, and when, stays answerable.
CREATE TABLE memberships (
    id uuid PRIMARY KEY,
    user_id uuid NOT NULL REFERENCES users,
    namespace text NOT NULL REFERENCES namespaces,
    role text NOT NULL CHECK (role IN ('owner', 'admin', 'auditor', 'member', 'agent')),
    valid_from timestamptz NOT NULL,
    valid_to timestamptz CHECK (valid_to >= valid_from),
    granted_by text NOT NULL,
    granted_at timestamptz NOT NULL
);
CREATE INDEX memberships_user ON memberships (user_id, namespace, valid_from);
CREATE INDEX memberships_namespace ON memberships (namespace);
SELECT noema_open_table('memberships');

CREATE TABLE recovery_codes (
    user_id uuid NOT NULL REFERENCES users,
    hash bytea NOT NULL CHECK (octet_length(hash) = 32),
    used_at timestamptz,
    PRIMARY KEY (user_id, hash)
);
SELECT noema_open_table('recovery_codes');

-- A token without a user was made on the daemon's own machine, by whoever may open its database.
-- A token made with another one has it as its parent, and ends with it.
ALTER TABLE api_tokens
    ADD COLUMN user_id uuid REFERENCES users,
    ADD COLUMN parent_id uuid REFERENCES api_tokens,
    ADD COLUMN expires_at timestamptz,
    ADD CONSTRAINT api_tokens_namespace FOREIGN KEY (namespace) REFERENCES namespaces,
    ADD CONSTRAINT api_tokens_memory_role
        CHECK (memory_role IN ('owner', 'admin', 'auditor', 'member', 'agent')),
    ADD CONSTRAINT api_tokens_console_role
        CHECK (console_role IN ('administrator', 'operator', 'observer', 'none'));
CREATE INDEX api_tokens_user ON api_tokens (user_id);
CREATE INDEX api_tokens_parent ON api_tokens (parent_id);

-- A session's form token is derived from its secret, so that no row holds it.
DROP TABLE sessions, login_links;
CREATE TABLE sessions (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    id uuid NOT NULL UNIQUE,
    user_id uuid REFERENCES users,
    token_id uuid REFERENCES api_tokens,
    epoch bigint NOT NULL,
    namespace text REFERENCES namespaces,
    method text NOT NULL,
    user_agent text NOT NULL DEFAULT '',
    address text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    re_authenticated_at timestamptz,
    CHECK (num_nonnulls(user_id, token_id) = 1)
);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_token ON sessions (token_id);
SELECT noema_open_table('sessions');

CREATE TABLE login_links (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    user_id uuid REFERENCES users,
    token_id uuid REFERENCES api_tokens,
    epoch bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    CHECK (num_nonnulls(user_id, token_id) = 1)
);
CREATE INDEX login_links_user ON login_links (user_id);
CREATE INDEX login_links_token ON login_links (token_id);
SELECT noema_open_table('login_links');

-- The right password was given, the second factor is still due.
CREATE TABLE pending_logins (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    user_id uuid NOT NULL REFERENCES users,
    epoch bigint NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX pending_logins_user ON pending_logins (user_id);
SELECT noema_open_table('pending_logins');

-- A browser that this person has come in with before. Its failures count apart from strangers'.
CREATE TABLE known_devices (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    user_id uuid NOT NULL REFERENCES users,
    seen_at timestamptz NOT NULL
);
CREATE INDEX known_devices_user ON known_devices (user_id);
SELECT noema_open_table('known_devices');

-- To create the first administrator, or to choose a password; each works once.
CREATE TABLE setup_links (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    purpose text NOT NULL CHECK (purpose IN ('first administrator', 'password')),
    user_id uuid REFERENCES users CHECK ((user_id IS NOT NULL) = (purpose = 'password')),
    epoch bigint NOT NULL DEFAULT 0,
    created_by text NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at timestamptz
);
CREATE INDEX setup_links_user ON setup_links (user_id);
SELECT noema_open_table('setup_links');

-- account is a user's id, or for a name nobody has one of a million marks; lane tells strangers,
-- known browsers and the second factor apart.
CREATE TABLE login_failures (
    account text NOT NULL,
    lane text NOT NULL,
    count int NOT NULL CHECK (count > 0),
    last_at timestamptz NOT NULL,
    next_allowed_at timestamptz NOT NULL,
    PRIMARY KEY (account, lane)
);
CREATE INDEX login_failures_age ON login_failures (last_at);
SELECT noema_open_table('login_failures');

-- Which key something here was encrypted with: another machine with another key must not go on.
CREATE TABLE key_fingerprints (
    name text PRIMARY KEY,
    fingerprint bytea NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
SELECT noema_open_table('key_fingerprints');

-- Who tried what, and how it ended: one row per outcome. content holds purpose and detail.
CREATE TABLE audit_log (
    seq bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    occurred_at timestamptz NOT NULL,
    actor text NOT NULL,
    agent_id text NOT NULL,
    op text NOT NULL,
    target text NOT NULL,
    namespace text NOT NULL,
    result text NOT NULL CHECK (result IN ('ok', 'denied', 'miss', 'error')),
    content jsonb NOT NULL DEFAULT '{}',
    salt bytea,
    commitment bytea NOT NULL
);
COMMENT ON COLUMN audit_log.content IS 'purpose and detail; the only column a redaction replaces';
COMMENT ON COLUMN audit_log.commitment IS 'SHA-256(salt || canonical content); the salt is destroyed by a redaction';
CREATE INDEX audit_log_actor ON audit_log (actor, seq);
CREATE INDEX audit_log_op ON audit_log (op, seq);
CREATE INDEX audit_log_target ON audit_log (target, seq);
CREATE INDEX audit_log_namespace ON audit_log (namespace, seq);
CREATE INDEX audit_log_time ON audit_log (occurred_at);
SELECT noema_guard_history('audit_log', 'content', 'salt');

-- One function redacts both histories; a row of `redactions` says which one it was.
ALTER TABLE redactions ADD COLUMN history text NOT NULL DEFAULT 'cognitive_events'
    CHECK (history IN ('cognitive_events', 'audit_log'));

CREATE OR REPLACE FUNCTION noema_redact(target uuid, why text, under_policy text, requested_by text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    at_seq bigint;
    committed bytea;
    present jsonb;
    found_in text := 'cognitive_events';
BEGIN
    SELECT seq, commitment, content INTO at_seq, committed, present
    FROM public.cognitive_events WHERE id = target FOR UPDATE;
    IF NOT FOUND THEN
        found_in := 'audit_log';
        SELECT seq, commitment, content INTO at_seq, committed, present
        FROM public.audit_log WHERE id = noema_redact.target FOR UPDATE;
    END IF;
    IF at_seq IS NULL OR present = '{"redacted": true}'::jsonb THEN
        RETURN false;
    END IF;
    IF found_in = 'audit_log' THEN
        UPDATE public.audit_log SET content = '{"redacted": true}', salt = NULL WHERE seq = at_seq;
    ELSE
        UPDATE public.cognitive_events SET content = '{"redacted": true}', salt = NULL WHERE seq = at_seq;
    END IF;
    INSERT INTO public.redactions (event_id, event_seq, commitment, reason, policy, requester, history)
    VALUES (target, at_seq, committed, why, under_policy, requested_by, found_in);
    RETURN true;
END $$;
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'noema_redactor') THEN
        GRANT SELECT, UPDATE (content, salt) ON audit_log TO noema_redactor;
    END IF;
END $$;
