ALTER TABLE runs DROP COLUMN output_schema, DROP COLUMN cost;
ALTER TABLE runs RENAME COLUMN kept_output_schema TO output_schema;
ALTER TABLE runs RENAME COLUMN kept_cost TO cost;
