"""Logs as they are written, without leaving anything global behind."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from app.observability import configure_logs
from app.observability.logs import OWN_LEVELS
from tests.observability.support import ReadLines


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Logs configured into a stream, and everything global put back afterwards."""
    loggers = [logging.getLogger(name) for name in (None, *OWN_LEVELS)]
    before = [(logger, logger.handlers, logger.level, logger.propagate) for logger in loggers]
    configured = io.StringIO()
    configure_logs(stream=configured)
    yield configured
    for logger, handlers, level, propagate in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def read_lines(stream: io.StringIO) -> ReadLines:
    """Reads what was logged so far, a dict a line, without the timestamps."""

    def read() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        return [{key: value for key, value in line.items() if key != "timestamp"} for line in lines]

    return read
