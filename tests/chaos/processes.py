"""The service's processes: started in the background, and stopped in every way there is."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil

from tests.acceptance.service import ROOT, inherited_environment
from tests.chaos.proxy import Proxy, Target

_ADDRESS: Final = re.compile(r"runwright serves on http://\S+:(\d+) ")
_START_SECONDS: Final = 120.0
_MOST_STARTS: Final = 30
_LOOK_SECONDS: Final = 0.05


class Stand(StrEnum):
    """How it stands with a process. Only one that is UP may be disturbed."""

    DOWN = "down"
    STARTING = "starting"
    UP = "up"
    PAUSED = "paused"
    STOPPING = "stopping"


class ServiceProcess:
    """One place for a process: what runs there is replaced, its name, its logs' folder and the proxy in front of it
    stay."""

    def __init__(self, name: str, role: str, env: Mapping[str, str], logs: Path, *, front: Proxy | None = None) -> None:
        self.name = name
        self.role = role
        self.stand = Stand.DOWN
        self.front = front
        self.deaths: list[str] = []
        self._env = {**inherited_environment(), **env, "RUNWRIGHT_ROLE": role, "RUNWRIGHT_PORT": "0"}
        self._logs = logs
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Returns when it has greeted. One that ends meanwhile, as it does where the database is away, is started
        again. Raises RuntimeError where that is so too often."""
        self.stand = Stand.STARTING
        for _ in range(_MOST_STARTS):
            if await self._start_once():
                self.stand = Stand.UP
                return
            await asyncio.sleep(0.3)
        raise RuntimeError(f"{self.name} does not start; see {self._newest_log}")

    async def _start_once(self) -> bool:
        self._starts += 1
        out, err = (self._logs / f"{self.name}-{self._starts}.{end}" for end in ("out", "err"))
        with out.open("wb") as out_file, err.open("wb") as err_file:
            # Opening files and forking take microseconds here; nobody else waits for this loop.
            self._process = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-m", "app", "serve"],
                cwd=ROOT,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=out_file,
                stderr=err_file,
            )
        give_up_at = asyncio.get_running_loop().time() + _START_SECONDS
        while (found := _ADDRESS.search(out.read_text())) is None:
            if self._process.poll() is not None:
                return False
            if asyncio.get_running_loop().time() > give_up_at:
                self._process.kill()
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        if self.front is not None:
            self.front.target = Target(port=int(found[1]))
        return True

    async def kill(self) -> None:
        """kill -9."""
        self.stand = Stand.DOWN
        assert self._process is not None
        self._process.kill()
        await asyncio.to_thread(self._process.wait)

    async def terminate(self, *, seconds: float) -> None:
        """SIGTERM, and waits for its end. One that does not end in time is killed, and that is told in ``deaths``."""
        self.stand = Stand.STOPPING
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.to_thread(self._process.wait, seconds)
            if code != 0:
                self.deaths.append(f"{self.name} was told to stop and ended with {code}; see {self._newest_log}")
        except subprocess.TimeoutExpired:
            self.deaths.append(f"{self.name} was told to stop and still ran after {seconds:g} s")
            await self.kill()
        self.stand = Stand.DOWN

    async def pause(self) -> None:
        """SIGSTOP, and it has stopped when this returns."""
        self.stand = Stand.PAUSED
        os.kill(self.pid, signal.SIGSTOP)
        while psutil.Process(self.pid).status() != psutil.STATUS_STOPPED:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.01)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.stand = Stand.UP

    def look(self) -> bool:
        """Whether it still runs where it should. Its own end is told in ``deaths``, once."""
        if self.stand not in (Stand.UP, Stand.PAUSED) or self._process is None or self._process.poll() is None:
            return True
        self.deaths.append(f"{self.name} ended by itself with {self._process.returncode}; see {self._newest_log}")
        self.stand = Stand.DOWN
        return False

    def close(self) -> None:
        """Ends it whatever it does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self.stand = Stand.DOWN

    @property
    def _newest_log(self) -> Path:
        return self._logs / f"{self.name}-{self._starts}.err"


class Fleet:
    """All of them."""

    def __init__(self, processes: Sequence[ServiceProcess]) -> None:
        self.processes = tuple(processes)

    async def start(self) -> None:
        await asyncio.gather(*(process.start() for process in self.processes))

    def up(self, role: str | None = None) -> list[ServiceProcess]:
        """Those that can be disturbed, in their order."""
        return [each for each in self.processes if each.stand is Stand.UP and role in (None, each.role)]

    async def watch(self) -> None:
        """Starts whatever ended by itself again, until it is cancelled."""
        while True:
            fallen = [process for process in self.processes if not process.look()]
            await asyncio.gather(*(process.start() for process in fallen))
            await asyncio.sleep(0.2)

    @property
    def deaths(self) -> list[str]:
        return [death for process in self.processes for death in process.deaths]

    async def stop(self, *, seconds: float) -> None:
        """SIGTERM for all that run."""
        await asyncio.gather(*(each.terminate(seconds=seconds) for each in self.processes if each.stand is Stand.UP))

    def close(self) -> None:
        for process in self.processes:
            process.close()
