"""A service process for the time of a benchmark, with an embedded Postgres in a folder of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class RunningService:
    address: str
    key: str
    operator_key: str
    pid: int
    data_dir: Path

    @property
    def postgres_pid(self) -> int:
        """Its embedded Postgres' own first process."""
        return int((self.data_dir / "postgres" / "postmaster.pid").read_text().split()[0])

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@contextmanager
def running_service(settings: Mapping[str, str]) -> Iterator[RunningService]:
    """Starts it, waits for its greeting, and ends it. Its log goes to a file that is shown when it does not start."""
    folder = Path(tempfile.mkdtemp(prefix="runwright-bench-", dir="/tmp"))
    folder.chmod(0o755)
    environment = {**os.environ, "RUNWRIGHT_DATA_DIR": str(folder), "RUNWRIGHT_PORT": "0", **settings}
    log = folder / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "app", "serve"],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        greeting = process.stdout.readline()
        found = re.search(r"http://\S+", greeting)
        if found is None:
            raise RuntimeError(f"the service did not start:\n{log.read_text()[-2000:]}")
        keys = json.loads((folder / "dev-keys.json").read_text())
        yield RunningService(
            address=found[0],
            key=keys["service"],
            operator_key=keys["operator"],
            pid=process.pid,
            data_dir=folder,
        )
    finally:
        process.terminate()
        process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)
