"""What google-adk's environment is made of. ``make lock`` writes it."""

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
LOCK = PROJECT / "deploy" / "requirements" / "adk.lock"


def pins(lock: Path = LOCK) -> list[str]:
    """What a lock pins, as ``name==version``."""
    return re.findall(r"^[a-z0-9][^ ;]*==[^ ;]+", lock.read_text(encoding="utf-8"), re.MULTILINE)


def adk_version() -> str:
    """google-adk's version."""
    return next(pin.partition("==")[2] for pin in pins() if pin.startswith("google-adk=="))
