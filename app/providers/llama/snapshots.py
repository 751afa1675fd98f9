"""Stored prefixes on disk, so that they outlive the process.

A snapshot is a prompt in another form, and C code believes every byte of it. So: (1) a file is used only after a MAC
over all of it, with the server's key, was checked, and says nothing before that but where it might belong; (2) folder
and files are for this user only, a folder for each tenant, whose name does not tell which; (3) a file is written under
another name and renamed, so there is no half one; (4) what can't be used is removed. llama.cpp's own functions for
such files end the process on one that was cut short, and are never used.

Layout: magic, length of the header, header (JSON), tokens (32 bits, little endian), state, MAC (BLAKE2b, keyed).
"""

import hashlib
import hmac
import json
import logging
import os
import queue
import struct
import threading
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from app.providers.llama.prefixes import Match, PrefixTree, Scope, Stretch

_MAGIC: Final = b"RWPREFIX"
_FORMAT: Final = 2
_MAC_BYTES: Final = 32
_MOST_HEADER_BYTES: Final = 8192
_MOST_TOKENS: Final = 2**16
_TOKEN_BYTES: Final = 4
_SUFFIX: Final = ".prefix"
_LENGTH: Final = struct.Struct("<I")
# Tasks that wait; more writes are left out: a snapshot is a convenience, and holds memory while it waits. The engine's
# thread never waits for the disk.
_MOST_WAITING: Final = 64
# What reading a file raises that is none of ours.
_UNREADABLE: Final = (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, struct.error)

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotOptions:
    """``dialect`` says what a state depends on: the library's version, the model's digest, the kind of its cache.

    ``key``: 16 to 64 bytes that only the server knows.
    """

    folder: Path
    key: bytes
    dialect: str
    budget_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """What a file's header says of itself, not to be believed before its MAC."""

    path: Path
    scope: Scope
    parent: str
    start: int
    tokens: tuple[int, ...]
    state_bytes: int
    made_at: float


class SnapshotFolder:
    """Writes on a thread of its own; reads on the caller's. ``close`` waits for what is to be written."""

    def __init__(self, options: SnapshotOptions) -> None:
        """Makes the folder. Raises OSError."""
        self._options = options
        self.budget_bytes = options.budget_bytes
        options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        options.folder.chmod(0o700)
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="llama-snapshots", daemon=True)
        self._thread.start()

    def fill(self, tree: PrefixTree[bytearray]) -> None:
        """Tells the tree what there is, without reading the states. Removes what fits nowhere."""
        _unlink(self._options.folder.glob("*/*.part"))
        found = {path.stem: self._look_at(path) for path in sorted(self._options.folder.glob(f"*/*{_SUFFIX}"))}
        matches: dict[str, Match[bytearray]] = {"": Match()}
        # A stretch begins where its parent holds it, so parents come first in this order.
        for name, entry in sorted(found.items(), key=lambda item: item[1].start if item[1] else 0):
            parent = matches.get(entry.parent) if entry is not None else None
            if entry is None or parent is None or not self._hang(tree, entry, parent, matches):
                self._remove_name(name)

    def write(self, stretch: Stretch[bytearray]) -> None:
        """Writes a stretch, later. Left out where the disk is too slow."""
        state = stretch.state
        if self._waiting.qsize() >= _MOST_WAITING:
            _log.warning("the disk is too slow for snapshots: one was left out")
        elif state is not None:
            self._waiting.put(lambda: self._write(stretch, state))

    def read(self, stretch: Stretch[bytearray]) -> bytearray | None:
        """The state of a stretch, checked; None where the file is gone or is not what this server wrote."""
        try:
            content = self._path(stretch).read_bytes()
        except OSError:
            return None
        body, mac = memoryview(content)[:-_MAC_BYTES], content[-_MAC_BYTES:]
        if not hmac.compare_digest(self._mac(body), mac):
            _log.warning("a snapshot of a prefix is damaged or was not written by this server")
            return None
        head = self._head(stretch)
        if bytes(body[: len(head)]) != head or len(body) - len(head) != stretch.size_bytes:
            return None
        return bytearray(body[len(head) :])

    def remove(self, stretches: Iterable[Stretch[bytearray]]) -> None:
        """Removes files, later, after what is to be written."""
        paths = [self._path(stretch) for stretch in stretches]
        if paths:
            self._waiting.put(lambda: _unlink(paths))

    def close(self) -> None:
        """Waits for what is to be written. Idempotent."""
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (task := self._waiting.get()) is not None:
            try:
                task()
            except OSError as error:
                _log.warning("a snapshot could not be written or removed: %s", error.strerror)

    def _write(self, stretch: Stretch[bytearray], state: bytearray) -> None:
        path = self._path(stretch)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        head = self._head(stretch)
        digest = hashlib.blake2b(head, key=self._options.key, digest_size=_MAC_BYTES)
        digest.update(state)
        temporary = path.with_suffix(".part")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(head)
                file.write(state)
                file.write(digest.digest())
            temporary.replace(path)
        except OSError:
            # Half of somebody's text, which nothing would remove until the next start.
            temporary.unlink(missing_ok=True)
            raise
        stretch.is_on_disk = True

    def _look_at(self, path: Path) -> _Found | None:
        """Reads a file's header and tokens; None for what can't be one of ours."""
        try:
            with path.open("rb") as file:
                prefix, header_bytes, header = _read_head(file)
                found = _parse(path, header)
                tokens = array("i", file.read(_TOKEN_BYTES * int(header["count"])))
                size = os.fstat(file.fileno()).st_size
        except _UNREADABLE:
            return None
        ours = (prefix[: len(_MAGIC)], header["format"], header["dialect"])
        rest = size - len(prefix) - header_bytes - _TOKEN_BYTES * len(tokens) - _MAC_BYTES
        is_whole = rest == found.state_bytes > 0 and len(tokens) == header["count"] > 0
        if ours != (_MAGIC, _FORMAT, self._options.dialect) or not is_whole:
            return None
        return _Found(
            path=path, scope=found.scope, parent=found.parent, start=found.start, tokens=tuple(tokens),
            state_bytes=found.state_bytes, made_at=found.made_at,
        )  # fmt: skip

    def _hang(
        self,
        tree: PrefixTree[bytearray],
        entry: _Found,
        parent: Match[bytearray],
        matches: dict[str, Match[bytearray]],
    ) -> bool:
        """Adds a stretch where its header says. False where that is no place for it, or its name is another's."""
        holder = parent.path[-1] if parent.path else None
        first, last = (holder.start, holder.end) if holder is not None else (0, 0)
        if not first <= entry.start <= last or (holder is not None and holder.scope != entry.scope):
            return False
        try:
            at = Match(length=entry.start, path=parent.path)
            match = tree.add(at, entry.scope, entry.tokens, None, entry.state_bytes, made_at=entry.made_at)
        except ValueError:
            return False
        if self._path(match.path[-1]) != entry.path:
            tree.drop(match.path[-1])
            return False
        matches[entry.path.stem] = match
        return True

    def _head(self, stretch: Stretch[bytearray]) -> bytes:
        header = {
            "format": _FORMAT,
            "dialect": self._options.dialect,
            "owner": stretch.scope.owner,
            "fingerprint": stretch.scope.fingerprint,
            "kind": stretch.scope.kind,
            "parent": _name(stretch.parent) if stretch.parent is not None else "",
            "start": stretch.start,
            "count": len(stretch.tokens),
            "state_bytes": stretch.size_bytes,
            "made_at": stretch.made_at,
        }
        text = json.dumps(header, sort_keys=True).encode()
        return _MAGIC + _LENGTH.pack(len(text)) + text + array("i", stretch.tokens).tobytes()

    def _path(self, stretch: Stretch[bytearray]) -> Path:
        folder = _folder_of(stretch.scope.owner, folder=self._options.folder, key=self._options.key)
        return folder / f"{_name(stretch)}{_SUFFIX}"

    def _mac(self, body: memoryview) -> bytes:
        return hashlib.blake2b(body, key=self._options.key, digest_size=_MAC_BYTES).digest()

    def _remove_name(self, name: str) -> None:
        _unlink(self._options.folder.glob(f"*/{name}{_SUFFIX}"))


