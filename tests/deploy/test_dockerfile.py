"""Without a container engine the image is checked piece by piece: a linter, its RUN lines, its health check."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import llama_wheel
import pytest

from tests.deploy.dockerfile import Instruction, as_script, read_instructions


@pytest.fixture
def instructions(project: Path) -> list[Instruction]:
    return read_instructions(project / "Dockerfile")


@pytest.fixture
def context(project: Path, tmp_path: Path) -> Path:
    """What the engine would be sent: .dockerignore leaves out everything and lists what comes in."""
    lines = (project / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    context = tmp_path / "context"
    for name in [line[1:] for line in lines if line.startswith("!")]:
        copy = shutil.copytree if (project / name).is_dir() else shutil.copy
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        copy(project / name, context / name)
    return context


@pytest.fixture
def clean_environ(tmp_path: Path) -> dict[str, str]:
    """A shell's environment with nothing of ours but the wheels kept on this machine and how pip reaches its index."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    # A script and not a link: a link would find the tests' environment through its pyvenv.cfg.
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.base_prefix)}/bin/python3 "$@"\n')
    python.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")}
    return kept | {
        "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "RUNWRIGHT_CACHE_DIR": str(llama_wheel.cache_root(os.environ)),
        "RUNWRIGHT_PREFIX": str(tmp_path / "prefix"),
    }


@pytest.mark.external
def test_the_linter_has_nothing_to_say(hadolint: str, project: Path) -> None:
    done = subprocess.run([hadolint, project / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.external
@pytest.mark.skipif(os.environ.get("CI") != "true", reason="downloads and installs for a minute: CI=true runs it")
@pytest.mark.timeout(900)
def test_the_build_stages_run_lines_make_an_installation_that_needs_no_checkout(
    instructions: list[Instruction], context: Path, clean_environ: dict[str, str], tmp_path: Path
) -> None:
    build = [each for each in instructions if each.stage == 0]
    # The wheel for this CPU is in the cache already; a portable one would take minutes. That the image's is portable
    # is the next test's.
    script = as_script(build, context).replace("RUNWRIGHT_PORTABLE=1", "RUNWRIGHT_PORTABLE=0")
    source = tmp_path / "src"
    source.mkdir()
    done = subprocess.run(
        ["sh", "-c", script], cwd=source, env=clean_environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(source)
    python = tmp_path / "prefix" / "bin" / "python"
    found = subprocess.run(
        [python, "-c", "import app, llama_cpp; print(app.__file__)"],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith(str(tmp_path / "prefix"))


def test_the_image_is_built_for_any_cpu_of_its_baseline(instructions: list[Instruction]) -> None:
    build = [(each.name, each.rest) for each in instructions if each.stage == 0]
    portable = build.index(("ENV", "RUNWRIGHT_PORTABLE=1"))
    assert portable < build.index(("RUN", "python deploy/install.py --wheel-only"))


def test_both_stages_start_from_the_same_image_with_a_full_version(instructions: list[Instruction]) -> None:
    images = [each.rest.split()[0] for each in instructions if each.name == "FROM"]
    assert len(images) == 2
    assert set(images) == {"python:3.11.14-slim-bookworm"}


def test_the_service_runs_as_a_user_without_rights(instructions: list[Instruction]) -> None:
    assert [each.rest for each in instructions if each.name == "USER"] == ["10001"]


class Answering(BaseHTTPRequestHandler):
    """Answers every GET with the server's status."""

    def do_GET(self) -> None:
        assert isinstance(self.server, AnsweringServer)
        self.send_response(self.server.status if self.path == "/livez" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing on standard error."""


class AnsweringServer(HTTPServer):
    """A stand-in for the service's port."""

    status = 200


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with AnsweringServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run_health_check(instructions: list[Instruction], server: AnsweringServer) -> int:
    """The exit code of the image's health check against a server on any port."""
    rest = next(each.rest for each in instructions if each.name == "HEALTHCHECK")
    command: list[str] = json.loads(rest[rest.index("[") :])
    environ = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "RUNWRIGHT_PORT": str(server.server_port)}
    return subprocess.run(command, env=environ, capture_output=True, check=False).returncode


def test_the_health_check_is_green_when_livez_answers(instructions: list[Instruction], server: AnsweringServer) -> None:
    assert run_health_check(instructions, server) == 0


def test_the_health_check_is_red_when_livez_answers_503(
    instructions: list[Instruction], server: AnsweringServer
) -> None:
    server.status = 503
    assert run_health_check(instructions, server) != 0
