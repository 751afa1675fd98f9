"""JSON lines on stderr, one format for our own log and for every library's.

What people wrote, models answered, tools took and returned, and every secret stays out of the log. Ours has only the
fields that it lists. Libraries put values into what they say, so an exception is shown as its type and place, without
its text, and the messages that are known to carry more are cut.
"""

import datetime
import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, TextIO

import structlog
from structlog.types import EventDict, Processor, WrappedLogger

from app.errors import ConfigurationError

# The text of these is written by us, or by the operating system about files and sockets.
SHOWN_TEXTS: Final[tuple[type[BaseException], ...]] = (ConfigurationError, OSError)
_MAX_CHAIN: Final = 5
_MAX_FRAMES: Final = 20

# Loggers that bring handlers of their own, or that tell statements, parameters and addresses at INFO.
OWN_LEVELS: Final[Mapping[str, int]] = {
    "alembic": logging.INFO,
    "asyncio": logging.WARNING,
    "asyncpg": logging.WARNING,
    "httpcore": logging.WARNING,
    "httpx": logging.WARNING,
    "sqlalchemy": logging.WARNING,
    "uvicorn": logging.INFO,
    "uvicorn.access": logging.INFO,
    "uvicorn.error": logging.INFO,
}

_COMMON: Final[Sequence[Processor]] = (
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)
_PROCESSORS: Final[Sequence[Processor]] = (
    structlog.stdlib.filter_by_level,
    *_COMMON,
    structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
)


def configure_logs(*, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends everything that this process logs to one place, as JSON lines (stderr, unless a stream is given).

    ``level`` holds for all; the loggers above keep their own where that is stricter. Called once, at start; uvicorn has
    to be started with ``log_config=None``, or it replaces this. Raises ConfigurationError for a level that is none.
    """
    threshold = logging.getLevelNamesMapping().get(level.upper())
    if threshold is None:
        raise ConfigurationError(f"there is no log level {level!r}")
    # No line shows them, and they are looked up for each.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = _Handler(sys.stderr if stream is None else stream)
    handler.addFilter(_cut)
    handler.setFormatter(
        _Formatter(
            foreign_pre_chain=_COMMON,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _render_exception,
                structlog.processors.JSONRenderer(default=_show_type),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(threshold)
    for name, own_level in OWN_LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True
        logger.setLevel(max(threshold, own_level))
    structlog.configure(
        processors=_PROCESSORS,
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger that takes fields as keywords. It passes through ``logging`` also where nobody configured anything."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name), processors=_PROCESSORS, wrapper_class=structlog.stdlib.BoundLogger
    )
    return logger


class StepLog:
    """Lines that come by the dozen for each run. They are those that ``get_logger`` would write, in a fraction of its
    time: no chain of processors, no search for whose line of code it is, and one way through ``logging`` for all that
    is told at once."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, steps: Sequence[Mapping[str, Any]]) -> None:
        """A line for each of the steps, with its fields."""
        logger = self._logger
        if not steps or not logger.isEnabledFor(logging.INFO):
            return
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        same = {"level": "info", "logger": logger.name, "timestamp": f"{now.isoformat()}Z"}
        lines = [{"event": event, **fields, **same} for fields in steps]
        record = logging.LogRecord(logger.name, logging.INFO, __file__, 0, lines, None, None)
        record.is_whole = True
        logger.handle(record)


def describe_exception(
    error: BaseException, *, shown_texts: tuple[type[BaseException], ...] = SHOWN_TEXTS
) -> list[dict[str, Any]]:
    """An exception and what led to it, the outermost first: type, frames (the innermost last), text where it is ours.

    Never more than five exceptions with twenty frames each.
    """
    described: list[dict[str, Any]] = []
    current: BaseException | None = error
    while current is not None and len(described) < _MAX_CHAIN:
        entry: dict[str, Any] = {"type": f"{type(current).__module__}.{type(current).__qualname__}"}
        if isinstance(current, shown_texts):
            entry["text"] = str(current)
        entry["frames"] = _describe_frames(current.__traceback__)
        if isinstance(current, BaseExceptionGroup):
            inner = current.exceptions[:_MAX_CHAIN]
            entry["exceptions"] = [describe_exception(one, shown_texts=shown_texts) for one in inner]
        described.append(entry)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return described


def _describe_frames(trace: TracebackType | None) -> list[str]:
    # Not extract_tb: it reads source files, and a line of source may hold a literal secret.
    frames = [f"{frame.f_code.co_filename}:{line} {frame.f_code.co_name}" for frame, line in traceback.walk_tb(trace)]
    return frames[-_MAX_FRAMES:]


def _render_exception(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    event.pop("stack_info", None)
    found = event.pop("exc_info", None)
    if found is True:
        found = sys.exc_info()
    error = found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        event["exception"] = describe_exception(error)
    return event


def _show_type(value: object) -> str:
    return type(value).__name__


_to_line: Final = json.JSONEncoder(default=_show_type).encode


class _Formatter(structlog.stdlib.ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        """Lines that are whole need nothing of what is done to the others."""
        if getattr(record, "is_whole", False):
            return "\n".join(map(_to_line, record.msg))
        return super().format(record)


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """A record that can't be written: logging itself would print its arguments."""
        self.stream.write(f'{{"event": "log_record_lost", "level": "error", "lineno": {record.lineno}}}\n')


def _cut(record: logging.LogRecord) -> bool:
    """Takes out of known messages what does not belong into a log. Keeps every record."""
    if record.name == "uvicorn.access" and isinstance(record.args, tuple) and len(record.args) == 5:
        client, method, path, *rest = record.args
        # A query may hold a ticket, and filters with people's names.
        record.args = (client, method, str(path).partition("?")[0], *rest)
    elif record.name == "asyncio":
        # "Task exception was never retrieved", and then the repr of the task with the exception's text.
        record.msg = re.split(r"[\n<(]", record.getMessage(), maxsplit=1)[0].strip()
        record.args = ()
    return True
