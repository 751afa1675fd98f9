"""A list of differences, held against those that were found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.compat.comparing import Found


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One way in which we are not google-adk: what each does, and why we do not do the same. Markdown, one line each.

    ``cases`` are all places where it shows, to the letter. ``rule`` instead tells it wherever it shows, for what would
    show nearly everywhere.
    """

    title: str
    adk: str
    ours: str
    why: str
    cases: Sequence[Found] = ()
    rule: Callable[[Found], bool] | None = None

    def covers(self, found: Found) -> bool:
        return found in self.cases or (self.rule is not None and self.rule(found))


def unlisted(listed: Sequence[Difference], found: Sequence[Found]) -> list[Found]:
    """What was found and nobody has said why."""
    return [entry for entry in found if not any(difference.covers(entry) for difference in listed)]


def vanished(listed: Sequence[Difference], found: Sequence[Found]) -> list[tuple[str, Found | None]]:
    """What is listed and was not found, by the difference's title; None for a rule."""
    gone: list[tuple[str, Found | None]] = [
        (difference.title, case) for difference in listed for case in difference.cases if case not in found
    ]
    rules = [(difference.title, difference.rule) for difference in listed if difference.rule is not None]
    return gone + [(title, None) for title, rule in rules if not any(rule(entry) for entry in found)]
