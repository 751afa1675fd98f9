DROP FUNCTION take_idempotency_key;
