-- The functions come back as the revision before made them.
DROP FUNCTION submit_run, append_events, load_run;
ALTER TABLE runs DROP COLUMN output_schema, DROP COLUMN cost;
