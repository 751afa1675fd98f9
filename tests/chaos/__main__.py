"""``python -m tests.chaos``: a round, as long as wanted."""

import argparse
import asyncio
import os
import secrets
import shutil
import sys
import time
from pathlib import Path

from tests.chaos.report import write_report
from tests.chaos.rounds import RoundConfig, play_round
from tests.chaos.setting import make_folder
from tests.secrets_watch import look_into_folder, take_found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("CHAOS_SECONDS") or 60))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**6)))
    parser.add_argument("--runs", type=int, help="accepted runs to reach at least; without it 48 a minute")
    parser.add_argument("--disturbances", type=int, help="without it 12 a minute, and at least one of each kind")
    parser.add_argument("--report", type=Path, help="a file for the table")
    options = parser.parse_args()
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)  # noqa: T201

    tell(f"seed {options.seed} (CHAOS_SEED={options.seed} draws the same load and the same disturbances)")
    config = RoundConfig(
        seed=options.seed,
        seconds=options.seconds,
        runs=options.runs or max(20, round(options.seconds * 48 / 60)),
        disturbances=options.disturbances or max(8, round(options.seconds * 12 / 60)),
        folder=make_folder(),
    )
    report = asyncio.run(play_round(config, tell))
    written = write_report(report)
    tell(f"done\n\n{written}")
    if options.report is not None:
        options.report.write_text(f"{written}\n")
    look_into_folder(config.folder / "logs")
    told_secrets = take_found()
    tell("\n".join([f"{len(told_secrets)} secrets in the services' logs", *told_secrets]))
    if report.violations or told_secrets:
        return 1
    shutil.rmtree(config.folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
