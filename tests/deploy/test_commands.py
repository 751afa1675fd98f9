"""The Makefile, .ci/run and the files beside them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


def test_make_without_a_target_lists_every_target(project: Path) -> None:
    shown = subprocess.run(["make", "--silent"], cwd=project, capture_output=True, text=True, check=True).stdout
    makefile = (project / "Makefile").read_text().replace("\\\n", " ")
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split()
    rules = re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)
    assert re.findall(r"^  (\S+)", shown, re.MULTILINE) == rules
    assert sorted(rules) == sorted(phony)


def test_the_commit_hooks_are_understood_by_pre_commit(project: Path) -> None:
    command = [sys.executable, "-m", "pre_commit", "validate-config", str(project / ".pre-commit-config.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.external
def test_the_shells_linter_has_nothing_to_say_about_ci(shellcheck: str, project: Path) -> None:
    done = subprocess.run([shellcheck, project / ".ci" / "run"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_locks_are_pinned_with_hashes_and_name_no_index(project: Path) -> None:
    locks = sorted((project / "deploy" / "requirements").glob("*.lock"))
    assert len(locks) == 7
    text = "".join(lock.read_text() for lock in locks)
    pins = re.findall(r"^[a-z0-9].*$", text, re.MULTILINE)
    assert [pin for pin in pins if "==" not in pin or not pin.endswith("\\")] == []
    assert re.findall(r"https?://\S+|--index-url|--find-links", text) == []


def test_running_and_testing_have_the_same_versions(project: Path) -> None:
    requirements = project / "deploy" / "requirements"
    pattern = re.compile(r"^([a-z0-9][^ ]*==\S+)", re.MULTILINE)
    runtime = set(pattern.findall((requirements / "runtime.lock").read_text()))
    assert runtime <= set(pattern.findall((requirements / "dev.lock").read_text()))
