"""Watches the whole suite for secrets that are told where nobody should be told one.

Looked at are: what a test's process prints and logs, what the services that tests start write to stderr and print,
every answer over HTTP, and all that the databases of tests keep when they are cleared or dropped. A test fails, or
whoever comes after it in its process, where a key, a webhook's secret or a token is found there. What is shown once on
purpose is listed below.
"""

import asyncio
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx
import pytest

# A key, a webhook's secret, a signed token, a ticket to a stream.
SECRET: Final = re.compile(
    r"rw_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"
    r"|whsec_[A-Za-z0-9+/=_-]{24,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
    r"|tkt_[A-Za-z0-9_-]{80,}"
)
# The greeting of a service whose database is its own names the first keys, and so does the command that makes some.
_SHOWN_LINE: Final = re.compile(r"\s*\"?(service|approver|operator|secret)\"?:?\s+\"?rw_[A-Za-z0-9_-]{43}\"?,?\s*")
# The first show what a secret looks like; the others make one, and answer it to whoever asked.
_SHOWS_EXAMPLES: Final = ("/openapi.json", "/docs")
_MAKES_SECRETS: Final = re.compile(r"/(keys|webhooks|keys/[^/]+/rotate|stream-tickets)")
# The same in the words of Postgres.
_IN_SQL: Final = (
    r"rw_[A-Za-z0-9_-]{43}|whsec_[A-Za-z0-9+/=_-]{24,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.|tkt_[A-Za-z0-9_-]{80,}"
)
_AROUND: Final = 60

_found: list[str] = []


def look(text: str, place: str) -> None:
    """Remembers, without repeating it, every secret in the text."""
    for match in SECRET.finditer(text):
        start = max(0, match.start() - _AROUND)
        _found.append(f"{place}: …{SECRET.sub('<a secret>', text[start : match.end() + _AROUND])!r}…")


def look_at_output(line: str, place: str) -> None:
    """The same for a line that a command printed, where keys are shown on purpose."""
    if not _SHOWN_LINE.fullmatch(line):
        look(line, place)


def look_at_answer(response: httpx.Response) -> None:
    """The same for an answer that was read: its headers, and its body unless it has made what it shows."""
    request = response.request
    told = f"answer {response.status_code} to {request.method} {request.url.path}"
    look(str(response.headers), f"headers of the {told}")
    path = re.sub(r"^/(tenants/[^/]+|operators)/", "/", request.url.path)
    makes_secret = request.method == "POST" and response.is_success and _MAKES_SECRETS.fullmatch(path)
    if response.is_closed and not makes_secret and path not in _SHOWS_EXAMPLES:
        look(response.text, told)


def look_into_database(url: str) -> None:
    """The same for every row of every table."""

    async def read() -> None:
        connection = await asyncpg.connect(url)
        try:
            await look_through(connection)
        finally:
            await connection.close()

    asyncio.run(read())


async def look_through(connection: asyncpg.Connection) -> None:
    """The same for the database of a connection that is there, and stays."""
    names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    parts = [f"(SELECT '{row[0]}', t::text FROM \"{row[0]}\" t WHERE t::text ~ $1 LIMIT 3)" for row in names]
    for table, row in await connection.fetch(" UNION ALL ".join(parts), _IN_SQL) if parts else ():
        look(row, f"table {table}")


def look_into_folder(folder: Path) -> None:
    """The same for what services wrote into files that end with ``.err``."""
    for path in sorted(folder.rglob("*.err")):
        look(path.read_text(errors="replace"), path.name)


def take_found() -> list[str]:
    """What was found since this was last asked."""
    taken = _found.copy()
    _found.clear()
    return taken


_SEND: Final = httpx.Client.send
_SEND_ASYNC: Final = httpx.AsyncClient.send


def _send(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
    response = _SEND(client, request, **options)
    look_at_answer(response)
    return response


async def _send_async(client: httpx.AsyncClient, request: httpx.Request, **options: Any) -> httpx.Response:
    response = await _SEND_ASYNC(client, request, **options)
    look_at_answer(response)
    return response


def pytest_configure() -> None:
    """Every client of the tests is looked over the shoulder, whoever makes it."""
    setattr(httpx.Client, "send", _send)  # noqa: B010 - a method, put in the place of another
    setattr(httpx.AsyncClient, "send", _send_async)  # noqa: B010


def pytest_unconfigure() -> None:
    setattr(httpx.Client, "send", _SEND)  # noqa: B010
    setattr(httpx.AsyncClient, "send", _SEND_ASYNC)  # noqa: B010


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that told a secret has failed, whatever it asserted."""
    report = yield
    for name, content in report.sections:
        for line in content.splitlines():
            look_at_output(line, f"{name} of {item.nodeid}")
    if found := take_found():
        report.outcome = "failed"
        report.longrepr = "\n".join(["secrets were told where nobody should be told one:", *dict.fromkeys(found)])
    return report
