"""One interpreter that has read the whole service, of which each service that a test starts is a fork.

A fork is a process like any other: it has a pid, a log, an end, and whoever kills it kills nothing else. What it does
not do again is read a thousand modules, which takes longer than most of these tests. ``python -m app`` itself is
started by the tests of the commands, of the README and of the embedded Postgres.

For Linux: a fork learns here from the kernel that its nursery is gone, and ends.
"""

import atexit
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, Any, Final, Self

_LONGEST_ORDER: Final = 200_000
_LONGEST_WORD: Final = 20
_PR_SET_PDEATHSIG: Final = 1


class Fork:
    """A command in a process of its own; of what ``subprocess.Popen`` has, what these tests use."""

    def __init__(self, pid: int, stdout: IO[str], stderr: IO[str], status: int) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._status = status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for its end."""
        with self.stdout, self.stderr:
            self.wait()

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises TimeoutExpired."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("serve", timeout or 0)
        return code

    def send_signal(self, signum: int) -> None:
        """Does nothing where it has ended, as with any child."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            told = os.read(self._status, _LONGEST_WORD)
            os.close(self._status)
            # A nursery that was killed has taken its forks along and tells nothing.
            self.returncode = int(told or -signal.SIGKILL)
        return self.returncode


class Nursery:
    """Where forks come from: an interpreter in that folder and environment. It ends, with all of them, when this
    process does."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.acceptance.nursery", str(theirs.fileno())],
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def fork(self, arguments: Sequence[str], env: Mapping[str, str]) -> Fork:
        """``python -m app`` with these arguments, in this environment and no other."""
        pipes = [os.pipe() for _ in range(3)]
        order = json.dumps({"arguments": list(arguments), "env": dict(env)}).encode()
        with self._lock:
            socket.send_fds(self._orders, [order], [write for _, write in pipes])
            pid = int(self._orders.recv(_LONGEST_WORD))
        for _, write in pipes:
            os.close(write)
        stdout, stderr, status = (read for read, _ in pipes)
        return Fork(pid, os.fdopen(stdout, encoding="utf-8"), os.fdopen(stderr, encoding="utf-8"), status)

    def close(self) -> None:
        self._orders.close()
        self._process.wait()


@dataclass(frozen=True, kw_only=True)
class _Born:
    """A fork, as its nursery has it: its pid, and where its exit code is told."""

    pid: int
    status: int


def await_birth(orders: socket.socket) -> list[str] | None:
    """Returns in a fork, with the arguments of its command; in the nursery without any, once no more is ordered."""
    alive: dict[int, _Born] = {}
    while True:
        ready, _, _ = select.select([orders.fileno(), *alive], [], [])
        for pidfd in alive.keys() & set(ready):
            _tell_end(alive.pop(pidfd))
            os.close(pidfd)
        if orders.fileno() not in ready:
            continue
        order, fds, _, _ = socket.recv_fds(orders, _LONGEST_ORDER, 3)
        if not order:
            return None
        pid = os.fork()
        if not pid:
            orders.close()
            for pidfd, born in alive.items():
                os.close(pidfd)
                os.close(born.status)
            return _become(json.loads(order), fds)
        stdout, stderr, status = fds
        os.close(stdout)
        os.close(stderr)
        alive[os.pidfd_open(pid)] = _Born(pid=pid, status=status)
        orders.send(str(pid).encode())


def _tell_end(born: _Born) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(born.pid, 0)[1])
    with suppress(BrokenPipeError):
        os.write(born.status, str(code).encode())
    os.close(born.status)


def _become(order: Mapping[str, Any], fds: Sequence[int]) -> list[str]:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    os.dup2(fds[0], 1)
    os.dup2(fds[1], 2)
    for fd in fds:
        os.close(fd)
    os.environ.clear()
    os.environ.update(order["env"])
    return list(order["arguments"])


if __name__ == "__main__":
    from app.cli import main

    arguments = await_birth(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        sys.argv = ["runwright", *arguments]
        main()
