DROP FUNCTION read_tenant_events, event_frontier;

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

DROP TRIGGER events_are_placed ON events;
CREATE TRIGGER events_end_with_terminated BEFORE INSERT ON events FOR EACH ROW
    EXECUTE FUNCTION refuse_event_after_end();
DROP FUNCTION place_event;

DROP INDEX ix_events_order;
ALTER TABLE events DROP COLUMN incarnation;
