"""The drawn parts of docs/compatibility.md."""

from tests.compat.differences import DIFFERENCES
from tests.compat.listing import Difference
from tests.compat.lock import adk_version
from tests.compat.scenarios import SCENARIOS


def draw_differences() -> str:
    """Every difference, with the scenarios in which it shows."""
    lines = [f"| | google-adk {adk_version()} | runwright | why | shows in |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {entry.title} | {entry.adk} | {entry.ours} | {entry.why} | {_shows_in(entry)} |" for entry in DIFFERENCES
    ]
    return "\n".join(lines)


def _shows_in(entry: Difference) -> str:
    if entry.rule is not None:
        return "wherever it comes up"
    return ", ".join(dict.fromkeys(case.scenario for case in entry.cases))


def draw_scenarios() -> str:
    """How many there are, and in which of them only what shows everywhere differs."""
    special = {case.scenario for entry in DIFFERENCES for case in entry.cases}
    alike = [scenario.name for scenario in SCENARIOS if scenario.name not in special]
    return (
        f"{len(SCENARIOS)} scenarios. In {len(alike)} of them nothing differs but what shows everywhere: "
        f"{', '.join(alike)}."
    )
