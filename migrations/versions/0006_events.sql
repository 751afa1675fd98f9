-- The stream of a tenant's events, in the order of commits. An event of this cluster says so in incarnation: what counts
-- transactions counts them nowhere else. Null: stored before this revision, and no part of the stream.
ALTER TABLE events ADD COLUMN incarnation bigint;
CREATE INDEX ix_events_order ON events (tenant_id, incarnation, xid) WHERE incarnation IS NOT NULL;

-- No event follows the end of a log, and each one gets its place in the tenant's stream: that of its transaction, or that
-- of the event before it in its log, if it is greater. An append may be the last thing that an old transaction does.
-- Nobody misses an event that takes a greater xid than its own transaction's: while that runs, nothing is shown from its
-- xid on, and so nothing from the greater one on.
CREATE FUNCTION place_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_incarnation bigint := nullif(current_setting('app.incarnation', true), '')::bigint;
    v_kind text;
    v_last bigint;
BEGIN
    IF v_incarnation IS NULL THEN
        -- It lies in a file, which is read once in a transaction.
        v_incarnation := current_incarnation();
        PERFORM set_config('app.incarnation', v_incarnation::text, true);
    END IF;
    SELECT e.kind, CASE WHEN e.incarnation = v_incarnation THEN e.xid END INTO v_kind, v_last FROM events e
    WHERE e.tenant_id = NEW.tenant_id AND e.run_day = NEW.run_day AND e.run_id = NEW.run_id
    ORDER BY e.seq DESC LIMIT 1;
    IF v_kind = 'terminated' THEN
        RAISE EXCEPTION 'the log of run % has ended', NEW.run_id
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'events_end_with_terminated';
    END IF;
    NEW.incarnation := v_incarnation;
    NEW.xid := greatest(pg_current_xact_id()::text::bigint, v_last);
    RETURN NEW;
END
$$;

DROP TRIGGER events_end_with_terminated ON events;
CREATE TRIGGER events_are_placed BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION place_event();
DROP FUNCTION refuse_event_after_end;

-- Where the stream stands: below settled no event can be put in any more, and nothing was ever given a place at or above
-- coming.
CREATE FUNCTION event_frontier() RETURNS TABLE (incarnation bigint, settled bigint, coming bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT current_incarnation(), pg_snapshot_xmin(s.now)::text::bigint, pg_snapshot_xmax(s.now)::text::bigint
    FROM (SELECT pg_current_snapshot() AS now) AS s
$$;

-- A page of a tenant's settled events behind a place: those that are wanted (null: of all kinds, of all agents) out of the
-- next p_limit ones, whose places are counted in number, until they are p_bytes. The last of the p_limit is told in any
-- case, without its payload where it is not wanted, so that a reader gets past what it does not want. RW002 for a place
-- of another cluster.
CREATE FUNCTION read_tenant_events(
    p_tenant text, p_incarnation bigint, p_xid bigint, p_run text, p_seq integer, p_limit integer, p_bytes bigint,
    p_agents text[], p_kinds text[]
) RETURNS TABLE (number integer, xid bigint, run_id text, seq integer, kind text, at timestamptz, payload text)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan
-- Along the index of each partition, also where a table is small or was never analyzed.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
BEGIN
    IF p_incarnation <> current_incarnation() THEN
        RAISE EXCEPTION 'a place of another cluster' USING ERRCODE = 'RW002';
    END IF;
    PERFORM set_config('app.tenant_id', p_tenant, true);
    RETURN QUERY
        SELECT m.number::integer, m.xid, m.run_id, m.seq, m.kind, m.at, m.payload FROM (
            SELECT w.*, row_number() OVER o AS number, lead(w.seq) OVER o IS NULL AS is_last,
                sum(octet_length(w.payload)) OVER (o ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
            FROM (
                SELECT n.xid, n.run_id, n.seq, n.kind, n.at, CASE
                    WHEN n.kind <> ALL (p_kinds) THEN NULL
                    WHEN p_agents IS NULL OR (
                        SELECT r.agent FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = n.run_id
                    ) = ANY (p_agents) THEN n.payload END AS payload
                FROM (
                    SELECT e.xid, e.run_id, e.seq, e.kind, e.at, e.payload FROM events e
                    WHERE e.tenant_id = p_tenant AND e.incarnation = p_incarnation AND e.xid >= p_xid
                        AND e.xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
                        AND (e.xid, e.run_id, e.seq) > (p_xid, p_run, p_seq)
                    ORDER BY e.xid, e.run_id, e.seq LIMIT p_limit
                ) AS n
            ) AS w WINDOW o AS (ORDER BY w.xid, w.run_id, w.seq)
        ) AS m
        WHERE (m.bytes_before IS NULL OR m.bytes_before < p_bytes) AND (m.payload IS NOT NULL OR m.is_last)
        ORDER BY m.xid, m.run_id, m.seq;
END
$$;

REVOKE ALL ON FUNCTION event_frontier, read_tenant_events FROM PUBLIC;
GRANT EXECUTE ON FUNCTION event_frontier, read_tenant_events TO runwright_app;
