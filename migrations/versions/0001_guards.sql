-- What must hold whatever the service does.

CREATE FUNCTION refuse_to_revive_run() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'run % has ended as % and stays so', OLD.run_id, OLD.state
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'runs_end_once';
END
$$;

CREATE TRIGGER runs_end_once BEFORE UPDATE ON runs FOR EACH ROW
    WHEN (OLD.state NOT IN ('queued', 'running', 'suspended') AND NEW.state IS DISTINCT FROM OLD.state)
    EXECUTE FUNCTION refuse_to_revive_run();

CREATE FUNCTION refuse_event_after_end() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF EXISTS (
        SELECT FROM events e
        WHERE e.tenant_id = NEW.tenant_id AND e.run_day = NEW.run_day AND e.run_id = NEW.run_id
            AND e.kind = 'terminated'
    ) THEN
        RAISE EXCEPTION 'the log of run % has ended', NEW.run_id
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'events_end_with_terminated';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER events_end_with_terminated BEFORE INSERT ON events FOR EACH ROW
    EXECUTE FUNCTION refuse_event_after_end();

-- Makes the partitions of today and of the days ahead that are missing; tells how many it made. The owner's, since
-- only a table's owner may give it a partition. Rows whose day had none lie in events_default and stay there.
CREATE FUNCTION ensure_event_partitions(p_days_ahead integer DEFAULT 14) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    v_day date;
    v_name text;
    v_made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('runwright.ensure_event_partitions'));
    FOR v_day IN
        SELECT d::date FROM generate_series(
            (clock_timestamp() AT TIME ZONE 'UTC')::date::timestamp,
            ((clock_timestamp() AT TIME ZONE 'UTC')::date + least(greatest(p_days_ahead, 0), 400))::timestamp,
            interval '1 day') AS d
    LOOP
        v_name := 'events_' || to_char(v_day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass('public.' || v_name) IS NOT NULL;
        BEGIN
            -- Made apart and then attached: readers and writers of the other days go on meanwhile.
            EXECUTE format('CREATE TABLE public.%I (LIKE public.events INCLUDING DEFAULTS)', v_name);
            EXECUTE format('ALTER TABLE public.events ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
                v_name, v_day, v_day + 1);
            PERFORM guard_by_tenant(('public.' || v_name)::regclass);
            v_made := v_made + 1;
        EXCEPTION WHEN check_violation THEN
            RAISE WARNING 'events of % lie in events_default already', v_day;
        END;
    END LOOP;
    RETURN v_made;
END
$$;
REVOKE ALL ON FUNCTION ensure_event_partitions(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ensure_event_partitions(integer) TO runwright_app;

SELECT ensure_event_partitions();
