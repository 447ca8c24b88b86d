-- History: the append-only log, the roles and guards that keep it so, and the one way to redact.
--
-- Three roles. The owner runs migrations. `noema_app` is what the daemon acts as: it may read
-- history and insert into it, column by column, never the sequence or the recording time.
-- `noema_redactor` cannot log in; it owns noema_redact(), and the guard lets only that function's
-- owner replace content. Where a server gives one role only, the same guard still protects against
-- accidents, and the start-up check says that it is no more than that.

DO $$
DECLARE wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['noema_redactor', 'noema_app'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION
                -- Roles belong to the whole cluster: another database's migration may be first.
                WHEN duplicate_object OR unique_violation THEN NULL;
                WHEN insufficient_privilege THEN
                    RAISE NOTICE 'cannot create role %: accident protection only', wanted;
            END;
        END IF;
    END LOOP;
END $$;

-- The guard on every history table. Arguments name the content columns a redaction may replace; the
-- first of them must become the marker, a column called salt must become null.
CREATE FUNCTION noema_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    redactor name;
BEGIN
    IF tg_op = 'UPDATE' AND tg_nargs > 0 THEN
        SELECT r.rolname INTO redactor
        FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE p.proname = 'noema_redact' AND n.nspname = tg_table_schema;
        IF current_user = redactor
            AND to_jsonb(new) - tg_argv = to_jsonb(old) - tg_argv
            AND to_jsonb(new) -> tg_argv[0] = '{"redacted": true}'::jsonb
            AND coalesce(to_jsonb(new) -> 'salt', 'null'::jsonb) = 'null'::jsonb
        THEN
            RETURN new;
        END IF;
    END IF;
    RAISE EXCEPTION 'append-only: % on %.% is refused', tg_op, tg_table_schema, tg_table_name
        USING errcode = 'NE001', hint = 'History is never changed; only noema_redact() replaces content.';
END $$;

-- Put the guards on a table, or on a new partition of one. Row triggers are inherited by partitions,
-- TRUNCATE triggers are not, and ALWAYS must be said for each.
CREATE FUNCTION noema_guard_history(target regclass, VARIADIC content_columns text[] DEFAULT '{}')
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    part regclass;
    arguments text := (SELECT coalesce(string_agg(quote_literal(c), ', '), '') FROM unnest(content_columns) c);
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = target AND tgname = 'guard_row') THEN
        EXECUTE format('CREATE TRIGGER guard_row BEFORE UPDATE OR DELETE ON %s FOR EACH ROW '
                       'EXECUTE FUNCTION noema_guard(%s)', target, arguments);
    END IF;
    FOR part IN SELECT relid FROM pg_partition_tree(target)
                UNION SELECT target LOOP
        IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = part AND tgname = 'guard_truncate') THEN
            EXECUTE format('CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON %s FOR EACH STATEMENT '
                           'EXECUTE FUNCTION noema_guard()', part);
        END IF;
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER guard_row', part);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER guard_truncate', part);
    END LOOP;
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', target);
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'noema_app') THEN
        EXECUTE format('GRANT SELECT ON %s TO noema_app', target);
        EXECUTE (SELECT format('GRANT INSERT (%s) ON %s TO noema_app',
                               string_agg(quote_ident(attname), ', ' ORDER BY attnum), target)
                 FROM pg_attribute
                 WHERE attrelid = target AND attnum > 0 AND NOT attisdropped
                   AND attidentity = '' AND attname NOT IN ('seq', 'recorded_at'));
    END IF;
END $$;

-- Ordinary tables: the daemon may do anything to rows, nothing to the table.
CREATE FUNCTION noema_open_table(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', target);
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'noema_app') THEN
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO noema_app', target);
    END IF;
END $$;

