"""A tenant's settings as options, and as lines for people."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from app.api.strict_json import read_document
from app.cli.operating import one_line
from app.policy.prices import write_amount
from app.ports.tenancy import TenantRecord

# A hundred years.
MAX_DAYS: Final = 36_500
MAX_COUNT: Final = 1_000_000
_NONE: Final = "none"

RunsDays = Annotated[
    str | None, typer.Option(help="Erase runs in no session so many days after their end; 'none': keep them.")
]
SessionsDays = Annotated[
    str | None,
    typer.Option(help="Erase sessions, with their runs, so many days after their last use; 'none': keep them."),
]
Archive = Annotated[bool | None, typer.Option(help="Archive what is erased, in RUNWRIGHT_ARCHIVE_DIR.")]
MaxRunning = Annotated[
    str | None, typer.Option(help="How many runs may run at once, 0 for none; 'none': as many as there is room for.")
]
MaxQueued = Annotated[
    str | None, typer.Option(help="How many runs may wait; 'none': as many as the deployment allows.")
]
Requests = Annotated[str | None, typer.Option(help="How many requests it may make a minute; 'none': any number.")]
Weight = Annotated[int | None, typer.Option(help="Its part of the machine beside other tenants', 1 to 1000.")]
Tools = Annotated[
    str | None, typer.Option(help="The tools that it may use, with commas between; 'all'; an empty text for none.")
]
Models = Annotated[
    str | None, typer.Option(help="The models that it may use, by full names; 'all'; an empty text for none.")
]
Budget = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DIMENSION=LIMIT",
        help="Narrows each run, as in max_cost=0.5. All that are named replace what was there; LIMIT 'none' is none.",
    ),
]
Ceilings = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DIMENSION:SECONDS:LIMIT",
        help="At most so much in any window, as in cost:86400:25. All that are named replace what was there; 'none'.",
    ),
]
OnLedgerError = Annotated[
    str | None, typer.Option(help="What becomes of runs whose ceilings can't be asked about: fail or proceed.")
]
Approvers = Annotated[
    str | None, typer.Option(metavar="FILE", help="Who may decide: a JSON list of rules; 'none': whoever may.")
]
SelfApproval = Annotated[bool | None, typer.Option(help="Let those who asked for a run approve its calls.")]


def count(option: str, *, least: int, most: int) -> Callable[[str], int | None]:
    """A reader of whole numbers, and of 'none', which is None."""

    def read(text: str) -> int | None:
        if text == _NONE:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
            raise typer.BadParameter(
                f"{text!r} is neither a whole number from {least} to {most} nor 'none'", param_hint=option
            )
        return int(text)

    return read


def read_names(text: str) -> list[str] | None:
    """Names with commas between them, or None for 'all'."""
    if text == "all":
        return None
    return [name.strip() for name in text.split(",")] if text.strip() else []


def read_budget(items: list[str]) -> dict[str, Any]:
    """DIMENSION=LIMIT, with 'none' to take one away."""
    budget: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals:
            raise typer.BadParameter(f"{item!r} is not DIMENSION=LIMIT", param_hint="--budget")
        if name in budget:
            raise typer.BadParameter(f"{name} is named twice", param_hint="--budget")
        budget[name] = _read_limit(name, text)
    return budget


def read_ceilings(items: list[str]) -> list[dict[str, Any]]:
    """DIMENSION:SECONDS:LIMIT each, or 'none' alone."""
    if items == [_NONE]:
        return []
    ceilings = []
    for item in items:
        dimension, _, rest = item.partition(":")
        seconds, _, limit = rest.partition(":")
        if not (seconds.isascii() and seconds.isdigit() and len(seconds) < 10 and limit):
            raise typer.BadParameter(f"{item!r} is not DIMENSION:SECONDS:LIMIT", param_hint="--ceiling")
        ceilings.append({"dimension": dimension, "window_seconds": int(seconds), "limit": limit})
    return ceilings


def read_approvers(text: str) -> Any:
    """Rules from a file of JSON, or 'none'. Raises MalformedRequest for what two readers could read differently."""
    if text == _NONE:
        return []
    try:
        content = Path(text).read_bytes()
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{text} can't be read: {error}", param_hint="--approvers") from None
    return read_document(content).value


def _read_limit(name: str, text: str) -> Any:
    if text == _NONE:
        return None
    if name == "max_cost" or len(text) > 15:
        # An amount is exact as text alone.
        return text
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text


def describe(tenant: TenantRecord) -> str:
    rules = tenant.rules
    state = "being erased" if tenant.erasing else "paused" if tenant.paused else "active"
    budget = {name: value for name, value in rules.budget.model_dump(mode="json").items() if value is not None}
    ceilings = [
        f"{write_amount(ceiling.limit)} {ceiling.dimension} in {ceiling.window_seconds} s" for ceiling in rules.ceilings
    ]
    approvers = [rule.model_dump(mode="json", exclude_defaults=True) for rule in rules.approvers]
    rows = {
        "tenant": tenant.tenant_id,
        "name": one_line(tenant.name),
        "state": state,
        "runs": _kept(tenant.runs_days, "their end"),
        "sessions": _kept(tenant.sessions_days, "their last use"),
        "archive": "yes" if tenant.archive else "no",
        "running": _bound(rules.max_running, "as many as there is room for"),
        "queued": _bound(rules.max_queued, "as many as the deployment allows"),
        "requests": _requests(rules.requests_per_minute),
        "weight": str(rules.weight),
        "tools": _names(rules.tools),
        "models": _names(rules.models),
        "budget": ", ".join(f"{name}={value}" for name, value in budget.items()) or "none",
        "ceilings": "; ".join(ceilings) or "none",
        "ledger": f"unknown: its runs {rules.on_ledger_error}",
        "approvers": json.dumps(approvers) if approvers else "whoever may decide",
        "self-approval": "allowed" if rules.allow_self_approval else "refused",
    }
    return "\n".join(f"{label:<14} {value}" for label, value in rows.items())


def _requests(per_minute: int | None) -> str:
    return "as many as it makes" if per_minute is None else f"{per_minute} a minute"


def _bound(bound: int | None, otherwise: str) -> str:
    return otherwise if bound is None else str(bound)


def _names(names: frozenset[str] | None) -> str:
    return "all" if names is None else ", ".join(sorted(names)) or "none"


def _kept(days: int | None, since: str) -> str:
    if days is None:
        return "kept for good"
    return f"erased {days} {'day' if days == 1 else 'days'} after {since}"
