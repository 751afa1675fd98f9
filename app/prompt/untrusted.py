"""Content that the agent's author did not write is handed over as data, inside a fence that it can't close."""

import re
from typing import Final

_NAME: Final = "untrusteddata"
# A marker is forged in any case, and with anything but letters between its letters: spaces, dashes, slashes, zero
# width characters. The gaps exclude "<", so each "<" is looked at up to the next one only, and the scan is linear.
_FORGED: Final = re.compile(
    "<(?=" + "".join(f"[^a-z<]*{letter}" for letter in _NAME) + ")",
    re.IGNORECASE,
)
_ATTRIBUTE: Final = str.maketrans({"&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;"})


def wrap_untrusted(content: str, *, source: str) -> str:
    """Fences ``content`` and names where it comes from. A forged marker inside has its ``<`` escaped."""
    safe = _FORGED.sub("&lt;", content)
    return f'<untrusted-data source="{source.translate(_ATTRIBUTE)}">\n{safe}\n</untrusted-data>'
