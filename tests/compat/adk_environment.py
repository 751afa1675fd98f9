"""The environment that google-adk runs in: .venv-adk beside .venv, made once from its lock.

It is not part of .venv: google-adk brings sixty packages, some in other versions than ours. The stamp is removed first
and written last, so that a failed install is done again.
"""

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llama_wheel import InstallError, exclusive, run_logged, tail

from tests.compat.lock import LOCK, pins

NO_ENVIRONMENT = """\
The environment for google-adk could not be made, and without it nothing can be said about compatibility with it.
pip needs the package index once (PIP_INDEX_URL names another one). What it said:

{said}"""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class AdkEnvironment:
    """Where it is, and what it is made of."""

    folder: Path
    lock: Path = LOCK

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        return self.folder / ".runwright-stamp"

    def digest(self) -> str:
        """Changes when a new install would give something else."""
        place = f"{sys.implementation.name} {platform.python_version()} {sys.base_prefix} {self.folder}"
        return hashlib.sha256(place.encode() + self.lock.read_bytes()).hexdigest()

    def is_current(self) -> bool:
        """Whether it is whole and made of this lock."""
        return self.stamp.exists() and self.stamp.read_text() == self.digest() and os.access(self.python, os.X_OK)


def provide(environment: AdkEnvironment, say: Say, environ: Mapping[str, str] = os.environ) -> Path:
    """The environment's interpreter, after an install where one is needed; ``say`` is told how far that is. Raises
    InstallError."""
    with exclusive(environment.folder.with_name(f"{environment.folder.name}.lock")):
        if not environment.is_current():
            _install(environment, say, environ)
    return environment.python


def _install(environment: AdkEnvironment, say: Say, environ: Mapping[str, str]) -> None:
    environment.stamp.unlink(missing_ok=True)
    say(f"Making {environment.folder} for google-adk (once)")
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "install.log")
        try:
            run_logged([sys.executable, "-m", "venv", "--clear", str(environment.folder)], log)
            _install_lock(environment, log, say, environ)
        except InstallError as failure:
            raise InstallError(NO_ENVIRONMENT.format(said=failure)) from failure
    environment.stamp.write_text(environment.digest())


def _install_lock(environment: AdkEnvironment, log: Path, say: Say, environ: Mapping[str, str]) -> None:
    command = [str(environment.python), "-m", "pip", "install", "--progress-bar", "off", "--only-binary", ":all:"]
    command += ["--require-hashes", "-r", str(environment.lock)]
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONNOUSERSITE": "1"}
    piped = subprocess.PIPE
    with (
        log.open("w", encoding="utf-8") as output,
        subprocess.Popen(command, stdout=piped, stderr=subprocess.STDOUT, text=True, env={**environ, **quiet}) as pip,
    ):
        assert pip.stdout is not None
        for line in _progress(pip.stdout, len(pins(environment.lock))):
            output.write(line.said)
            if line.shown:
                say(line.shown)
    if pip.returncode != 0:
        raise InstallError(tail(log))


@dataclass(frozen=True, kw_only=True)
class _Line:
    said: str
    shown: str | None


def _progress(lines: Iterable[str], packages: int) -> Iterable[_Line]:
    """Every line that pip says, and for some of them how far it is."""
    collected = 0
    for said in lines:
        collected += said.startswith("Collecting ")
        is_step = said.startswith("Collecting ") and collected % 10 == 0
        shown = f"  {collected} packages of at most {packages}" if is_step else None
        yield _Line(said=said, shown="  installing them" if said.startswith("Installing ") else shown)
