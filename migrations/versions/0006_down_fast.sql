DROP FUNCTION look_at_run, admission_facts;
