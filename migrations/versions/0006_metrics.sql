-- How many workers take runs: those that were heard of in the last two minutes and are not to drain.
CREATE FUNCTION deployment_workers() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT count(*) FROM workers w
    WHERE w.seen_at > clock_timestamp() - interval '2 minutes' AND w.drain_requested_at IS NULL
$$;

REVOKE ALL ON FUNCTION deployment_workers FROM PUBLIC;
GRANT EXECUTE ON FUNCTION deployment_workers TO runwright_app;

-- A new owner needs CREATE on the schema at the moment it becomes one, and at no other.
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION deployment_workers OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;
