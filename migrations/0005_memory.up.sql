-- Governed memory: one table of memories with their law, embeddings per model, entities and
-- relationships, policies, pins, grants, tickets, and what conflicts and retractions decided.
--
-- Rows are closed and superseded, never changed in meaning and never deleted; only an erasure deletes.

-- A mind remembers in a namespace of its own, below the one it lives in.
INSERT INTO namespaces (path, tenant, created_by)
    SELECT DISTINCT above, split_part(above, '/', 1), 'migration'
    FROM minds, unnest(ARRAY[namespace || '/minds', namespace || '/minds/' || slug]) above
    WHERE cardinality(string_to_array(namespace, '/')) <= 6
    ON CONFLICT DO NOTHING;

CREATE TABLE memories (
    id uuid PRIMARY KEY,
    namespace text NOT NULL REFERENCES namespaces,
    kind text NOT NULL CHECK (kind IN ('fact', 'preference', 'episode', 'entity', 'pointer',
                                       'semantic', 'procedural', 'autobiographical')),
    epistemic_kind text NOT NULL CHECK (epistemic_kind IN (
        'observation', 'fact', 'memory', 'claim', 'hypothesis', 'belief', 'prediction', 'assumption',
        'inference', 'opinion')),
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'disputed', 'retracted')),
    text text NOT NULL,
    content jsonb NOT NULL DEFAULT '{}',
    dedupe_key bytea NOT NULL CHECK (octet_length(dedupe_key) = 32),
    terms text[] NOT NULL DEFAULT '{}',
    -- What text search looks at: the analysed terms, and the namespace itself as a lexeme, so that
    -- the index is entered by what the caller may see and never reads past the rest.
    tsv tsvector NOT NULL GENERATED ALWAYS AS (array_to_tsvector(array_append(terms, '@' || namespace))) STORED,

    -- Two times: when it held, and when we were told.
    event_time timestamptz,
    assertion_time timestamptz NOT NULL,
    t_valid_from timestamptz NOT NULL,
    t_valid_to timestamptz,
    supersedes uuid REFERENCES memories,

    -- Where it came from. trust is the rank of the route, or of the weakest source where that is less.
    source text NOT NULL DEFAULT '',
    route text NOT NULL CHECK (route IN ('manual', 'document', 'live-fetch', 'consolidation',
                                         'swap-import', 'conversation')),
    trust smallint NOT NULL,
    actor text NOT NULL,
    agent_id text NOT NULL,
    extraction text NOT NULL DEFAULT 'verbatim',

    sensitivity text NOT NULL CHECK (sensitivity IN ('public', 'internal', 'confidential', 'restricted')),
    pii text[] NOT NULL DEFAULT '{}',
    secrets text[] NOT NULL DEFAULT '{}',
    destinations text[] NOT NULL DEFAULT '{}',
    classifier text NOT NULL,

    -- Micro-units, 0 to 1,000,000.
    importance int NOT NULL DEFAULT 500000 CHECK (importance BETWEEN 0 AND 1000000),
    salience int NOT NULL DEFAULT 500000 CHECK (salience BETWEEN 0 AND 1000000),
    credibility int NOT NULL DEFAULT 500000 CHECK (credibility BETWEEN 0 AND 1000000),
    activation int NOT NULL DEFAULT 1000000 CHECK (activation BETWEEN 0 AND 1000000),
    -- The decay period this activation was last brought up to.
    activation_epoch int NOT NULL,

    access_count int NOT NULL DEFAULT 0,
    last_accessed_at timestamptz,
    fault_count int NOT NULL DEFAULT 0,
    repeat_count int NOT NULL DEFAULT 0,

    conversation_id uuid,
    session_id uuid,
    position int,
    speaker text,

    CHECK (t_valid_to IS NULL OR t_valid_to >= t_valid_from),
    CHECK ((session_id IS NULL) = (position IS NULL))
) WITH (fillfactor = 85);
COMMENT ON COLUMN memories.dedupe_key IS 'SHA-256 of the normalised text, and of its place in a conversation where it has one';
COMMENT ON COLUMN memories.terms IS 'what noema.memory.analyse made of the text, in order, with repeats';
COMMENT ON COLUMN memories.classifier IS 'which classifier labelled it; error:… where one failed and the label is therefore restricted';

