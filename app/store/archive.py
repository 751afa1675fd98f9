"""The archive: what was kept long enough, as files that nothing but an operator ever deletes.

``<folder>/<tenant>/<day>/<id>.jsonl.gz``: one file for each portion, JSON in lines, compressed; ``zcat`` of a day's
files is the day. A portion is there as a whole or not at all: it is written beside its name, brought to the disk, and
then renamed. A process that dies before it has erased what it archived archives it again: a row may be there twice, and
is never missing. A file that ends in ``.part`` is a portion that nobody finished; it was, or will be, written again
under another name.

Texts of people are in it: folders are for their owner only (0700), files too (0600).
"""

import asyncio
import gzip
import os
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from app.errors import ConfigurationError
from app.ids import TenantId
from app.ports.clock import IdSource
from app.ports.retention import ArchiveLine


class FileArchive:
    """Satisfies ``ports.retention.Archive``. ``folder`` is made where it is missing."""

    def __init__(self, folder: Path, ids: IdSource) -> None:
        self._folder = folder
        self._ids = ids

    def check(self) -> None:
        """Raises ConfigurationError ``archive_dir_unusable`` where nothing can be written."""
        try:
            _make_folder(self._folder)
            probe = self._folder / f".{self._ids.new('arc')}.part"
            _write(probe, b"")
            probe.unlink()
        except OSError as error:
            raise ConfigurationError(
                f"the archive's folder {self._folder} can't be written to: {error.strerror}",
                code="archive_dir_unusable",
            ) from error

    async def put(self, tenant_id: TenantId, lines: Sequence[ArchiveLine]) -> None:
        """One file for each day among them. Raises OSError."""
        days = sorted(lines, key=attrgetter("day"))
        for day, of_day in groupby(days, key=attrgetter("day")):
            content = "".join(f"{line.text}\n" for line in of_day)
            await asyncio.to_thread(self._put, self._folder / tenant_id / day, content)

    def _put(self, folder: Path, content: str) -> None:
        _make_folder(folder)
        name = f"{self._ids.new('arc')}.jsonl.gz"
        part = folder / f"{name}.part"
        try:
            _write(part, gzip.compress(content.encode("ascii")))
            part.rename(folder / name)
        finally:
            part.unlink(missing_ok=True)
        _bring_to_disk(folder)


def _write(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _make_folder(folder: Path) -> None:
    """With those above it, each brought to the disk in the one that holds it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _bring_to_disk(folder.parent)


def _bring_to_disk(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
