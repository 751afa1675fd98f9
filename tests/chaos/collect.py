"""Reads what a round has left: from the database past every proxy, from the file of the tools, from the ledger."""

import json
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from tests.chaos.client import Ledger
from tests.chaos.evidence import KEY, TERMINAL, Approval, Event, Evidence, Line, Notice, Run
from tests.chaos.receiver import Receiver
from tests.chaos.setting import Setting

_RUNS: Final = """
    SELECT r.run_id, r.state, r.last_seq, r.error_code, r.parent_run_id, r.session_id, r.session_seq, r.worker_id,
        m.value AS key
    FROM runs r LEFT JOIN run_metadata m ON m.tenant_id = r.tenant_id AND m.run_id = r.run_id AND m.key = $1
"""
_EVENTS: Final = """
    SELECT e.run_id, e.seq, e.kind, e.fence, extract(epoch FROM e.at)::float8 AS at, e.payload
    FROM events e ORDER BY e.run_id, e.seq
"""
_APPROVALS: Final = "SELECT approval_id, run_id, call_id, kind, status, decided_by, decision FROM approvals"
_NOTICES: Final = "SELECT event, subject, status FROM webhook_deliveries"
_CHARGED: Final = """
    SELECT coalesce(sum(l.cost), 0) AS cost, coalesce(sum(l.input_tokens), 0) AS input_tokens,
        coalesce(sum(l.output_tokens), 0) AS output_tokens, coalesce(sum(l.model_calls), 0) AS model_calls,
        coalesce(sum(l.tool_calls), 0) AS tool_calls
    FROM ledger l
"""
_OPEN: Final = "SELECT run_id, state FROM runs WHERE NOT (state = ANY($1::text[])) ORDER BY run_id"


async def find_open_runs(setting: Setting) -> Mapping[str, str]:
    """The runs that have not ended, with their states."""
    rows = await setting.postgres.ask(_OPEN, sorted(TERMINAL))
    return {row["run_id"]: row["state"] for row in rows}


async def collect(setting: Setting, ledger: Ledger, receiver: Receiver | None = None) -> Evidence:
    """Everything that the auditor asks for. Without a receiver there was no webhook."""
    events = await _read_events(setting)
    runs = {row["run_id"]: Run(**row, events=tuple(events[row["run_id"]])) for row in await _read_runs(setting)}
    approvals = [Approval(**row) for row in await setting.postgres.ask(_APPROVALS)]
    [charged] = await setting.postgres.ask(_CHARGED)
    notices = [Notice(**row) for row in await setting.postgres.ask(_NOTICES)]
    return Evidence(
        accepted=tuple(ledger.accepted.values()),
        runs=runs,
        lines=tuple(Line.parse(line) for line in setting.lines),
        decisions=tuple(ledger.decisions),
        approvals={approval.approval_id: approval for approval in approvals},
        readings=tuple(ledger.readings),
        watching=ledger.watching,
        notices=None if receiver is None else tuple(notices),
        received=() if receiver is None else tuple(receiver.received),
        charged={name: Decimal(amount) for name, amount in charged.items()},
        audits=await setting.postgres.audit(),
        incidents=(*ledger.incidents, *setting.fleet.deaths),
    )


async def _read_runs(setting: Setting) -> list[dict[str, Any]]:
    return await setting.postgres.ask(_RUNS, KEY)


async def _read_events(setting: Setting) -> Mapping[str, list[Event]]:
    events: defaultdict[str, list[Event]] = defaultdict(list)
    for row in await setting.postgres.ask(_EVENTS):
        run_id, payload = row.pop("run_id"), json.loads(row.pop("payload"))
        events[run_id].append(Event(**row, payload=payload))
    return events