-- Exact dedupe, whatever runs in parallel.
CREATE UNIQUE INDEX memories_current_key ON memories (namespace, dedupe_key)
    WHERE t_valid_to IS NULL AND status <> 'retracted';
-- What is current and what is past are indexed apart, so that neither crowds the other out.
CREATE INDEX memories_current_text ON memories USING gin (tsv) WITH (gin_pending_list_limit = 256)
    WHERE t_valid_to IS NULL AND status = 'active';
CREATE INDEX memories_past_text ON memories USING gin (tsv) WITH (gin_pending_list_limit = 256)
    WHERE NOT (t_valid_to IS NULL AND status = 'active');
CREATE INDEX memories_namespace ON memories (namespace, id);
CREATE INDEX memories_supersedes ON memories (supersedes) WHERE supersedes IS NOT NULL;
CREATE UNIQUE INDEX memories_session ON memories (session_id, position) WHERE session_id IS NOT NULL;
CREATE INDEX memories_conversation ON memories (conversation_id, id) WHERE conversation_id IS NOT NULL;
-- What a refresh replaces. A source may be longer than an index entry, so its hash stands for it.
CREATE INDEX memories_source ON memories (namespace, kind, hashtextextended(source, 0))
    WHERE source <> '' AND t_valid_to IS NULL AND status = 'active';
-- What is said of one subject, or of one holder of preferences, is compared with each other.
CREATE INDEX memories_subject ON memories (namespace, lower(coalesce(content ->> 'subject', content ->> 'holder')))
    WHERE t_valid_to IS NULL AND status = 'active' AND coalesce(content ->> 'subject', content ->> 'holder') IS NOT NULL;
SELECT noema_open_table('memories');

-- One vector per memory and model: models never mix, and a new one needs no migration. The array
-- becomes pgvector's halfvec when that is there (see noema.db.pgvector). Fresh rows have no
-- approximate index and are searched exactly; settled ones may have one; closed ones are past.
CREATE TABLE memory_embeddings (
    memory_id uuid NOT NULL REFERENCES memories ON DELETE CASCADE,
    model text NOT NULL,
    dims int NOT NULL CHECK (dims BETWEEN 1 AND 4000),
    namespace text NOT NULL,
    kind text NOT NULL,
    shelf text NOT NULL CHECK (shelf IN ('fresh', 'settled', 'closed')),
    embedding real[] NOT NULL,
    PRIMARY KEY (memory_id, model, shelf)
) PARTITION BY LIST (shelf);
CREATE TABLE memory_embeddings_fresh PARTITION OF memory_embeddings FOR VALUES IN ('fresh');
CREATE TABLE memory_embeddings_settled PARTITION OF memory_embeddings FOR VALUES IN ('settled');
CREATE TABLE memory_embeddings_closed PARTITION OF memory_embeddings FOR VALUES IN ('closed');
CREATE INDEX memory_embeddings_seen ON memory_embeddings (model, namespace);
SELECT noema_open_table('memory_embeddings');

-- A memory that is closed, disputed or retracted leaves the lane of current vectors in the same
-- statement, and comes back when that is undone.
CREATE FUNCTION noema_shelve() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF (new.t_valid_to IS NULL AND new.status = 'active')
        IS DISTINCT FROM (old.t_valid_to IS NULL AND old.status = 'active')
    THEN
        UPDATE memory_embeddings
        SET shelf = CASE WHEN new.t_valid_to IS NULL AND new.status = 'active' THEN 'fresh' ELSE 'closed' END
        WHERE memory_id = new.id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER shelve AFTER UPDATE OF t_valid_to, status ON memories
    FOR EACH ROW EXECUTE FUNCTION noema_shelve();

