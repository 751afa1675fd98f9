"""google-adk's ``api_server`` for the time of a benchmark: in its own environment, with its sessions in a Postgres.

Everything as its command line has it by default, but for what would slow it down: no telemetry, warnings only.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from benchmarks.support.service import REPOSITORY

ENVIRONMENT = REPOSITORY / ".venv-adk"
_DATABASE = "adk"
_START_SECONDS = 120
_QUIET = {
    "OTEL_SDK_DISABLED": "true",
    "OTEL_TRACES_EXPORTER": "none",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": "false",
}


@dataclass(frozen=True, kw_only=True)
class RunningAdk:
    """Where it is reached. Its agent is called ``bench``."""

    address: str
    pid: int


def make_environment() -> None:
    """Makes .venv-adk where it is missing or not of its lock, as tests/compat does. Needs the package index once."""
    sys.path.append(str(REPOSITORY / "deploy"))
    from tests.compat.adk_environment import AdkEnvironment, provide

    provide(AdkEnvironment(folder=ENVIRONMENT), print)


def is_there() -> bool:
    """Whether its environment was made, now or earlier."""
    return (ENVIRONMENT / ".runwright-stamp").exists()


@contextmanager
def running_adk(superuser_url: str) -> Iterator[RunningAdk]:
    """Starts it over a database of its own in that server, and ends it. Its log goes to a file that is shown when it
    does not start."""
    asyncio.run(_create_database(superuser_url))
    folder = Path(tempfile.mkdtemp(prefix="adk-bench-", dir="/tmp"))
    agent = folder / "agents" / "bench"
    agent.mkdir(parents=True)
    (agent / "__init__.py").write_text("from . import agent\n")
    shutil.copy(Path(__file__).with_name("rival_agent.py"), agent / "agent.py")
    _lend_driver(folder / "lent")
    log = folder / "log"
    port = _free_port()
    url = urlsplit(superuser_url)._replace(scheme="postgresql+asyncpg", path=f"/{_DATABASE}").geturl()
    command = [str(ENVIRONMENT / "bin" / "python"), "-m", "google.adk.cli", "api_server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--session_service_uri", url, "--auto_create_session", "--no-reload"]
    command += ["--log_level", "warning", str(agent.parent)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(folder / "lent"), **_QUIET}
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_until_open(port, process, log)
        yield RunningAdk(address=f"http://127.0.0.1:{port}", pid=process.pid)
    finally:
        process.terminate()
        process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


async def _create_database(superuser_url: str) -> None:
    connection = await asyncpg.connect(superuser_url)
    try:
        await connection.execute(f"CREATE DATABASE {_DATABASE}")
    finally:
        await connection.close()


def _lend_driver(folder: Path) -> None:
    """google-adk brings no driver for Postgres. It gets ours, in the same version: both sides then pay the same."""
    folder.mkdir()
    (folder / "asyncpg").symlink_to(Path(asyncpg.__file__).parent)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_open(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"google-adk's api_server did not start:\n{log.read_text()[-2000:]}")
