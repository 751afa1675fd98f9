"""The service as its operator has it: a process that is started, watched, stopped and killed.

Nothing here sleeps blindly: a start is over when the greeting was read, an end when the process is gone. Every child
carries a token in its environment, so that whatever outlives it is found.
"""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Final, Self, TypeVar

import psutil

from tests.acceptance.nursery import Fork, Nursery
from tests.secrets_watch import look_at_output

ROOT: Final = Path(__file__).parents[2]
PLUGIN: Final = Path(__file__).with_name("plugin.py")
PATIENCE_SECONDS: Final = 60.0
_TOKEN: Final = "ACCEPTANCE_TOKEN"
_ADDRESS: Final = re.compile(r"runwright serves on (http://\S+) ")

T = TypeVar("T")


def until(find: Callable[[], T], *, seconds: float = PATIENCE_SECONDS, told: Callable[[], object] = str) -> T:
    """What ``find`` returns as soon as that is true; fails, with what is ``told``, when it never is."""
    give_up_at = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < give_up_at, f"waited {seconds:g} seconds in vain: {told()}"
        time.sleep(0.03)
    return found


class Child:
    """A ``runwright`` command as a process of its own. Its output is read as it comes."""

    def __init__(self, *arguments: str, env: Mapping[str, str], birth: "Birth | None" = None) -> None:
        self._token = secrets.token_hex(8)
        self.out: list[str] = []
        self.err: list[str] = []
        self.process = (birth or execute)(arguments, {**inherited_environment(), **env, _TOKEN: self._token})
        self._readers = [
            threading.Thread(target=_read, args=(stream, lines, f"output of {arguments[0]}"), daemon=True)
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def refusals(self) -> list[str]:
        """The lines for people on stderr, without the log's."""
        return [line for line in self.err if not line.startswith("{")]

    def told(self) -> str:
        """Everything that the process said."""
        return "\n".join([f"exit code {self.process.poll()}", *self.out[-40:], *self.err[-40:]])

    def wait(self, *, seconds: float = PATIENCE_SECONDS) -> int:
        """The exit code, once the process has ended and all of its output was read."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:g} seconds: {self.told()}") from None
        for reader in self._readers:
            reader.join()
        return code

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.wait()

    def pause(self) -> None:
        """SIGSTOP, and it has stopped when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        until(lambda: psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def stop(self, *, seconds: float = PATIENCE_SECONDS) -> int:
        """SIGTERM; the exit code."""
        self.terminate()
        return self.wait(seconds=seconds)

    def close(self) -> None:
        """Ends it whatever it does, and fails where something of it is left."""
        with suppress(ProcessLookupError):
            self.resume()
        self.process.kill()
        self.wait()
        until(lambda: not self._left(), seconds=5, told=lambda: f"left behind: {self._left()}")

    def _left(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_of_it(process)]

    def _is_of_it(self, process: psutil.Process) -> bool:
        return _environment(process).get(_TOKEN) == self._token or _session(process) == self.process.pid


def execute(arguments: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    """``python -m app``, as its operator has it."""
    return subprocess.Popen(
        [sys.executable, "-m", "app", *arguments],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def fork(arguments: Sequence[str], env: Mapping[str, str]) -> "subprocess.Popen[str] | Fork":
    """The same in a moment, where what is tested begins after the start."""
    return _nursery().fork(arguments, env) if sys.platform == "linux" else execute(arguments, env)


@cache
def _nursery() -> Nursery:
    """That of this process of the tests."""
    return Nursery(ROOT, inherited_environment())


Birth = Callable[[Sequence[str], Mapping[str, str]], "subprocess.Popen[str] | Fork"]


class Service(Child):
    """``runwright serve``, after its greeting."""

    def __init__(self, env: Mapping[str, str], birth: Birth = execute) -> None:
        super().__init__("serve", env={"RUNWRIGHT_PORT": "0", **env}, birth=birth)

    @classmethod
    def start(cls, env: Mapping[str, str], birth: Birth = execute) -> Self:
        """Returns when it has said where it serves."""
        service = cls(env, birth)
        try:
            until(lambda: service.greeting or not service.is_alive, told=service.told)
            assert service.is_alive, service.told()
        except BaseException:
            service.close()
            raise
        return service

    @property
    def greeting(self) -> str | None:
        found = _ADDRESS.search(next(iter(self.out), ""))
        return found and found[1]

    @property
    def address(self) -> str:
        assert self.greeting is not None, self.told()
        return self.greeting


@dataclass(frozen=True)
class Place:
    """A data folder for an embedded Postgres, in a place that Postgres' own user may enter."""

    path: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="runwright-acc-", dir="/tmp")))

    def __post_init__(self) -> None:
        self.path.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        return {"RUNWRIGHT_DATA_DIR": str(self.path)}

    def postmaster(self) -> psutil.Process | None:
        """The first of the server's processes, if it runs: its children's parents are here too."""
        servers = _postgres_in(self.path)
        pids = {server.pid for server in servers}
        return next((server for server in servers if server.ppid() not in pids), None)

    def stop_postgres(self) -> None:
        """Its fast shutdown, as a person at the machine does it; returns when it is gone."""
        postmaster = self.postmaster()
        assert postmaster is not None
        postmaster.send_signal(signal.SIGINT)
        until(lambda: not _postgres_in(self.path))

    def has_postgres(self) -> bool:
        return bool(_postgres_in(self.path))

    def remove(self) -> None:
        for process in _postgres_in(self.path):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        until(lambda: not _postgres_in(self.path))
        shutil.rmtree(self.path, ignore_errors=True)


@dataclass(frozen=True)
class Stage:
    """What the plugin of these tests writes and waits for: marks of its tools, and gates that a test opens."""

    path: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            "RUNWRIGHT_PLUGINS": str(PLUGIN),
            "RUNWRIGHT_DEFAULT_MODEL": "scripted:play",
            "ACCEPTANCE_STAGE": str(self.path),
        }

    def open(self, gate: str) -> None:
        (self.path / f"{gate}.gate").touch()

    def marks(self, run_id: str) -> list[list[str]]:
        """What was marked in a run, in its order: call id, dispatch, idempotency key and the mark's own id."""
        path = self.path / "marks.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [rest for first, *rest in (line.split(" ") for line in lines) if first == run_id]

    def wait_for_mark(self, run_id: str, count: int = 1) -> None:
        until(lambda: len(self.marks(run_id)) >= count)


def inherited_environment() -> dict[str, str]:
    """Ours, without anything that the service would read."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RUNWRIGHT_") and name != "DATABASE_URL"
    }


def _read(stream: IO[str] | None, lines: list[str], place: str) -> None:
    assert stream is not None
    with stream:
        for line in stream:
            lines.append(line.rstrip("\n"))
            look_at_output(lines[-1], place)


def _environment(process: psutil.Process) -> Mapping[str, str]:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return process.environ()
    return {}


def _session(process: psutil.Process) -> int:
    with suppress(ProcessLookupError):
        return os.getsid(process.pid)
    return 0


def _postgres_in(folder: Path) -> Sequence[psutil.Process]:
    """Postgres has its data folder as its working directory, and none of our environment."""
    return [process for process in psutil.process_iter() if folder in _folder(process).parents]


def _folder(process: psutil.Process) -> Path:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return Path(process.cwd())
    return Path("/")