-- The embedding models that have been used, and how far a background fill has come.
CREATE TABLE embedding_models (
    model text PRIMARY KEY,
    dims int NOT NULL,
    is_active boolean NOT NULL DEFAULT false,
    fill_after uuid,
    filled bigint NOT NULL DEFAULT 0,
    wanted bigint NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'idle' CHECK (state IN ('idle', 'filling', 'failing')),
    reason text NOT NULL DEFAULT '',
    updated_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX embedding_models_active ON embedding_models (is_active) WHERE is_active;
SELECT noema_open_table('embedding_models');

CREATE TABLE entities (
    id uuid PRIMARY KEY,
    namespace text NOT NULL REFERENCES namespaces,
    name text NOT NULL,
    kind text NOT NULL DEFAULT 'thing',
    merged_into uuid REFERENCES entities,
    confidence int NOT NULL CHECK (confidence BETWEEN 0 AND 1000000),
    actor text NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX entities_namespace ON entities (namespace, id);
CREATE INDEX entities_merged ON entities (merged_into) WHERE merged_into IS NOT NULL;
SELECT noema_open_table('entities');

-- Every name an entity goes by, its own included; normalised as noema.memory.normalise does.
CREATE TABLE entity_aliases (
    namespace text NOT NULL REFERENCES namespaces,
    normal text NOT NULL,
    entity_id uuid NOT NULL REFERENCES entities,
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, normal)
);
CREATE INDEX entity_aliases_entity ON entity_aliases (entity_id);
-- By these, names that are nearly another's are found without reading all of them.
-- Nearest in length first, so that only a few are read of however many share a beginning.
CREATE INDEX entity_aliases_head ON entity_aliases (namespace, left(normal, 3), length(normal), normal);
CREATE INDEX entity_aliases_tail ON entity_aliases
    (namespace, substring(normal FROM '[^ ]*$'), length(normal), normal);
SELECT noema_open_table('entity_aliases');

-- A merge is a row that can be undone: it knows which entity stood for itself before.
CREATE TABLE entity_merges (
    id uuid PRIMARY KEY,
    namespace text NOT NULL,
    kept uuid NOT NULL REFERENCES entities,
    merged uuid NOT NULL REFERENCES entities,
    actor text NOT NULL,
    merged_at timestamptz NOT NULL,
    undone_at timestamptz,
    undone_by text
);
CREATE UNIQUE INDEX entity_merges_current ON entity_merges (merged) WHERE undone_at IS NULL;
SELECT noema_open_table('entity_merges');

CREATE TABLE memory_entities (
    memory_id uuid NOT NULL REFERENCES memories ON DELETE CASCADE,
    entity_id uuid NOT NULL REFERENCES entities,
    mention text NOT NULL,
    how text NOT NULL CHECK (how IN ('name', 'alias', 'new', 'said')),
    confidence int NOT NULL CHECK (confidence BETWEEN 0 AND 1000000),
    PRIMARY KEY (memory_id, entity_id)
);
CREATE INDEX memory_entities_entity ON memory_entities (entity_id, memory_id);
SELECT noema_open_table('memory_entities');

-- Nearly the same name is never merged by itself: it is suggested to people.
CREATE TABLE entity_suggestions (
    namespace text NOT NULL,
    entity_id uuid NOT NULL REFERENCES entities,
    similar_id uuid NOT NULL REFERENCES entities,
    similarity int NOT NULL CHECK (similarity BETWEEN 0 AND 1000000),
    suggested_at timestamptz NOT NULL,
    answered_at timestamptz,
    answer text CHECK (answer IN ('merged', 'refused')),
    answered_by text,
    PRIMARY KEY (entity_id, similar_id)
);
CREATE INDEX entity_suggestions_namespace ON entity_suggestions (namespace) WHERE answered_at IS NULL;
SELECT noema_open_table('entity_suggestions');

CREATE TABLE entity_relationships (
    id uuid PRIMARY KEY,
    namespace text NOT NULL REFERENCES namespaces,
    from_entity uuid NOT NULL REFERENCES entities,
    to_entity uuid NOT NULL REFERENCES entities,
    kind text NOT NULL,
    confidence int NOT NULL CHECK (confidence BETWEEN 0 AND 1000000),
    source_memory uuid REFERENCES memories ON DELETE CASCADE,
    source text NOT NULL DEFAULT '',
    actor text NOT NULL,
    assertion_time timestamptz NOT NULL,
    t_valid_from timestamptz NOT NULL,
    t_valid_to timestamptz CHECK (t_valid_to >= t_valid_from)
);
-- Each memory that tells it has a row: it holds as long as one of them does, or somebody says it.
CREATE UNIQUE INDEX entity_relationships_current
    ON entity_relationships (namespace, from_entity, to_entity, kind, source_memory) NULLS NOT DISTINCT
    WHERE t_valid_to IS NULL;
CREATE INDEX entity_relationships_memory ON entity_relationships (source_memory) WHERE source_memory IS NOT NULL;
CREATE INDEX entity_relationships_to ON entity_relationships (to_entity);
CREATE INDEX entity_relationships_from ON entity_relationships (from_entity);
SELECT noema_open_table('entity_relationships');

CREATE TABLE memory_relationships (
    id uuid PRIMARY KEY,
    namespace text NOT NULL REFERENCES namespaces,
    from_memory uuid NOT NULL REFERENCES memories ON DELETE CASCADE,
    to_memory uuid NOT NULL REFERENCES memories ON DELETE CASCADE,
    kind text NOT NULL,
    confidence int NOT NULL CHECK (confidence BETWEEN 0 AND 1000000),
    source text NOT NULL DEFAULT '',
    actor text NOT NULL,
    assertion_time timestamptz NOT NULL,
    t_valid_from timestamptz NOT NULL,
    t_valid_to timestamptz CHECK (t_valid_to >= t_valid_from)
);
CREATE UNIQUE INDEX memory_relationships_current ON memory_relationships (namespace, from_memory, to_memory, kind)
    WHERE t_valid_to IS NULL;
CREATE INDEX memory_relationships_from ON memory_relationships (from_memory);
CREATE INDEX memory_relationships_to ON memory_relationships (to_memory);
SELECT noema_open_table('memory_relationships');

-- Policy of a namespace; what holds in it is merged with that of its ancestors. Every version stays.
CREATE TABLE memory_policies (
    namespace text NOT NULL REFERENCES namespaces,
    version int NOT NULL CHECK (version > 0),
    document jsonb NOT NULL,
    actor text NOT NULL,
    set_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, version)
);
SELECT noema_open_table('memory_policies');

