"""Starts google-adk's side: one process for all scenarios, because starting it takes seconds."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.compat.lock import PROJECT
from tests.compat.records import Record
from tests.compat.scenarios import Scenario

# Nothing of the caller's: no keys, no proxies, no telemetry.
_ENVIRON = {
    "PYTHONPATH": str(PROJECT),
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OTEL_SDK_DISABLED": "true",
    "OTEL_TRACES_EXPORTER": "none",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": "false",
}
_SECONDS = 300


def driver_environ(home: Path) -> dict[str, str]:
    """The whole environment of google-adk's process."""
    return {**_ENVIRON, "HOME": str(home)}


def run_in_adk(python: Path, scenarios: Sequence[Scenario], folder: Path) -> Mapping[str, Record]:
    """What google-adk did in each scenario, by name. ``folder`` is for its databases."""
    asked = "".join(f"{scenario.model_dump_json()}\n" for scenario in scenarios)
    done = subprocess.run(
        [str(python), "-m", "tests.compat.inside", str(folder)],
        input=asked,
        capture_output=True,
        encoding="utf-8",
        env=driver_environ(folder),
        timeout=_SECONDS,
        check=False,
        cwd=folder,
    )
    if done.returncode != 0:
        raise RuntimeError(f"google-adk's side failed with {done.returncode}:\n{done.stderr}")
    records = [Record.model_validate_json(line) for line in done.stdout.splitlines()]
    return {scenario.name: record for scenario, record in zip(scenarios, records, strict=True)}
