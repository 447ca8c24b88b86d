-- Minds: their settings and modes as data, leases, checkpoints, what they were asked and what they said.

-- Modes are rows, not code. A changed mode is a new version; a cycle records which one it ran under.
-- k: how many thoughts a cycle may admit. timer: seconds between cycles nobody asked for; with a
-- range, each quiet cycle waits longer. profile: multiplier per feature in micro-units (absent =
-- 1000000). processes null = all. exits: first match wins.
CREATE TABLE modes (
    name text NOT NULL,
    version int NOT NULL,
    title text NOT NULL,
    description text NOT NULL,
    k int NOT NULL CHECK (k BETWEEN 0 AND 100),
    timer_min_s int CHECK (timer_min_s > 0),
    timer_max_s int CHECK (timer_max_s >= timer_min_s),
    triggers text[] NOT NULL,
    profile jsonb NOT NULL DEFAULT '{}',
    processes text[],
    may_act boolean NOT NULL,
    expires_s int CHECK (expires_s > 0),
    exits jsonb NOT NULL DEFAULT '[]',
    PRIMARY KEY (name, version)
);
SELECT noema_guard_history('modes');
INSERT INTO modes (name, version, title, description, k, timer_min_s, timer_max_s, triggers, profile, processes, may_act, expires_s, exits) VALUES
    ('awake', 1, 'Awake', 'Attends to everything; thinks at least once a minute.', 7, 60, 60,
     '{stimulus,message,goal,timer,operator,pending}', '{}', NULL, true, NULL,
     '[{"on": "quiet", "after_s": 600, "to": "idle"}]'),
    ('focused', 1, 'Focused', 'Few thoughts, relevance and goals first; expires by itself.', 3, 10, 10,
     '{stimulus,message,goal,timer,operator,pending}',
     '{"relevance": 2000000, "goal": 2000000, "surprise": 700000}', NULL, true, 900,
     '[{"on": "expired", "to": "awake"}]'),
    ('idle', 1, 'Idle', 'Nothing happens; looks back every five to fifteen minutes.', 5, 300, 900,
     '{stimulus,message,goal,timer,operator,pending}', '{"novelty": 1200000}', NULL, true, NULL,
     '[{"on": "stimulus", "to": "awake"}, {"on": "quiet", "after_s": 14400, "to": "dreaming"}]'),
    ('dreaming', 1, 'Dreaming', 'Consolidates; every capability is refused.', 3, 600, 600,
     '{stimulus,message,timer,operator,pending}', '{}', '{reflection}', false, 7200,
     '[{"on": "message", "to": "awake"}, {"on": "stimulus", "to": "awake"}, {"on": "expired", "to": "idle"}]'),
    ('asleep', 1, 'Asleep', 'Wakes for what is urgent and for an operator only.', 3, NULL, NULL,
     '{urgent,operator}', '{}', NULL, false, NULL, '[{"on": "urgent", "to": "awake"}]'),
    ('paused', 1, 'Paused', 'Thinks only when stepped; stimuli wait in the log.', 7, NULL, NULL,
     '{operator}', '{}', NULL, false, NULL, '[]');

CREATE TABLE minds (
    id uuid PRIMARY KEY,
    slug text NOT NULL UNIQUE CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    namespace text NOT NULL,
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'retired')),
    mode text NOT NULL DEFAULT 'awake',
    -- Raised by every operator's change of mode, so that a cycle under way does not undo it.
    mode_epoch bigint NOT NULL DEFAULT 0,
    mode_until timestamptz,
    cursor bigint NOT NULL DEFAULT 0,
    next_due timestamptz,
    settings_version int NOT NULL DEFAULT 1,
    cycles bigint NOT NULL DEFAULT 0,
    pending int NOT NULL DEFAULT 0,
    last_cycle_at timestamptz,
    last_error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
SELECT noema_open_table('minds');

CREATE TABLE mind_settings_versions (
    mind_id uuid NOT NULL,
    version int NOT NULL,
    settings jsonb NOT NULL,
    content jsonb NOT NULL DEFAULT '{}',
    actor text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (mind_id, version)
);
SELECT noema_guard_history('mind_settings_versions', 'content');

