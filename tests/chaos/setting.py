"""Where a round takes place: five processes of the service, one Postgres, and a proxy on every way between them."""

import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.database import Keys, Postgres
from tests.chaos.plugin import LINES
from tests.chaos.processes import Fleet, ServiceProcess
from tests.chaos.proxy import Proxy

PLUGIN: Final = Path(__file__).with_name("plugin.py")
ROLES: Final[Mapping[str, str]] = {
    "api-1": "api",
    "api-2": "api",
    "worker-1": "worker",
    "worker-2": "worker",
    "worker-3": "worker",
}
_SECRET: Final = "the same for all processes of a round of chaos"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All of it, running. ``fronts`` are the proxies before the API processes, ``ways`` those before the database, by
    the process that goes through them."""

    folder: Path
    postgres: Postgres
    keys: Keys
    fleet: Fleet
    fronts: Sequence[Proxy]
    ways: Mapping[str, Proxy]

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"http://127.0.0.1:{front.port}" for front in self.fronts)

    @property
    def stage(self) -> Path:
        """The folder of the plugin's lines and gates."""
        return self.folder / "stage"

    @property
    def lines(self) -> list[str]:
        path = self.stage / LINES
        return path.read_text().splitlines() if path.exists() else []


def make_folder() -> Path:
    """Where a round leaves everything. Postgres' own user may enter it."""
    folder = Path(tempfile.mkdtemp(prefix="runwright-chaos-", dir="/tmp"))
    folder.chmod(0o755)
    for name in ("logs", "stage", "data"):
        (folder / name).mkdir(mode=0o755)
    return folder


@asynccontextmanager
async def open_setting(
    folder: Path, *, lease_seconds: float, roles: Mapping[str, str] = ROLES, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Setting]:
    """Returns when every process serves. Everything is ended with the block; the folder stays."""
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(Postgres(folder / "data"))
        keys = await postgres.make_keys()
        processes: list[ServiceProcess] = []
        ways: dict[str, Proxy] = {}
        for name, role in roles.items():
            ways[name] = way = await stack.enter_async_context(Proxy(postgres.target))
            front = None if role == "worker" else await stack.enter_async_context(Proxy())
            env = {**_environment(folder, lease_seconds), **(settings or {}), "DATABASE_URL": postgres.url(way.port)}
            processes.append(ServiceProcess(name, role, env, folder / "logs", front=front))
        fleet = Fleet(processes)
        stack.callback(fleet.close)
        await fleet.start()
        fronts = tuple(process.front for process in processes if process.front is not None)
        yield Setting(folder=folder, postgres=postgres, keys=keys, fleet=fleet, fronts=fronts, ways=ways)


def _environment(folder: Path, lease_seconds: float) -> dict[str, str]:
    return {
        "RUNWRIGHT_PLUGINS": str(PLUGIN),
        "RUNWRIGHT_DEFAULT_MODEL": "scripted:play",
        "RUNWRIGHT_SECRET_KEY": _SECRET,
        "RUNWRIGHT_DATA_DIR": str(folder / "data"),
        "RUNWRIGHT_LEASE_SECONDS": f"{lease_seconds:g}",
        "RUNWRIGHT_DRAIN_SECONDS": "3",
        "RUNWRIGHT_DATABASE_POOL_SIZE": "6",
        "RUNWRIGHT_BUDGET": "{}",
        "RUNWRIGHT_PRICES": '{"scripted:play": {"input": "1.25", "cached": "0.125", "output": "7.3"}}',
        "RUNWRIGHT_ALLOWED_NETWORKS": "127.0.0.0/8",
        "CHAOS_STAGE": str(folder / "stage"),
    }
