from pathlib import Path

import pytest

from app.providers.llama.limits import available_memory_bytes, available_processors

MEMINFO = "MemTotal:       8000000 kB\nMemAvailable:    4000000 kB\n"
KERNEL_BYTES = 4_000_000 * 1024
NO_LIMIT_V1 = "9223372036854771712"


def machine(root: Path, files: dict[str, str]) -> Path:
    """A made-up /proc and /sys."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_cgroups_memory_is_what_the_kernel_estimates(tmp_path: Path) -> None:
    assert available_memory_bytes(machine(tmp_path, {"proc/meminfo": MEMINFO})) == KERNEL_BYTES


def test_without_proc_the_platform_is_asked(tmp_path: Path) -> None:
    assert available_memory_bytes(tmp_path) > 0


def test_this_machine_has_memory_and_processors() -> None:
    assert available_memory_bytes() > 0
    assert available_processors() >= 1


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"memory.max": "1000000", "memory.current": "400000", "memory.stat": "anon 1\ninactive_file 100000\n"},
            700000,
        ),
        ({"memory.max": "1000000", "memory.current": "1200000"}, 0),
        ({"memory.max": "max", "memory.current": "400000"}, KERNEL_BYTES),
    ],
)
def test_a_v2_limit_that_is_nearer_binds(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    inside = {f"sys/fs/cgroup/service/{name}": text for name, text in files.items()}
    root = machine(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/service\n", **inside})

    assert available_memory_bytes(root) == expected


def test_a_limit_of_a_folder_above_binds_too(tmp_path: Path) -> None:
    above = {"sys/fs/cgroup/memory.max": "5000", "sys/fs/cgroup/memory.current": "1000"}
    root = machine(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/a/b\n", **above})

    assert available_memory_bytes(root) == 4000


@pytest.mark.parametrize(("limit", "expected"), [("5000", 4200), (NO_LIMIT_V1, KERNEL_BYTES)])
def test_a_v1_limit_is_read(tmp_path: Path, limit: str, expected: int) -> None:
    folder = "sys/fs/cgroup/memory/job"
    files = {
        f"{folder}/memory.limit_in_bytes": limit,
        f"{folder}/memory.usage_in_bytes": "1000",
        f"{folder}/memory.stat": "inactive_file 7\ntotal_inactive_file 200\n",
    }
    root = machine(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "4:memory:/job\n", **files})

    assert available_memory_bytes(root) == expected


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("sys/fs/cgroup/cpu.max", "100000 100000", 1),
        ("sys/fs/cgroup/cpu.max", "50000 100000", 1),
        ("sys/fs/cgroup/job/cpu.max", "190000 100000", 1),
    ],
)
def test_a_cpu_quota_binds_and_is_rounded_down(tmp_path: Path, file: str, text: str, expected: int) -> None:
    assert available_processors(machine(tmp_path, {"proc/self/cgroup": "0::/job\n", file: text})) == expected


def test_a_v1_cpu_quota_is_read(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/cpu"
    files = {f"{folder}/cpu.cfs_quota_us": "100000", f"{folder}/cpu.cfs_period_us": "100000"}

    assert available_processors(machine(tmp_path, {"proc/self/cgroup": "1:cpu:/\n", **files})) == 1


@pytest.mark.parametrize("text", ["max 100000", "", "100000 0"])
def test_no_cpu_quota_leaves_the_affinity(tmp_path: Path, text: str) -> None:
    root = machine(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": text})

    assert available_processors(root) == available_processors(tmp_path / "nothing")
