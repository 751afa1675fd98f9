"""The installer must do nothing when nothing changed, and must not take a failed install for a whole one."""

import shutil
from pathlib import Path

import install
import llama_wheel
import pytest


@pytest.fixture
def target(tmp_path: Path) -> install.Target:
    """An environment that looks whole but for its stamp."""
    target = install.Target(venv=tmp_path / ".venv", dev=False, editable=True)
    target.python.parent.mkdir(parents=True)
    target.python.symlink_to("/bin/sh")
    return target


def stamp_as(target: install.Target, kind: str) -> None:
    target.stamp.write_text(f"{kind} {install.digest_of(target)}")


def as_dev(target: install.Target) -> install.Target:
    return install.Target(venv=target.venv, dev=True, editable=True)


def test_an_environment_with_its_stamp_is_current(target: install.Target) -> None:
    stamp_as(target, "runtime")
    assert install.is_current(target)


def test_an_environment_without_a_stamp_is_not_current(target: install.Target) -> None:
    assert not install.is_current(target)


def test_the_tests_environment_is_enough_for_running(target: install.Target) -> None:
    stamp_as(target, "dev")
    assert install.is_current(target)


def test_an_environment_for_running_is_not_enough_for_the_tests(target: install.Target) -> None:
    stamp_as(target, "runtime")
    assert not install.is_current(as_dev(target))


def test_an_environment_whose_interpreter_is_gone_is_not_current(target: install.Target) -> None:
    stamp_as(target, "runtime")
    target.python.unlink()
    assert not install.is_current(target)


def test_a_changed_lock_makes_the_stamp_old(
    target: install.Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = shutil.copytree(llama_wheel.REQUIREMENTS, tmp_path / "requirements")
    monkeypatch.setattr(install, "REQUIREMENTS", locks)
    stamp_as(target, "runtime")
    locks.joinpath("runtime.lock").write_text("fastapi==1\n")
    assert not install.is_current(target)


def test_another_wheel_for_this_machine_makes_the_stamp_old(
    target: install.Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp_as(target, "runtime")
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=ON")
    assert not install.is_current(target)


def test_another_python_makes_the_stamp_old(target: install.Target, monkeypatch: pytest.MonkeyPatch) -> None:
    stamp_as(target, "runtime")
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    assert not install.is_current(target)


def test_the_wheel_is_installed_before_the_lock_that_would_compile_it(target: install.Target) -> None:
    wheel = Path("llama.whl")
    arguments = [step[1] for step in install.pip_steps(target, wheel)]
    assert arguments[0] == ["--no-deps", "--force-reinstall", "llama.whl"]
    assert arguments[1] == ["--require-hashes", "-r", str(llama_wheel.REQUIREMENTS / "runtime.lock")]


def test_a_python_that_is_too_old_is_named_with_the_way_out() -> None:
    complaint = install.age_complaint((3, 9, 2), "/usr/bin/python3")
    assert complaint is not None
    assert "Python 3.11 or newer" in complaint
    assert "/usr/bin/python3 is 3.9.2" in complaint
    assert "make run PYTHON=" in complaint


def test_the_oldest_python_allowed_is_not_complained_about() -> None:
    assert install.age_complaint((3, 11, 0), "python3") is None


def test_a_missing_compiler_ends_the_install_with_one_and_makes_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert install.main(["--venv", str(tmp_path / ".venv")]) == 1
    assert "No C++ compiler" in capsys.readouterr().err
    assert not (tmp_path / ".venv").exists()


def test_a_failing_pip_ends_the_install_with_its_last_lines_and_no_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    damaged = llama_wheel.wheel_folder({"RUNWRIGHT_CACHE_DIR": str(tmp_path / "cache")}) / "llama_cpp_python-1-x.whl"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"half a wheel")
    target = install.Target(venv=tmp_path / ".venv", dev=False, editable=True)
    target.venv.mkdir()
    stamp_as(target, "runtime")
    assert install.main(["--venv", str(target.venv)]) == 1
    assert "llama_cpp_python-1-x.whl is not a valid wheel filename" in capsys.readouterr().err
    assert not target.stamp.exists()
