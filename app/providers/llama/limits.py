"""What this process may use of the machine: memory and processors, as the kernel and its cgroups (v1 and v2) say.

``root`` is where ``/proc`` and ``/sys`` are looked for.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

_ROOT: Final = Path("/")


def available_memory_bytes(root: Path = _ROOT) -> int:
    """Bytes that can be taken without swapping: the kernel's estimate, or less where a cgroup's limit is nearer.

    Page cache counts as available on both sides, and the weights of a mapped model are page cache.
    """
    rooms = [_kernel_estimate_bytes(root), *_cgroup_rooms_bytes(root)]
    return max(0, min(rooms))


def available_processors(root: Path = _ROOT) -> int:
    """Processors by affinity and cgroup quota, rounded down, at least 1.

    Not ``os.cpu_count()``: with more threads than processors each step of a decode waits for the slowest thread.
    """
    # Only Linux has affinities.
    owned = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([float(owned), *_cgroup_quotas(root)])))


def _kernel_estimate_bytes(root: Path) -> int:
    for line in (_read(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return int(psutil.virtual_memory().available)


def _cgroup_rooms_bytes(root: Path) -> Iterator[int]:
    for folder in _folders(root, controller="memory"):
        limit = _read_number(folder / "memory.max") or _read_number(folder / "memory.limit_in_bytes")
        used = _read_number(folder / "memory.current") or _read_number(folder / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            yield limit - used + _reclaimable_bytes(folder)


def _reclaimable_bytes(folder: Path) -> int:
    fields = dict(line.split(maxsplit=1) for line in (_read(folder / "memory.stat") or "").splitlines() if " " in line)
    return int(fields.get("total_inactive_file", fields.get("inactive_file", 0)))


def _cgroup_quotas(root: Path) -> Iterator[float]:
    for folder in _folders(root, controller="cpu"):
        quota, _, period = (_read(folder / "cpu.max") or "").strip().partition(" ")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            yield int(quota) / int(period)
        quota_us, period_us = (_read_number(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota_us and period_us:
            yield quota_us / period_us


def _folders(root: Path, *, controller: str) -> Iterator[Path]:
    """The cgroup's folder and all above it: each may hold the limit that binds. In a container only the top exists."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0":
            mount = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            mount = root / "sys/fs/cgroup" / controller
        else:
            continue
        leaf = mount / path.strip().lstrip("/")
        yield from (folder for folder in (leaf, *leaf.parents) if folder == mount or mount in folder.parents)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _read_number(path: Path) -> int | None:
    text = (_read(path) or "").strip()
    return int(text) if text.isdigit() else None