CREATE TABLE cognitive_events (
    seq bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    id uuid NOT NULL,
    mind_id uuid,
    cycle_id uuid,
    type text NOT NULL,
    occurred_at timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor text NOT NULL,
    causes uuid[] NOT NULL DEFAULT '{}',
    data jsonb NOT NULL DEFAULT '{}',
    content jsonb NOT NULL DEFAULT '{}',
    salt bytea,
    commitment bytea NOT NULL,
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);
COMMENT ON COLUMN cognitive_events.data IS 'ids, numbers, scores; never text from outside';
COMMENT ON COLUMN cognitive_events.content IS 'all text from outside; the only column a redaction replaces';
COMMENT ON COLUMN cognitive_events.commitment IS 'SHA-256(salt || canonical content); the salt is destroyed by a redaction';

CREATE INDEX cognitive_events_mind ON cognitive_events (mind_id, seq);
CREATE INDEX cognitive_events_type ON cognitive_events (type, seq);
CREATE INDEX cognitive_events_cycle ON cognitive_events (cycle_id) WHERE cycle_id IS NOT NULL;
-- What a mind observes, so that its own thoughts need not be read past to find the next. People come
-- by a lane of their own: a flood of stimuli must not delay an operator.
CREATE INDEX cognitive_events_stimuli ON cognitive_events (mind_id, seq) WHERE type = 'stimulus.received';
CREATE INDEX cognitive_events_control ON cognitive_events (mind_id, seq)
    WHERE type IN ('message.received', 'step.requested', 'mode.set', 'settings.set', 'goal.set', 'goal.closed');
CREATE INDEX cognitive_events_cycle_number ON cognitive_events (mind_id, ((data ->> 'number')::bigint))
    WHERE type = 'cycle.completed';

CREATE TABLE cognitive_events_p0001 PARTITION OF cognitive_events FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
-- An id is unique within its partition; across partitions the time inside a version 7 id sees to it.
CREATE UNIQUE INDEX cognitive_events_p0001_id ON cognitive_events_p0001 (id);
SELECT noema_guard_history('cognitive_events', 'content', 'salt');

-- One writer at a time, from before the first sequence value is drawn until commit: whoever has read
-- up to N has seen everything up to N, for ever.
CREATE FUNCTION noema_append_lock() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7308332246147735393);
    RETURN NULL;
END $$;
CREATE TRIGGER append_lock BEFORE INSERT ON cognitive_events
    FOR EACH STATEMENT EXECUTE FUNCTION noema_append_lock();
ALTER TABLE cognitive_events ENABLE ALWAYS TRIGGER append_lock;

-- A cause must exist: in history, or earlier in the same statement.
CREATE FUNCTION noema_check_causes() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE missing uuid;
BEGIN
    SELECT named.cause INTO missing
    FROM (SELECT DISTINCT unnest(causes) AS cause FROM added WHERE causes <> '{}') named
    WHERE NOT EXISTS (SELECT FROM cognitive_events e WHERE e.id = named.cause)
    LIMIT 1;
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION 'no event % to be a cause', missing USING errcode = 'NE002';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER check_causes AFTER INSERT ON cognitive_events REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION noema_check_causes();
ALTER TABLE cognitive_events ENABLE ALWAYS TRIGGER check_causes;

-- Close the open partition at the present end of the log and open the next. Run by the owner when a
-- partition has grown large; readers wait for the moment it takes.
CREATE FUNCTION noema_roll_partition() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    open_part regclass;
    number int;
    first_seq bigint;
    boundary bigint;
    lower_bound text;
    next_name text;
