"""Starts google-adk's driver where it can do no harm: without a way to the network, and without our own code.

From before google-adk is imported to the end, a connection to anywhere is an error, and so is an import of ``app``.
"""

import importlib
import sys
from typing import Any

_GOES_OUT = frozenset({"socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.sendmsg"})


def stay_inside(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook (PEP 578)."""
    if event in _GOES_OUT:
        raise RuntimeError(f"google-adk wants to go out: {event}")
    if event == "import" and str(arguments[0]).partition(".")[0] == "app":
        raise RuntimeError(f"google-adk's side is to know nothing of ours, and imports {arguments[0]}")


def main() -> None:
    sys.addaudithook(stay_inside)
    importlib.import_module("tests.compat.adk_driver").main()


if __name__ == "__main__":
    main()
