"""Content that the agent's author did not write is handed over as data, inside a fence that it can't close."""

import re
from collections.abc import Sequence
from typing import Final

from app.prompt.forgery import escape_markers

_MARKER: Final = "untrusted-data"
_ATTRIBUTE: Final = str.maketrans({"&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;"})


_WRAPPED: Final = re.compile(rf"\A<{_MARKER} source=\"[^\"\n]*\"[^>\n]*>\n(.*)\n</{_MARKER}>\Z", re.DOTALL)


def unwrap_untrusted(text: str) -> str:
    """What ``wrap_untrusted`` fenced, for those who are no model; a text without a fence around it as it is. A forged
    marker inside stays escaped."""
    found = _WRAPPED.match(text)
    return text if found is None else found[1]


def wrap_untrusted(content: str, *, source: str, flagged: Sequence[str] = ()) -> str:
    """Fences ``content`` and names where it comes from, and what a guard has found in it.

    A forged marker inside has its ``<`` escaped; everything else is left as it is.
    """
    found = f' flagged="{",".join(flagged).translate(_ATTRIBUTE)}"' if flagged else ""
    opening = f'<{_MARKER} source="{source.translate(_ATTRIBUTE)}"{found}>'
    return f"{opening}\n{escape_markers(content)}\n</{_MARKER}>"
