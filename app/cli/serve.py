"""``runwright serve``."""

import uvloop

from app.settings import Settings
from app.wiring.serve import serve


def serve_command() -> None:
    """Serve HTTP and drive runs. Everything is set by RUNWRIGHT_* and DATABASE_URL; see docs/settings.md."""
    uvloop.run(serve(Settings.load()))
