"""A short round of chaos, as a process of its own: what ``make chaos`` does for longer."""

import os
import secrets
import subprocess
import sys

import pytest

from tests.acceptance.service import ROOT

SECONDS = 25


@pytest.mark.timeout(240)
def test_a_short_round_with_a_disturbance_of_each_kind_breaks_no_promise() -> None:
    seed = os.environ.get("CHAOS_SEED") or str(secrets.randbelow(10**6))

    round = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--seconds", str(SECONDS), "--seed", seed],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    print(round.stdout)  # noqa: T201 - shown where it fails: the seed and what was done
    assert round.returncode == 0, round.stderr
