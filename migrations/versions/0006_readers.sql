-- What readers of logs ask for.

-- The next events of several runs of a tenant, in one statement: of each place, a run and the number of an event of it,
-- what follows that event. The first places come first; once p_limit events or p_bytes of them are told, the rest is
-- left out, and who asked for it asks again. Run with the rights of whoever calls: row security holds inside.
CREATE FUNCTION read_logs(p_tenant text, p_runs text[], p_afters integer[], p_limit integer, p_bytes bigint)
RETURNS TABLE (place integer, seq integer, kind text, at timestamptz, payload text)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    RETURN QUERY
        SELECT m.place, m.seq, m.kind, m.at, m.payload FROM (
            SELECT f.*, sum(octet_length(f.payload)) OVER (
                ORDER BY f.place, f.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
            FROM (
                SELECT o.place::integer, n.seq, n.kind, n.at, n.payload
                FROM unnest(p_runs, p_afters) WITH ORDINALITY AS o (run_id, after_seq, place)
                CROSS JOIN LATERAL (
                    -- The day leads to the one partition that holds a run's log. Numbers have no gaps: no plan can
                    -- read all the rest of a long log for one page of it.
                    SELECT e.seq, e.kind, e.at, e.payload FROM runs r
                    JOIN events e ON e.tenant_id = r.tenant_id AND e.run_day = r.run_day AND e.run_id = r.run_id
                    WHERE r.tenant_id = p_tenant AND r.run_id = o.run_id AND e.seq > o.after_seq
                        AND e.seq <= o.after_seq::bigint + p_limit
                    ORDER BY e.seq LIMIT p_limit
                ) AS n
                ORDER BY o.place, n.seq LIMIT p_limit
            ) AS f
        ) AS m
        WHERE m.bytes_before IS NULL OR m.bytes_before < p_bytes
        ORDER BY m.place, m.seq;
END
$$;

REVOKE ALL ON FUNCTION read_logs FROM PUBLIC;
GRANT EXECUTE ON FUNCTION read_logs TO runwright_app;
