DROP FUNCTION forget_ledger, charge_ledger, refuse_call, ledger_room, ceilings_used, stretch_of, amount_of;
DROP TRIGGER runs_take_from_root ON runs;
DROP TRIGGER runs_lower_holds ON runs;
DROP FUNCTION take_from_root, lower_holds;
-- Their columns go, and the grants of all columns that are taken away with theirs.
REVOKE SELECT (cost, input_tokens, output_tokens, model_calls, tool_calls) ON runs FROM runwright_scheduler;
DROP TABLE ledger_holds, ledger;
ALTER TABLE runs
    DROP COLUMN last_event_fence,
    DROP COLUMN last_event_at,
    DROP COLUMN active_us,
    DROP COLUMN on_ledger_error;
-- They come back with the script of the release before, which drops the others itself.
DROP FUNCTION runs_before, put_questions, end_questions, empty_turns, find_approval;
