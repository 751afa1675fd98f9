"""Compiles llama-cpp-python from its hash-checked sdist, once, and keeps the wheel.

PyPI has no wheel of it, and a wheel that was compiled for one CPU dies with SIGILL on another, so the cache's key
holds everything that changes the machine code: version, CMake arguments, Python tag and, for a native build, the
CPU's features.

Environment: ``RUNWRIGHT_CACHE_DIR`` (default ``~/.cache/runwright``), ``RUNWRIGHT_PORTABLE=1`` (the baseline below
instead of this CPU), ``CMAKE_ARGS`` (added to ours, for instance to switch on a GPU) and ``CXX``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
NATIVE_ARGS = "-DGGML_NATIVE=ON"

# What a portable wheel may assume. x86_64: any Intel since Haswell (2013) and any AMD since Excavator (2015), the
# level that is called x86-64-v3. Elsewhere the compiler's own baseline for the architecture (armv8-a on arm64).
PORTABLE_ARGS = "-DGGML_NATIVE=OFF"
X86_64_BASELINE = (
    "-DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_BMI2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_AVX512=OFF"
)

NO_COMPILER = """\
No C++ compiler was found (looked for {tried}), and llama-cpp-python has to be compiled once.
  Debian, Ubuntu:  apt-get install g++
  Fedora:          dnf install gcc-c++
  macOS:           xcode-select --install
Another compiler can be named in CXX."""

ANNOUNCEMENT = """\
Compiling llama-cpp-python {version} ({kind}). This takes several minutes (about 6 on two cores) and happens once:
the wheel is kept in {folder}."""

TAIL_LINES = 30
PROGRESS_SECONDS = 10.0
NINJA_STEP = re.compile(r"^\s*\[(\d+)/(\d+)\] ")


class InstallError(Exception):
    """What went wrong and what to do, ready to be printed."""


def cache_root(environ: Mapping[str, str]) -> Path:
    """The folder for everything that is worth keeping between checkouts."""
    chosen = environ.get("RUNWRIGHT_CACHE_DIR")
    return Path(chosen).expanduser().resolve() if chosen else Path.home() / ".cache" / "runwright"


def is_portable(environ: Mapping[str, str]) -> bool:
    """Whether the wheel must also run on other machines than this one."""
    return environ.get("RUNWRIGHT_PORTABLE", "0") not in ("", "0")


def cmake_args(environ: Mapping[str, str], machine: str) -> str:
    """Our arguments for CMake, then the caller's, so that the caller's win."""
    ours = NATIVE_ARGS
    if is_portable(environ):
        ours = f"{PORTABLE_ARGS} {X86_64_BASELINE}" if machine in ("x86_64", "AMD64") else PORTABLE_ARGS
    return f"{ours} {environ.get('CMAKE_ARGS', '')}".strip()


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The first core's flags, sorted; the processor's name where the kernel has no such file (macOS)."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return " ".join(sorted(found.group(1).split())) if found else platform.processor()


def wheel_key(environ: Mapping[str, str], machine: str, features: str, python_tag: str) -> str:
    """Digest of what changes the compiled code: a portable wheel doesn't depend on this CPU's features."""
    parts = [cmake_args(environ, machine), machine, python_tag]
    if not is_portable(environ):
        parts.append(features)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def locked_version() -> str:
    """The version of llama-cpp-python that llama.lock pins."""
    found = re.search(r"^llama-cpp-python==(\S+)", (REQUIREMENTS / "llama.lock").read_text(), re.MULTILINE)
    if found is None:
        raise InstallError("deploy/requirements/llama.lock pins no llama-cpp-python; run: make lock")
    return found.group(1)


def wheel_folder(environ: Mapping[str, str]) -> Path:
    """Where this machine's wheel is, or will be."""
    python_tag = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"
    key = wheel_key(environ, platform.machine(), cpu_features(), python_tag)
    return cache_root(environ) / "wheels" / f"{locked_version()}-{key}"


def find_compiler(environ: Mapping[str, str]) -> str:
    """The C++ compiler that CMake will find too; raises `InstallError` naming what to install."""
    named = environ.get("CXX")
    candidates = [named.split()[0]] if named else ["c++", "g++", "clang++"]
    for candidate in candidates:
        path = shutil.which(candidate, path=environ.get("PATH"))
        if path is not None:
            return path
    raise InstallError(NO_COMPILER.format(tried=", ".join(candidates)))


