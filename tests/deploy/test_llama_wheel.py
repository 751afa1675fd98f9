"""The wheel's cache must miss whenever the machine code would differ, and never hold half a wheel."""

import fcntl
import io
import os
from pathlib import Path

import llama_wheel
import pytest

KEY_PARTS = {"machine": "x86_64", "features": "avx2 fma", "python_tag": "cpython-3.11"}


def write_program(path: Path, script: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("environ", "changed"),
    [
        pytest.param({"CMAKE_ARGS": "-DGGML_CUDA=ON"}, {}, id="the caller's CMake arguments"),
        pytest.param({"RUNWRIGHT_PORTABLE": "1"}, {}, id="portable instead of native"),
        pytest.param({}, {"features": "avx2 avx512f fma"}, id="the CPU's features"),
        pytest.param({}, {"machine": "aarch64"}, id="the architecture"),
        pytest.param({}, {"python_tag": "cpython-3.12"}, id="the Python"),
    ],
)
def test_a_native_wheels_key_changes_with(environ: dict[str, str], changed: dict[str, str]) -> None:
    assert llama_wheel.wheel_key(environ, **{**KEY_PARTS, **changed}) != llama_wheel.wheel_key({}, **KEY_PARTS)


def test_a_native_wheels_key_stays_when_nothing_changed() -> None:
    assert llama_wheel.wheel_key({"HOME": "/a"}, **KEY_PARTS) == llama_wheel.wheel_key({"HOME": "/b"}, **KEY_PARTS)


def test_a_portable_wheels_key_ignores_the_cpus_features() -> None:
    portable = {"RUNWRIGHT_PORTABLE": "1"}
    elsewhere = {**KEY_PARTS, "features": "avx2 avx512f fma"}
    assert llama_wheel.wheel_key(portable, **elsewhere) == llama_wheel.wheel_key(portable, **KEY_PARTS)


def test_a_portable_build_on_x86_64_states_its_baseline() -> None:
    flags = set(llama_wheel.cmake_args({"RUNWRIGHT_PORTABLE": "1"}, "x86_64").split())
    assert flags > {"-DGGML_NATIVE=OFF", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON", "-DGGML_AVX512=OFF"}


def test_a_portable_build_elsewhere_takes_the_compilers_baseline() -> None:
    assert llama_wheel.cmake_args({"RUNWRIGHT_PORTABLE": "1"}, "aarch64") == "-DGGML_NATIVE=OFF"


def test_the_callers_cmake_arguments_come_last_so_that_they_win() -> None:
    assert llama_wheel.cmake_args({"CMAKE_ARGS": "-DGGML_NATIVE=OFF"}, "x86_64").endswith("ON -DGGML_NATIVE=OFF")


def test_the_order_of_the_cpus_flags_does_not_matter(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: sse avx2 fma\n\nprocessor\t: 1\nflags\t\t: sse avx2 fma\n")
    assert llama_wheel.cpu_features(cpuinfo) == "avx2 fma sse"


def test_an_arm_kernel_calls_the_flags_features(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    assert llama_wheel.cpu_features(cpuinfo) == "asimd fp"


def test_the_folder_names_the_version_that_the_lock_pins(tmp_path: Path) -> None:
    folder = llama_wheel.wheel_folder({"RUNWRIGHT_CACHE_DIR": str(tmp_path)})
    assert folder.parent == tmp_path / "wheels"
    assert folder.name.startswith(f"{llama_wheel.locked_version()}-")


def test_a_missing_compiler_is_told_with_what_to_install(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "RUNWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    with pytest.raises(llama_wheel.InstallError, match=r"No C\+\+ compiler(.|\n)*apt-get install g\+\+"):
        llama_wheel.provide_wheel(environ)


def test_a_compiler_that_cxx_names_with_arguments_is_found(tmp_path: Path) -> None:
    compiler = write_program(tmp_path / "bin" / "my-c++", "")
    environ = {"PATH": str(tmp_path / "bin"), "CXX": "my-c++ -m64"}
    assert llama_wheel.find_compiler(environ) == str(compiler)


def test_a_kept_wheel_needs_no_compiler(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "RUNWRIGHT_CACHE_DIR": str(tmp_path)}
    kept = llama_wheel.wheel_folder(environ) / "llama_cpp_python-1-py3-none-any.whl"
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert llama_wheel.provide_wheel(environ) == kept


def test_a_compile_that_fails_shows_its_last_lines_and_where_the_whole_log_is(tmp_path: Path) -> None:
    python = write_program(tmp_path / "venv" / "bin" / "python", "echo 'ggml.c:1: error: no such register'; exit 1")
    log = tmp_path / "build.log"
    with pytest.raises(llama_wheel.InstallError, match=rf"no such register(.|\n)*{log}"):
        llama_wheel.compile_wheel(python, tmp_path / "wheels", log, os.environ)


def test_a_compile_gets_our_cmake_arguments_and_the_build_environments_tools_first(tmp_path: Path) -> None:
    python = write_program(tmp_path / "venv" / "bin" / "python", 'echo "$CMAKE_ARGS|$PATH|$*"')
    log = tmp_path / "build.log"
    llama_wheel.compile_wheel(python, tmp_path / "wheels", log, {"PATH": "/usr/bin:/bin"})
    arguments, path, command = log.read_text().split("|")
    assert arguments == "-DGGML_NATIVE=ON"
    assert path == f"{python.parent}:/usr/bin:/bin"
    assert "--require-hashes" in command
    assert "--no-binary llama-cpp-python" in command


def test_progress_is_one_line_for_a_step_and_the_log_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_wheel, "PROGRESS_SECONDS", 0.0)
    log, screen = io.StringIO(), io.StringIO()
    llama_wheel.show_progress(iter(["  Preparing\n", "  [80/193] g++ -c ggml.c\n"]), log, screen)
    assert screen.getvalue().startswith("  llama.cpp: step 80 of 193, ")
    assert log.getvalue() == "  Preparing\n  [80/193] g++ -c ggml.c\n"


def test_progress_within_ten_seconds_of_the_last_line_is_not_shown() -> None:
    screen = io.StringIO()
    llama_wheel.show_progress(iter(["[1/193] g++\n", "[2/193] g++\n"]), io.StringIO(), screen)
    assert screen.getvalue() == ""


def test_the_lock_keeps_a_second_install_out(tmp_path: Path) -> None:
    path = tmp_path / "folder" / ".lock"
    with llama_wheel.exclusive(path), path.open() as second, pytest.raises(BlockingIOError):
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_lock_is_free_after_a_failure(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with pytest.raises(llama_wheel.InstallError, match="broken"), llama_wheel.exclusive(path):
        raise llama_wheel.InstallError("broken")
    with path.open() as second:
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