BEGIN
    LOCK TABLE cognitive_events IN ACCESS EXCLUSIVE MODE;
    SELECT i.inhrelid::regclass, substring(c.relname FROM '[0-9]+$')::int INTO open_part, number
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'cognitive_events'::regclass
    ORDER BY c.relname DESC LIMIT 1;
    SELECT max(seq) + 1 INTO boundary FROM cognitive_events;
    EXECUTE format('SELECT min(seq) FROM %s', open_part) INTO first_seq;
    IF first_seq IS NULL THEN
        RETURN open_part::text;
    END IF;
    SELECT CASE WHEN number = 1 THEN 'MINVALUE'
                ELSE substring(pg_get_expr(relpartbound, oid) FROM 'FROM \(''?([0-9]+)') END
    INTO lower_bound FROM pg_class WHERE oid = open_part;
    next_name := 'cognitive_events_p' || lpad((number + 1)::text, 4, '0');
    EXECUTE format('ALTER TABLE cognitive_events DETACH PARTITION %s', open_part);
    EXECUTE format('ALTER TABLE cognitive_events ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)',
                   open_part, lower_bound, boundary);
    EXECUTE format('CREATE TABLE public.%I PARTITION OF cognitive_events FOR VALUES FROM (%s) TO (MAXVALUE)',
                   next_name, boundary);
    EXECUTE format('CREATE UNIQUE INDEX %I ON public.%I (id)', next_name || '_id', next_name);
    PERFORM noema_guard_history('cognitive_events', 'content', 'salt');
    RETURN next_name;
END $$;
REVOKE ALL ON FUNCTION noema_roll_partition() FROM PUBLIC;

-- What was redacted, why and by whom. The content's commitment stays, its salt does not.
CREATE TABLE redactions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id uuid NOT NULL,
    event_seq bigint NOT NULL,
    commitment bytea NOT NULL,
    reason text NOT NULL CHECK (reason <> ''),
    policy text NOT NULL,
    requester text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
SELECT noema_guard_history('redactions');

CREATE FUNCTION noema_redact(target uuid, why text, under_policy text, requested_by text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    at_seq bigint;
    committed bytea;
    present jsonb;
BEGIN
    SELECT seq, commitment, content INTO at_seq, committed, present
    FROM public.cognitive_events WHERE id = target FOR UPDATE;
    IF NOT FOUND OR present = '{"redacted": true}'::jsonb THEN
        RETURN false;
    END IF;
    UPDATE public.cognitive_events SET content = '{"redacted": true}', salt = NULL WHERE seq = at_seq;
    INSERT INTO public.redactions (event_id, event_seq, commitment, reason, policy, requester)
    VALUES (target, at_seq, committed, why, under_policy, requested_by);
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION noema_redact(uuid, text, text, text) FROM PUBLIC;
DO $$
DECLARE mine boolean := current_setting('is_superuser')::boolean;
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'noema_redactor') THEN
        GRANT SELECT, UPDATE (content, salt) ON cognitive_events TO noema_redactor;
        GRANT SELECT, INSERT ON redactions TO noema_redactor;
        BEGIN
            -- PostgreSQL 15 hands a function over only to a role the owner is a member of and that
            -- may create in the schema: lend both for the moment.
            IF NOT mine AND NOT pg_has_role(current_user, 'noema_redactor', 'MEMBER') THEN
                EXECUTE format('GRANT noema_redactor TO %I', current_user);
            END IF;
            GRANT USAGE, CREATE ON SCHEMA public TO noema_redactor;
            ALTER FUNCTION noema_redact(uuid, text, text, text) OWNER TO noema_redactor;
            REVOKE CREATE ON SCHEMA public FROM noema_redactor;
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE NOTICE 'noema_redact() stays with %: accident protection only', current_user;
        END;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'noema_app') THEN
        -- The ledger is written by the redaction alone, so that no row in it is a lie.
        REVOKE INSERT ON redactions FROM noema_app;
        GRANT USAGE ON SCHEMA public TO noema_app;
        GRANT EXECUTE ON FUNCTION noema_redact(uuid, text, text, text) TO noema_app;
    END IF;
END $$;

-- What came from what, for provenance, effect ledger, trust lineage and erasure cascades.
CREATE TABLE derivations (
    from_id uuid NOT NULL,
    to_id uuid NOT NULL,
    kind text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (from_id, to_id, kind)
);
CREATE INDEX derivations_to ON derivations (to_id);
SELECT noema_guard_history('derivations');

-- How far each durable consumer of the log has come.
CREATE TABLE event_consumers (
    name text PRIMARY KEY,
    position bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
SELECT noema_open_table('event_consumers');
