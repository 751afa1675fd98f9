"""Loads llama.cpp, once and only when asked, and takes over what it says.

The log of llama.cpp belongs to the process, not to a model. Its lines go nowhere but to the listeners below: warnings
and errors, one text each.
"""

import ctypes
import os
import re
import threading
from collections import deque
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

LogListener = Callable[[str], None]

_INFO: Final = 2
_WARNING: Final = 3
_ERROR: Final = 4
_RECENT_LINES: Final = 8
# llama.cpp has no call that tells it; it says so of each context that it makes.
_FLASH_ATTENTION: Final = re.compile(r"\bflash_attn\s*=\s*(\w+)")


class Library:
    """llama.cpp's C API as ``native``. Take it from ``load_library``."""

    def __init__(self) -> None:
        # OpenMP's threads spin between steps; when another process takes a core, a spinning team gets five times
        # slower. The variable is read when the library is loaded, so it has to stand before the import.
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")
        # Typed by hand: the binding's own types don't survive its ctypes decorators.
        self.native: Any = import_module("llama_cpp.llama_cpp")
        self.version = version("llama-cpp-python")
        self._recent: deque[str] = deque(maxlen=_RECENT_LINES)
        self._flash_attention: str | None = None
        # C keeps the pointer for as long as the process lives, so the callback has to live as long.
        self._callback = self.native.llama_log_callback(self._take_line)
        self.native.llama_log_set(self._callback, ctypes.c_void_p(0))
        self.native.llama_backend_init()

    def forget_lines(self) -> None:
        self._recent.clear()
        self._flash_attention = None

    def recent_lines(self) -> str:
        """The last warnings and errors in one line: the reason of a load that failed."""
        return "; ".join(self._recent)

    def flash_attention(self) -> str | None:
        """What llama.cpp said about it of the context that it made last: ``enabled``, or something else."""
        return self._flash_attention

    def _take_line(self, level: int, text: bytes, _: object) -> None:
        if level == _INFO and b"flash_attn" in text:
            found = _FLASH_ATTENTION.search(text.decode("utf-8", errors="replace"))
            self._flash_attention = found[1] if found else self._flash_attention
        if level not in (_WARNING, _ERROR):
            return
        line = text.decode("utf-8", errors="replace").strip()
        if line:
            self._recent.append(line)
            for listener in tuple(_listeners):
                listener(line)


def add_listener(listener: LogListener) -> None:
    """Called with each warning or error of llama.cpp, on whatever thread it came from; must not block or raise."""
    _listeners.append(listener)


def remove_listener(listener: LogListener) -> None:
    if listener in _listeners:
        _listeners.remove(listener)


_lock: Final = threading.Lock()
_listeners: Final[list[LogListener]] = []
_loaded: list[Library] = []


def load_library() -> Library:
    """The one library of the process; the first call takes some tenths of a second."""
    with _lock:
        if not _loaded:
            _loaded.append(Library())
        return _loaded[0]