-- Who runs a mind. The epoch grows with every change of hands; a commit under an old one is refused.
CREATE TABLE mind_leases (
    mind_id uuid PRIMARY KEY REFERENCES minds,
    owner uuid NOT NULL,
    epoch bigint NOT NULL,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);
SELECT noema_open_table('mind_leases');

-- The checkpoint of a mind's fold: the workspace after every cycle, the whole state now and then.
CREATE TABLE workspace_states (
    mind_id uuid PRIMARY KEY REFERENCES minds,
    cycle bigint NOT NULL,
    workspace jsonb NOT NULL,
    state bytea,
    state_cycle bigint,
    state_version int
) WITH (fillfactor = 50);
SELECT noema_open_table('workspace_states');

CREATE TABLE idempotency_keys (
    scope text NOT NULL,
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 200),
    request_hash bytea NOT NULL,
    response jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
SELECT noema_open_table('idempotency_keys');

CREATE TABLE goals (
    id uuid PRIMARY KEY,
    mind_id uuid NOT NULL REFERENCES minds,
    text text NOT NULL,
    priority int NOT NULL CHECK (priority BETWEEN 0 AND 1000000),
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    closed_at timestamptz
);
CREATE INDEX goals_mind ON goals (mind_id, created_at);
SELECT noema_open_table('goals');

CREATE TABLE conversations (
    id uuid PRIMARY KEY,
    mind_id uuid NOT NULL REFERENCES minds,
    started_at timestamptz NOT NULL,
    actor text NOT NULL
);
CREATE INDEX conversations_mind ON conversations (mind_id, started_at);
SELECT noema_open_table('conversations');

-- A projection of the log for reading: the event of the same id is the truth.
CREATE TABLE messages (
    id uuid PRIMARY KEY,
    conversation_id uuid NOT NULL REFERENCES conversations,
    mind_id uuid NOT NULL REFERENCES minds,
    speaker text NOT NULL,
    text text NOT NULL,
    at timestamptz NOT NULL,
    in_reply_to uuid,
    cycle bigint,
    seq bigint GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX messages_conversation ON messages (conversation_id, seq);
CREATE INDEX messages_mind ON messages (mind_id, seq);
SELECT noema_open_table('messages');

-- What an admitted thought wants done, from the cycle's commit until it is done, refused or unknown.
CREATE TABLE intents (
    id uuid PRIMARY KEY,
    mind_id uuid NOT NULL REFERENCES minds,
    cycle_id uuid NOT NULL,
    cycle bigint NOT NULL,
    ordinal int NOT NULL,
    thought_id uuid NOT NULL,
    act text NOT NULL,
    content jsonb NOT NULL,
    state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'started', 'done', 'refused', 'unknown'))
);
CREATE INDEX intents_open ON intents (mind_id, cycle, ordinal) WHERE state IN ('pending', 'started');
SELECT noema_open_table('intents');

