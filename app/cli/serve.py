"""``runwright serve``."""

import uvloop

from app.settings import Settings
from app.wiring.garbage import rarely_collect
from app.wiring.serve import serve


def serve_command() -> None:
    """Serve HTTP and drive runs. Everything is set by RUNWRIGHT_* and DATABASE_URL; see docs/settings.md."""
    rarely_collect()
    uvloop.run(serve(Settings.load()))
