"""``runwright openapi``: the HTTP contract."""

import sys

from app.api.app import describe_only
from app.api.openapi import render


def openapi_command() -> None:
    """Print openapi.yaml as this version of the service answers."""
    sys.stdout.write(render(describe_only()))