def tail(log: Path) -> str:
    """The last lines of a log, which is where pip and ninja say what failed."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:])


def run_logged(command: list[str], log: Path, environ: Mapping[str, str] | None = None) -> None:
    """Runs a command quietly; raises `InstallError` with the last lines of what it said when it fails."""
    with log.open("wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=environ, check=False)
    if done.returncode != 0:
        raise InstallError(f"{tail(log)}\n\nFailed with exit code {done.returncode}: {' '.join(command)}")


@contextmanager
def exclusive(lock_path: Path) -> Iterator[None]:
    """Holds a lock file, so that two installs at once do the work once. The kernel frees it if we are killed."""
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    with lock_path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Waiting for another install to finish ({lock_path})", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def show_progress(lines: Iterator[str], log: IO[str], screen: IO[str]) -> None:
    """Copies a build's output to its log and shows ninja's [n/m]: in place on a terminal, else now and then."""
    started_at = shown_at = time.monotonic()
    on_terminal = screen.isatty()
    for line in lines:
        log.write(line)
        step = NINJA_STEP.match(line)
        now = time.monotonic()
        if step is None or now - shown_at < (0.2 if on_terminal else PROGRESS_SECONDS):
            continue
        shown_at = now
        text = f"  llama.cpp: step {step.group(1)} of {step.group(2)}, {now - started_at:.0f} s"
        screen.write(f"\r\x1b[K{text}" if on_terminal else f"{text}\n")
        screen.flush()
    if on_terminal:
        screen.write("\r\x1b[K")


def compile_wheel(build_python: Path, into: Path, log_path: Path, environ: Mapping[str, str]) -> None:
    """Lets pip compile the sdist with the tools of the build environment, without isolation: all of it is pinned."""
    command = [str(build_python), "-m", "pip", "wheel", "-v", "--no-cache-dir", "--no-deps", "--no-build-isolation"]
    command += ["--no-binary", "llama-cpp-python", "--require-hashes"]
    command += ["-r", str(REQUIREMENTS / "llama.lock"), "-w", str(into)]
    build_environ = dict(environ)
    build_environ["CMAKE_ARGS"] = cmake_args(environ, platform.machine())
    build_environ["PATH"] = f"{build_python.parent}{os.pathsep}{environ.get('PATH', os.defpath)}"
    with log_path.open("w", encoding="utf-8") as log:
        build = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=build_environ,
        )
        assert build.stdout is not None
        with build:
            show_progress(iter(build.stdout), log, sys.stdout)
    if build.returncode != 0:
        raise InstallError(f"{tail(log_path)}\n\nllama-cpp-python did not compile. The whole log: {log_path}")


def build_into(folder: Path, environ: Mapping[str, str]) -> Path:
    """Makes the build environment and the wheel; the folder appears only when it is whole."""
    find_compiler(environ)
    kind = "portable" if is_portable(environ) else "for this CPU"
    print(ANNOUNCEMENT.format(version=locked_version(), kind=kind, folder=folder), flush=True)
    log = folder.parent / f"{folder.name}.log"
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="build-") as scratch:
        build_venv, wheels = Path(scratch, "venv"), Path(scratch, "wheels")
        build_python = build_venv / "bin" / "python"
        run_logged([sys.executable, "-m", "venv", str(build_venv)], log)
        install = [str(build_python), "-m", "pip", "install", "--require-hashes"]
        run_logged([*install, "-r", str(REQUIREMENTS / "build.lock")], log)
        compile_wheel(build_python, wheels, log, environ)
        shutil.rmtree(folder, ignore_errors=True)
        wheels.rename(folder)
    return next(folder.glob("*.whl"))


def provide_wheel(environ: Mapping[str, str]) -> Path:
    """The wheel for this machine: from the cache, or compiled now. Raises `InstallError`."""
    folder = wheel_folder(environ)
    kept = next(folder.glob("*.whl"), None)
    if kept is not None:
        return kept
    with exclusive(folder.parent / ".lock"):
        # Looked for again: whoever held the lock may just have made it.
        kept = next(folder.glob("*.whl"), None)
        return kept if kept is not None else build_into(folder, environ)
