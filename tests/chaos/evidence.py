"""What a round leaves behind: what the clients were told, what the tools wrote, and what the database holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

TERMINAL: Final = frozenset(
    {"completed", "failed", "budget_exhausted", "max_iterations_exceeded", "loop_limit_exceeded", "cancelled"}
)
KEY: Final = "chaos_key"
"""The pair of a run's metadata that holds the Idempotency-Key which it was sent with."""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A run whose id a client was answered with. ``resumes`` and ``resolutions`` are of one that goes on from another
    one."""

    run_id: str
    kind: str
    key: str
    session_id: str | None = None
    resumes: str | None = None
    resolutions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event as it is stored. ``at`` is in epoch seconds."""

    seq: int
    kind: str
    fence: int
    at: float
    payload: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run's row and log. ``key`` is what its metadata says of the request that made it."""

    run_id: str
    state: str
    last_seq: int
    key: str | None = None
    error_code: str | None = None
    parent_run_id: str | None = None
    session_id: str | None = None
    session_seq: int | None = None
    worker_id: str | None = None
    events: Sequence[Event] = ()

    @property
    def resumes(self) -> str | None:
        """The run that it goes on from, as its log says."""
        return next((event.payload.get("resumes") for event in self.of_kind("run_queued")), None)

    @property
    def has_ended(self) -> bool:
        return self.state in TERMINAL

    def of_kind(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]


@dataclass(frozen=True, kw_only=True)
class Line:
    """What a tool wrote. ``key`` is the call's idempotency key, ``note`` the argument that says what was done."""

    key: str
    run_id: str
    call_id: str
    dispatch: int
    tool: str
    note: str

    @classmethod
    def parse(cls, line: str) -> "Line":
        key, run_id, call_id, dispatch, tool, note = line.split(" ")
        return cls(key=key, run_id=run_id, call_id=call_id, dispatch=int(dispatch), tool=tool, note=note)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a robot sent about an approval, and what it was answered. ``note`` is what it put into the arguments instead
    of what was asked about; ``is_sound`` False: it sent a digest of something else."""

    approval_id: str
    subject: str
    decision: str
    status: int
    code: str | None = None
    note: str | None = None
    is_sound: bool = True


@dataclass(frozen=True, kw_only=True)
class Approval:
    """An approval's row."""

    approval_id: str
    run_id: str
    call_id: str
    kind: str
    status: str
    decided_by: str | None = None
    decision: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one reader of a run's stream was sent, over all of its connections: ids and bodies of the frames that have
    an id. ``is_whole``: it was told that this is the end. ``with_children``: it asked for the runs below, too."""

    run_id: str
    frames: Sequence[tuple[str, Mapping[str, Any]]]
    is_whole: bool
    with_children: bool = False


@dataclass(frozen=True, kw_only=True)
class Watching:
    """What the reader of the tenant's approvals was sent, over all of its connections: ids and statuses."""

    seen: Sequence[tuple[str, str]]
    position: str | None = None


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A row of the outbox: what a webhook is to be told of, and whether it was."""

    event: str
    subject: str
    status: str


@dataclass(frozen=True, kw_only=True)
class Received:
    """What the webhook's receiver got. ``is_genuine``: its signature is that of the webhook's secret."""

    event: str
    subject: str
    is_genuine: bool


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All of it. ``incidents`` are the sentences of what went wrong while it ran; ``audits`` what the database's own
    audits found; ``charged`` what the tenant's ledger holds, by dimension. Without ``watching``, ``notices`` and
    ``charged`` nobody watched, there was no webhook, and the tenant had no ceilings."""

    accepted: Sequence[Accepted] = ()
    runs: Mapping[str, Run] = field(default_factory=dict)
    lines: Sequence[Line] = ()
    decisions: Sequence[Decision] = ()
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    readings: Sequence[Reading] = ()
    watching: Watching | None = None
    notices: Sequence[Notice] | None = None
    received: Sequence[Received] = ()
    audits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    incidents: Sequence[str] = ()
    charged: Mapping[str, Decimal] | None = None
