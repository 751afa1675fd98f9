"""The words in which ``differences.py`` says what differs where."""

import re
from collections.abc import Sequence
from typing import Any

from tests.compat.comparing import ABSENT, Found


def is_a_transfers_result(found: Found) -> bool:
    """Whether it is one transfer, of which we say who takes over."""
    if not found.where.endswith(": responses") or found.adk != [("transfer_to_agent", {"result": None})]:
        return False
    [(name, response), *others] = found.ours
    said = response.get("result") if isinstance(response, dict) else None
    return not others and name == "transfer_to_agent" and re.fullmatch(r"\w+ takes over\.", str(said)) is not None


def case(scenario: str, where: str, adk: Any, ours: Any) -> Found:
    """Something that each has in another way."""
    return Found(scenario=scenario, where=where, adk=adk, ours=ours)


def adk_only(scenario: str, where: str, author: str = "root", **fields: Any) -> Found:
    """An event that we do not have."""
    return case(scenario, where, {"author": author, **fields}, ABSENT)


def ours_only(scenario: str, where: str, author: str = "root", **fields: Any) -> Found:
    """An event that google-adk does not have."""
    return case(scenario, where, ABSENT, {"author": author, **fields})


def raises(scenario: str, adk: str, code: str) -> Sequence[Found]:
    """The same error event on both sides but for its code, and an exception on google-adk's."""
    return (
        case(scenario, "turn 1, error by root: error_code", adk, code),
        case(scenario, "turn 1, raised", adk, None),
    )
