"""Content that the agent's author did not write is handed over as data, inside a fence that it can't close."""

from collections.abc import Sequence
from typing import Final

from app.prompt.forgery import escape_markers

_MARKER: Final = "untrusted-data"
_ATTRIBUTE: Final = str.maketrans({"&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;"})


def wrap_untrusted(content: str, *, source: str, flagged: Sequence[str] = ()) -> str:
    """Fences ``content`` and names where it comes from, and what a guard has found in it.

    A forged marker inside has its ``<`` escaped; everything else is left as it is.
    """
    found = f' flagged="{",".join(flagged).translate(_ATTRIBUTE)}"' if flagged else ""
    opening = f'<{_MARKER} source="{source.translate(_ATTRIBUTE)}"{found}>'
    return f"{opening}\n{escape_markers(content)}\n</{_MARKER}>"
