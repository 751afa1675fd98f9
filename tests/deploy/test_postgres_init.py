"""deploy/postgres-init.sql on a real, empty Postgres 15 that asks for passwords."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.external

PASSWORDS = {"RUNWRIGHT_OWNER_PASSWORD": "owner's \\secret", "RUNWRIGHT_APP_PASSWORD": "app secret"}


@dataclass(frozen=True)
class Cluster:
    """A server that listens on a socket in a folder of its own; postgres' password is ``super``."""

    programs: Path
    folder: Path

    def psql(
        self, arguments: list[str], *, user: str, password: str, environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs psql with a password, as the service would log in."""
        command = [f"{self.programs}/psql", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "--tuples-only", "--no-align"]
        command += [f"--host={self.folder}", f"--username={user}", *arguments]
        passed = {"PATH": os.environ["PATH"], "PGPASSWORD": password, **(environ or {})}
        return subprocess.run(command, env=passed, capture_output=True, text=True, check=False)

    def query(self, sql: str, *, user: str, password: str) -> subprocess.CompletedProcess[str]:
        return self.psql(["--dbname=runwright", f"--command={sql}"], user=user, password=password)


def unprivileged() -> list[str]:
    """What comes before a server's command: Postgres refuses to run as root."""
    return ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []


@pytest.fixture
def cluster(postgres_bin: Path) -> Iterator[Cluster]:
    # Not tmp_path: that one is closed to other users, and the server is one.
    with tempfile.TemporaryDirectory(prefix="runwright-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "password").write_text("super")
        (folder / "password").chmod(0o644)
        initialize = [
            f"{postgres_bin}/initdb",
            f"--pgdata={folder}/data",
            "--username=postgres",
            "--auth=scram-sha-256",
            "--no-sync",
        ]
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        control = [*unprivileged(), f"{postgres_bin}/pg_ctl", f"--pgdata={folder}/data", "--silent", "--wait"]
        subprocess.run(
            [*unprivileged(), *initialize, f"--pwfile={folder}/password"],
            check=True,
            capture_output=True,
            cwd=folder,
        )
        subprocess.run([*control, "start", f"--log={folder}/log", f"--options={options}"], check=True, cwd=folder)
        yield Cluster(programs=postgres_bin, folder=folder)
        subprocess.run([*control, "stop", "--mode=immediate"], check=True, cwd=folder)


@pytest.fixture
def initialized(cluster: Cluster, project: Path) -> Cluster:
    """The cluster after the script."""
    script = f"--file={project}/deploy/postgres-init.sql"
    done = cluster.psql([script], user="postgres", password="super", environ=PASSWORDS)
    assert done.returncode == 0, done.stderr
    return cluster


def test_the_service_can_log_in_and_owns_nothing(initialized: Cluster) -> None:
    password = PASSWORDS["RUNWRIGHT_APP_PASSWORD"]
    rights = "rolsuper, rolcreaterole, rolcreatedb, rolbypassrls"
    done = initialized.query(
        f"SELECT {rights} FROM pg_roles WHERE rolname = user", user="runwright_app", password=password
    )
    assert done.stdout == "f|f|f|f\n", done.stderr
    assert (
        "permission denied" in initialized.query("CREATE SCHEMA mine", user="runwright_app", password=password).stderr
    )


def test_the_owner_can_make_tables_and_the_schedulers_role(initialized: Cluster) -> None:
    sql = "CREATE TABLE public.runs (); CREATE ROLE runwright_scheduler NOLOGIN"
    done = initialized.query(sql, user="runwright_owner", password=PASSWORDS["RUNWRIGHT_OWNER_PASSWORD"])
    assert done.returncode == 0, done.stderr


def test_a_wrong_password_is_refused(initialized: Cluster) -> None:
    done = initialized.query("SELECT 1", user="runwright_app", password="wrong")
    assert "password authentication failed" in done.stderr


def test_a_missing_password_stops_the_script_before_anything_is_made(cluster: Cluster, project: Path) -> None:
    script = f"--file={project}/deploy/postgres-init.sql"
    done = cluster.psql([script], user="postgres", password="super")
    assert done.returncode == 3
    made = cluster.psql(
        ["--command=SELECT count(*) FROM pg_roles WHERE rolname ~ '^runwright'"], user="postgres", password="super"
    )
    assert made.stdout == "0\n"
