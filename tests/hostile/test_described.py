"""Requests that are made from the description of the API, right ones and wrong ones, and all checks of schemathesis.

``HOSTILE_EXAMPLES`` is how many it makes of each kind for each operation, ``HOSTILE_SEED`` plays others.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.targets import Target

CONFIG = Path(__file__).with_name("schemathesis.toml")
EXAMPLES = os.environ.get("HOSTILE_EXAMPLES", "2")
SEED = os.environ.get("HOSTILE_SEED", "1")
OWN_KEYS = "^/operators/keys/"


def attack(target: Target, key: str, folder: Path, *which: str) -> dict[str, Any]:
    """The report of all that was asked with this key. Fails, with what the tool said, where a check did."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG)]
    command += ["run", f"{target.service.address}/openapi.json", "--header", f"Authorization: Bearer {key}"]
    command += ["--checks", "all", "--max-examples", EXAMPLES, "--seed", SEED, "--request-timeout", "20", "--no-shrink"]
    command += ["--report", "json", "--report-json-path", str(report), "--no-color", *which]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:]
    return dict(json.loads(report.read_text()))


@pytest.mark.parametrize(
    ("key", "which"),
    [
        ("service", ["--exclude-tag", "operator", "--exclude-tag", "approvals"]),
        ("approver", ["--include-tag", "approvals"]),
        ("operator", ["--include-tag", "operator", "--exclude-path-regex", OWN_KEYS]),
        # Last, because the key that is used may be the one that is revoked.
        ("operator", ["--include-path-regex", OWN_KEYS]),
    ],
    ids=["tenants", "approvals", "operators", "operators' keys"],
)
@pytest.mark.timeout(600)
def test_every_route_keeps_to_its_description(sacrifice: Target, tmp_path: Path, key: str, which: list[str]) -> None:
    assert attack(sacrifice, getattr(sacrifice.keys, key), tmp_path, *which)