CREATE TABLE policy_acks (
    namespace text NOT NULL,
    actor text NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    acknowledged_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, actor, digest)
);
SELECT noema_open_table('policy_acks');

CREATE TABLE pins (
    id uuid PRIMARY KEY,
    namespace text NOT NULL REFERENCES namespaces,
    memory_id uuid NOT NULL REFERENCES memories ON DELETE CASCADE,
    actor text NOT NULL,
    pinned_at timestamptz NOT NULL,
    unpinned_at timestamptz,
    unpinned_by text
);
CREATE UNIQUE INDEX pins_current ON pins (namespace, memory_id) WHERE unpinned_at IS NULL;
CREATE INDEX pins_memory ON pins (memory_id);
SELECT noema_open_table('pins');

-- What one namespace lets another, or one actor, read. Closed, not deleted: who could see what, and
-- when, stays answerable.
CREATE TABLE grants (
    id uuid PRIMARY KEY,
    namespace text NOT NULL,
    memory_id uuid REFERENCES memories ON DELETE CASCADE,
    subtree text,
    to_namespace text,
    to_actor text,
    -- What leaves the tenant is for an owner to give; otherwise an actor reads it only while acting
    -- in the tenant it came from.
    beyond_tenant boolean NOT NULL DEFAULT false,
    granted_by text NOT NULL,
    t_valid_from timestamptz NOT NULL,
    t_valid_to timestamptz CHECK (t_valid_to >= t_valid_from),
    revoked_by text,
    CHECK (num_nonnulls(memory_id, subtree) = 1),
    CHECK (num_nonnulls(to_namespace, to_actor) = 1)
);
CREATE INDEX grants_to_namespace ON grants (to_namespace) WHERE to_namespace IS NOT NULL;
CREATE INDEX grants_to_actor ON grants (to_actor) WHERE to_actor IS NOT NULL;
CREATE INDEX grants_namespace ON grants (namespace);
CREATE INDEX grants_memory ON grants (memory_id) WHERE memory_id IS NOT NULL;
SELECT noema_open_table('grants');