-- The group commit: the units of many minds in one call, each fenced and answered on its own.
--
-- units: one object per unit with what it needs of: mind, epoch (the fence), idem (an idempotency
-- key), cycle (what a finished cycle changes of its mind), messages, intents, acts, links. `parts`
-- names those of them that occur at all. events: one object per unit, in the same order, with its
-- events and, beside them, the fields that are the same for all of these.
-- Answers one row for every unit that was not committed, by its place in the call counted from 1:
-- lease_lost, key_reused, or repeated with what was answered before.
-- The events' INSERT comes last, because it takes the append lock and holds it through the commit.
CREATE FUNCTION noema_commit(units jsonb, parts text[], events jsonb[], wake text)
RETURNS TABLE (ord bigint, outcome text, answer jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    refused bigint[] := '{}';
    lost bigint[] := '{}';
    repeated bigint[] := '{}';
BEGIN
    IF 'mind' = ANY (parts) THEN
        -- Locking in one order keeps two daemons from waiting for each other.
        SELECT coalesce(array_agg(u.ord), '{}') INTO lost
        FROM ROWS FROM (jsonb_to_recordset(units) AS (mind uuid, epoch bigint)) WITH ORDINALITY AS u(mind, epoch, ord)
        LEFT JOIN (
            SELECT l.mind_id, l.epoch FROM mind_leases l
            WHERE l.mind_id IN (SELECT f.mind FROM jsonb_to_recordset(units) AS f(mind uuid))
              AND l.until > clock_timestamp()
            ORDER BY l.mind_id FOR SHARE
        ) held ON held.mind_id = u.mind AND held.epoch = u.epoch
        WHERE u.mind IS NOT NULL AND held.mind_id IS NULL;
        refused := lost;
    END IF;

    IF 'idem' = ANY (parts) THEN
        WITH wanted AS (
            SELECT u.ord, u.idem ->> 'scope' AS scope, u.idem ->> 'key' AS key,
                   decode(u.idem ->> 'hash', 'hex') AS hash, u.idem -> 'response' AS response
            FROM ROWS FROM (jsonb_to_recordset(units) AS (idem jsonb)) WITH ORDINALITY AS u(idem, ord)
            WHERE u.idem IS NOT NULL AND u.ord <> ALL (refused)
        ), first AS (
            SELECT DISTINCT ON (scope, key) * FROM wanted ORDER BY scope, key, ord
        ), taken AS (
            INSERT INTO idempotency_keys (scope, key, request_hash, response)
            SELECT scope, key, hash, response FROM first ORDER BY scope, key
            ON CONFLICT DO NOTHING RETURNING scope, key
        )
        SELECT coalesce(array_agg(w.ord), '{}') INTO repeated
        FROM wanted w LEFT JOIN (first f JOIN taken t USING (scope, key)) ON f.ord = w.ord
        WHERE f.ord IS NULL;
        refused := refused || repeated;
    END IF;

    IF 'cycle' = ANY (parts) THEN
        UPDATE minds m SET
            cursor = c.cursor, cycles = c.number, pending = c.pending, last_cycle_at = c.at,
            next_due = CASE WHEN m.mode_epoch = c.mode_epoch THEN c.next_due ELSE m.next_due END,
            mode = CASE WHEN m.mode_epoch = c.mode_epoch THEN c.mode ELSE m.mode END,
            mode_until = CASE WHEN m.mode_epoch = c.mode_epoch THEN c.mode_until ELSE m.mode_until END,
            last_error = NULL
        FROM ROWS FROM (jsonb_to_recordset(units) AS (mind uuid, cycle jsonb)) WITH ORDINALITY AS u(mind, cycle, ord),
             jsonb_to_record(u.cycle) AS c(cursor bigint, number bigint, pending int, at timestamptz,
                                           next_due timestamptz, mode text, mode_epoch bigint, mode_until timestamptz)
        WHERE m.id = u.mind AND u.cycle IS NOT NULL AND u.ord <> ALL (refused);
        INSERT INTO workspace_states AS w (mind_id, cycle, workspace, state, state_cycle, state_version)
        SELECT u.mind, (u.cycle ->> 'number')::bigint, u.cycle -> 'workspace',
               decode(u.cycle ->> 'state', 'base64'),
               CASE WHEN u.cycle ? 'state' THEN (u.cycle ->> 'number')::bigint END,
               (u.cycle ->> 'state_version')::int
        FROM ROWS FROM (jsonb_to_recordset(units) AS (mind uuid, cycle jsonb)) WITH ORDINALITY AS u(mind, cycle, ord)
        WHERE u.cycle IS NOT NULL AND u.ord <> ALL (refused)
        ON CONFLICT (mind_id) DO UPDATE SET
            cycle = excluded.cycle, workspace = excluded.workspace,
            state = coalesce(excluded.state, w.state),
            state_cycle = coalesce(excluded.state_cycle, w.state_cycle),
            state_version = coalesce(excluded.state_version, w.state_version);
    END IF;

    IF 'messages' = ANY (parts) THEN
        INSERT INTO conversations (id, mind_id, started_at, actor)
        SELECT DISTINCT ON (m.conversation) m.conversation, m.mind, m.at, m.speaker
        FROM ROWS FROM (jsonb_to_recordset(units) AS (messages jsonb)) WITH ORDINALITY AS u(messages, ord),
             jsonb_to_recordset(u.messages) AS m(conversation uuid, mind uuid, at timestamptz, speaker text)
        WHERE u.ord <> ALL (refused)
        ON CONFLICT DO NOTHING;
        INSERT INTO messages (id, conversation_id, mind_id, speaker, text, at, in_reply_to, cycle)
        SELECT m.id, m.conversation, m.mind, m.speaker, m.text, m.at, m.in_reply_to, m.cycle
        FROM ROWS FROM (jsonb_to_recordset(units) AS (messages jsonb)) WITH ORDINALITY AS u(messages, ord),
             jsonb_to_recordset(u.messages) AS m(id uuid, conversation uuid, mind uuid, speaker text,
                                                 text text, at timestamptz, in_reply_to uuid, cycle bigint)
        WHERE u.ord <> ALL (refused)
        ON CONFLICT DO NOTHING;
    END IF;

    IF 'intents' = ANY (parts) THEN
        INSERT INTO intents (id, mind_id, cycle_id, cycle, ordinal, thought_id, act, content)
        SELECT i.id, u.mind, i.cycle_id, i.cycle, i.ordinal, i.thought_id, i.act, i.content
        FROM ROWS FROM (jsonb_to_recordset(units) AS (mind uuid, intents jsonb)) WITH ORDINALITY AS u(mind, intents, ord),
             jsonb_to_recordset(u.intents) AS i(id uuid, cycle_id uuid, cycle bigint, ordinal int,
                                                thought_id uuid, act text, content jsonb)
        WHERE u.ord <> ALL (refused);
    END IF;

    IF 'acts' = ANY (parts) THEN
        UPDATE intents t SET state = a.state
        FROM ROWS FROM (jsonb_to_recordset(units) AS (acts jsonb)) WITH ORDINALITY AS u(acts, ord),
             jsonb_to_recordset(u.acts) AS a(intent uuid, state text)
        WHERE t.id = a.intent AND u.ord <> ALL (refused);
    END IF;

    IF 'links' = ANY (parts) THEN
        INSERT INTO derivations (from_id, to_id, kind)
        SELECT d.source, d.to, d.kind
        FROM ROWS FROM (jsonb_to_recordset(units) AS (links jsonb)) WITH ORDINALITY AS u(links, ord),
             jsonb_to_recordset(u.links) AS d(source uuid, "to" uuid, kind text)
        WHERE u.ord <> ALL (refused)
        ON CONFLICT DO NOTHING;
    END IF;

    PERFORM pg_notify('noema_events', wake);
    INSERT INTO cognitive_events
        (id, mind_id, cycle_id, type, occurred_at, actor, causes, data, content, salt, commitment)
    SELECT e.id, coalesce(e.mind, c.mind), coalesce(e.cycle, c.cycle), e.type, coalesce(e.occurred, c.occurred),
           coalesce(e.actor, c.actor), coalesce(e.causes, '{}'), e.data, e.content,
           decode(e.salt, 'base64'), decode(e.commitment, 'base64')
    FROM unnest(events) WITH ORDINALITY AS u(doc, ord),
         jsonb_to_record(u.doc) AS c(mind uuid, cycle uuid, occurred timestamptz, actor text, events jsonb),
         jsonb_to_recordset(c.events)
             AS e(id uuid, mind uuid, cycle uuid, type text, occurred timestamptz, actor text, causes uuid[],
                  data jsonb, content jsonb, salt text, commitment text)
    WHERE u.ord <> ALL (refused);

    IF cardinality(refused) > 0 THEN
        RETURN QUERY
            SELECT u.ord,
                   CASE WHEN u.ord = ANY (lost) THEN 'lease_lost'
                        WHEN k.request_hash = decode(u.idem ->> 'hash', 'hex') THEN 'repeated'
                        ELSE 'key_reused' END,
                   CASE WHEN u.ord = ANY (repeated) THEN k.response END
            FROM ROWS FROM (jsonb_to_recordset(units) AS (idem jsonb)) WITH ORDINALITY AS u(idem, ord)
            LEFT JOIN idempotency_keys k ON u.ord = ANY (repeated)
                AND k.scope = u.idem ->> 'scope' AND k.key = u.idem ->> 'key'
            WHERE u.ord = ANY (refused);
    END IF;
END $$;
REVOKE ALL ON FUNCTION noema_commit(jsonb, text[], jsonb[], text) FROM PUBLIC;
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'noema_app') THEN
        GRANT EXECUTE ON FUNCTION noema_commit(jsonb, text[], jsonb[], text) TO noema_app;
    END IF;
END $$;
