"""``runwright serve``."""

import asyncio

from app.settings import Settings
from app.wiring.serve import serve


def serve_command() -> None:
    """Serve HTTP and drive runs. Everything is set by RUNWRIGHT_* and DATABASE_URL; see docs/settings.md."""
    asyncio.run(serve(Settings.load()))