-- Writes that were accepted and are still to be done, with who asked for them.
CREATE TABLE write_tickets (
    id uuid PRIMARY KEY,
    namespace text NOT NULL,
    actor text NOT NULL,
    agent_id text NOT NULL,
    memory_role text NOT NULL,
    console_role text NOT NULL,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'running', 'done', 'failed')),
    request jsonb,
    result jsonb,
    error text NOT NULL DEFAULT '',
    attempts int NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    finished_at timestamptz
);
CREATE INDEX write_tickets_due ON write_tickets (due_at, id) WHERE state IN ('waiting', 'running');
CREATE INDEX write_tickets_namespace ON write_tickets (namespace, id);
SELECT noema_open_table('write_tickets');

-- What a conflict check found and did. before holds what is needed to undo it.
CREATE TABLE memory_conflicts (
    id uuid PRIMARY KEY,
    namespace text NOT NULL,
    newcomer uuid NOT NULL REFERENCES memories ON DELETE CASCADE,
    incumbent uuid NOT NULL REFERENCES memories ON DELETE CASCADE,
    judge text NOT NULL,
    reason text NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('newcomer_wins', 'incumbent_wins', 'newcomer_disputed', 'for_review',
                                             'coexist')),
    before jsonb NOT NULL DEFAULT '{}',
    decided_by text NOT NULL,
    decided_at timestamptz NOT NULL,
    reverted_by text,
    reverted_at timestamptz
);
CREATE UNIQUE INDEX memory_conflicts_pair ON memory_conflicts (newcomer, incumbent) WHERE reverted_at IS NULL;
CREATE INDEX memory_conflicts_incumbent ON memory_conflicts (incumbent);
CREATE INDEX memory_conflicts_open ON memory_conflicts (namespace, id) WHERE outcome = 'for_review' AND reverted_at IS NULL;
CREATE INDEX memory_conflicts_namespace ON memory_conflicts (namespace, id);
SELECT noema_open_table('memory_conflicts');

-- Facts whose check is due. A row of their own, so that neither marking nor checking one rewrites it
-- in all of its indexes. Whoever checks one puts it off meanwhile: two never pay for one judge, and
-- one that dies is followed.
CREATE TABLE conflict_checks (
    memory_id uuid PRIMARY KEY REFERENCES memories ON DELETE CASCADE,
    due_at timestamptz NOT NULL,
    attempts int NOT NULL DEFAULT 0
);
CREATE INDEX conflict_checks_due ON conflict_checks (due_at, memory_id);
SELECT noema_open_table('conflict_checks');

-- A source withdrawn, with everything that came from it.
CREATE TABLE memory_retractions (
    id uuid PRIMARY KEY,
    namespace text NOT NULL,
    root uuid NOT NULL REFERENCES memories ON DELETE CASCADE,
    reason text NOT NULL,
    actor text NOT NULL,
    retracted_at timestamptz NOT NULL,
    restored_at timestamptz,
    restored_by text
);
CREATE INDEX memory_retractions_root ON memory_retractions (root);
SELECT noema_open_table('memory_retractions');

