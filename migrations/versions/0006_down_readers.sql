DROP FUNCTION read_logs;
