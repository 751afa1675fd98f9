"""Where npm has put the packages that ``node/package-lock.json`` names; run by itself it installs them and says where.

They are kept in the cache folder, so that once on a machine is enough. Needs nothing but Python and npm."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

NODE = Path(__file__).parent / "node"


def install_modules(npm: str) -> Path:
    """The folder ``node_modules``. It is renamed into its place when it is whole: half an installation is none."""
    lock = (NODE / "package-lock.json").read_bytes()
    cache = Path(os.environ.get("RUNWRIGHT_CACHE_DIR") or Path.home() / ".cache" / "runwright")
    place = cache / f"clients-{hashlib.sha256(lock).hexdigest()[:16]}"
    if not place.is_dir():
        scratch = cache / f"{place.name}.{os.getpid()}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(NODE / name, scratch)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit-lockfile-registry-resolved"]
        subprocess.run(command, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
        try:
            scratch.rename(place)
        except OSError:
            # Another process was quicker.
            shutil.rmtree(scratch)
    return place / "node_modules"


if __name__ == "__main__":
    sys.stdout.write(f"{install_modules(shutil.which('npm') or 'npm')}\n")