-- Every memory a retraction holds down, with the status it would have without any. One that two
-- retractions hold down stays down until both are undone.
CREATE TABLE memory_retracted (
    retraction_id uuid NOT NULL REFERENCES memory_retractions ON DELETE CASCADE,
    memory_id uuid NOT NULL REFERENCES memories ON DELETE CASCADE,
    namespace text NOT NULL,
    before text NOT NULL CHECK (before IN ('active', 'disputed')),
    PRIMARY KEY (retraction_id, memory_id)
);
CREATE INDEX memory_retracted_memory ON memory_retracted (memory_id);
SELECT noema_open_table('memory_retracted');

-- Whether a path is the root of a subtree or below it; the one place where a pattern is matched. What
-- the root says literally is escaped, and the pattern is anchored by the separator.
CREATE FUNCTION noema_in_subtree(path text, root text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN path = root
    OR path LIKE replace(replace(replace(root, '\', '\\'), '%', '\%'), '_', '\_') || '/%' ESCAPE '\';

-- Whether a row that is not active now was so then, as far as retractions and conflicts are on record.
CREATE FUNCTION noema_was_active(memory uuid, status text, at timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
RETURN CASE status
    WHEN 'active' THEN true
    WHEN 'disputed' THEN EXISTS (
        SELECT FROM memory_conflicts c
        WHERE c.newcomer = memory AND c.outcome = 'newcomer_disputed' AND c.reverted_at IS NULL AND c.decided_at > at)
    ELSE NOT EXISTS (
        SELECT FROM memory_retracted h JOIN memory_retractions r ON r.id = h.retraction_id
        WHERE h.memory_id = memory
          AND (h.before <> 'active' OR (r.retracted_at <= at AND (r.restored_at IS NULL OR r.restored_at > at))))
END;

-- The names that memories mention, and how near they are to what a query names: 2 where it is
-- mentioned, 1 where it is one relationship away. A function, because planning this anew for each
-- search takes longer than running it.
CREATE FUNCTION noema_around(ids uuid[], names text[], spaces text[])
RETURNS TABLE (memory_id uuid, entities text[], nearness int)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE up AS (
        SELECT e.id, e.merged_into
        FROM entity_aliases a JOIN entities e ON e.id = a.entity_id
        WHERE a.namespace = ANY(spaces) AND a.normal = ANY(names)
        UNION
        SELECT e.id, e.merged_into FROM up JOIN entities e ON e.id = up.merged_into
    ), said AS (
        SELECT up.id FROM up
        UNION
        SELECT e.id FROM said JOIN entities e ON e.merged_into = said.id
    ), near AS (
        SELECT r.to_entity AS id FROM said JOIN entity_relationships r ON r.from_entity = said.id
        WHERE r.namespace = ANY(spaces) AND r.t_valid_to IS NULL
        UNION
        SELECT r.from_entity FROM said JOIN entity_relationships r ON r.to_entity = said.id
        WHERE r.namespace = ANY(spaces) AND r.t_valid_to IS NULL
    )
    SELECT l.memory_id, array_agg(e.name ORDER BY e.name) FILTER (WHERE e.namespace = ANY(spaces)),
           max(CASE WHEN l.entity_id IN (SELECT s.id FROM said s) THEN 2
                    WHEN l.entity_id IN (SELECT n.id FROM near n) THEN 1 ELSE 0 END)
    FROM memory_entities l JOIN entities e ON e.id = l.entity_id
    WHERE l.memory_id = ANY(ids)
    GROUP BY l.memory_id;
END $$;

-- People who act where a mind lives read what it remembers, until somebody revokes that.
INSERT INTO grants (id, namespace, subtree, to_namespace, granted_by, t_valid_from)
    SELECT gen_random_uuid(), namespace || '/minds/' || slug, namespace || '/minds/' || slug, namespace,
           'migration', clock_timestamp()
    FROM minds WHERE cardinality(string_to_array(namespace, '/')) <= 6;
