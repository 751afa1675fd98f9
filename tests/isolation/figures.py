"""How much is asked of the routes and of the tables, for docs/security.md.

    PYTHONPATH=. .venv/bin/python -m tests.isolation.figures

writes the page's table anew; a test fails when it is stale.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Final

from app.api.app import describe_only
from tests.isolation.kinds import Kind
from tests.isolation.plan import Probe, list_routes, plan
from tests.isolation.rows import OF_TENANTS

PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"
_PLACES: Final = ("path", "query", "header", "body")
_PART: Final = re.compile(r"(<!-- probes -->\n).*?(<!-- /probes -->)", re.DOTALL)


def draw_probes() -> str:
    """A row for each kind of thing that a request can name: where it is named, on how many routes, how often asked."""
    routes = list_routes(describe_only())
    probes = plan(routes)
    lines = ["| what a request names | in its | routes | probes |", "| --- | --- | --- | --- |"]
    lines += [_row(kind, [probe for probe in probes if probe.kind is kind]) for kind in Kind if _is_asked(kind, probes)]
    with_probes = len({probe.route.name for probe in probes})
    lines += [
        f"| **all together** | | **{with_probes}** | **{len(probes)}** |",
        "",
        f"{len(routes)} routes, {with_probes} of which take something that a tenant has; {len(probes)} probes, each "
        f"sent twice: with what another tenant has, and with what nobody has. {len(OF_TENANTS)} tables hold tenants' "
        "rows.",
    ]
    return "\n".join(lines)


def _is_asked(kind: Kind, probes: list[Probe]) -> bool:
    return any(probe.kind is kind for probe in probes)


def _row(kind: Kind, probes: list[Probe]) -> str:
    counted = Counter(probe.place for probe in probes)
    places = ", ".join(place for place in _PLACES if counted[place])
    return f"| {kind.value} | {places} | {len({probe.route.name for probe in probes})} | {len(probes)} |"


def redraw(page: str) -> str:
    """The page with its table as it should be. Raises ValueError where it has no place for one."""
    if not _PART.search(page):
        raise ValueError(f"{PAGE.name} has no place for the probes")
    return _PART.sub(lambda found: f"{found[1]}\n{draw_probes()}\n\n{found[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(redraw(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