def erase_files(folder: Path, *, key: bytes, owner: str, before: float | None) -> None:
    """Removes what lies there of an owner and was made up to an instant; None: everything. Blocks.

    For when no model is loaded. What hangs on a file that is gone is removed when one is. A file that does not say
    when it was made goes, too.
    """
    for path in tuple(_folder_of(owner, folder=folder, key=key).glob("*")):
        made_at = _made_at(path) if path.suffix == _SUFFIX else None
        if before is None or made_at is None or made_at <= before:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                _log.warning("a snapshot could not be removed: %s", error.strerror)


def _made_at(path: Path) -> float | None:
    try:
        with path.open("rb") as file:
            return _parse(path, _read_head(file)[2]).made_at
    except _UNREADABLE:
        return None


def _folder_of(owner: str, *, folder: Path, key: bytes) -> Path:
    """Its name does not tell whose it is."""
    return folder / hashlib.blake2b(owner.encode(), key=key, digest_size=16).hexdigest()


def _read_head(file: BinaryIO) -> tuple[bytes, int, Any]:
    """Magic and length, the header's length, and the header. Raises as ``_UNREADABLE`` says."""
    prefix = file.read(len(_MAGIC) + _LENGTH.size)
    (header_bytes,) = _LENGTH.unpack(prefix[len(_MAGIC) :])
    return prefix, header_bytes, json.loads(file.read(min(header_bytes, _MOST_HEADER_BYTES)))


def _name(stretch: Stretch[bytearray]) -> str:
    """Stands for the whole text up to the stretch's end, and its scope."""
    unnamed: list[Stretch[bytearray]] = []
    each: Stretch[bytearray] | None = stretch
    while each is not None and not each.name:
        unnamed.append(each)
        each = each.parent
    scope = stretch.scope
    for each in reversed(unnamed):
        parent = each.parent.name if each.parent is not None else ""
        said = json.dumps([scope.owner, scope.fingerprint, scope.kind, parent, each.start]).encode()
        each.name = hashlib.blake2b(said + array("i", each.tokens).tobytes(), digest_size=20).hexdigest()
    return stretch.name


def _parse(path: Path, header: Any) -> _Found:
    """Raises ValueError, KeyError or TypeError for what is no header."""
    if not 0 < int(header["count"]) <= _MOST_TOKENS:
        raise ValueError("not so many tokens")
    scope = Scope(owner=str(header["owner"]), fingerprint=str(header["fingerprint"]), kind=str(header["kind"]))
    return _Found(
        path=path, scope=scope, parent=str(header["parent"]), start=int(header["start"]), tokens=(),
        state_bytes=int(header["state_bytes"]), made_at=float(header["made_at"]),
    )  # fmt: skip


def _unlink(paths: Iterable[Path]) -> None:
    for path in tuple(paths):
        path.unlink(missing_ok=True)
