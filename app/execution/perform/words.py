"""What others' errors say, in words and codes that a log can hold."""

import re
from typing import Final

from app.conversation import replace_surrogates
from app.run.causes import STATE_BY_CODE

_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def text_of(error: BaseException) -> str:
    """What an error says; its type where it can't say it."""
    try:
        return replace_surrogates(str(error))
    except BaseException:  # noqa: BLE001 - written by somebody else
        return type(error).__name__


def is_free_code(code: object) -> bool:
    """Whether others may use a code: the table's own say how a run ended, and nobody else may."""
    return isinstance(code, str) and _CODE.fullmatch(code) is not None and code not in STATE_BY_CODE
