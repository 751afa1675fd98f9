"""Reads the header of a GGUF file, so that a file that can't work is refused before llama.cpp sees it.

llama.cpp maps the file and trusts it: a truncated one can end the process in the middle of a run (SIGBUS) instead of
failing at the start. So every length is checked against what the file holds before it is believed, and every tensor
must lie inside the file. The layout is the one of GGUF's specification, versions 2 and 3, little endian.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

from app.errors import ConfigurationError

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_DEFAULT_ALIGNMENT: Final = 32
_LONGEST_KEPT_ARRAY: Final = 4096
_DEEPEST_ARRAY: Final = 4
_MOST_DIMENSIONS: Final = 4

_STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final[Mapping[int, struct.Struct]] = {
    number: struct.Struct(f"<{code}")
    for number, code in {
        0: "B",
        1: "b",
        2: "H",
        3: "h",
        4: "I",
        5: "i",
        6: "f",
        7: "?",
        10: "Q",
        11: "q",
        12: "d",
    }.items()
}
_U32: Final = _SCALARS[4]
_U64: Final = _SCALARS[10]

# ggml's block length and bytes in a block, by type number. A type that is not listed is newer than this table: its
# tensors are only checked to begin inside the file.
TENSOR_BLOCKS: Final[Mapping[int, tuple[int, int]]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66),
    17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136),
    24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54),
    35: (256, 66), 39: (32, 17),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorExtent:
    """Where a tensor lies. ``offset`` counts from the start of the data; ``size_bytes`` is None for an unknown type."""

    name: str
    dimensions: tuple[int, ...]
    type_number: int
    offset: int
    size_bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufHeader:
    """What a file says of itself. Arrays over 4,096 elements (vocabularies) are left out of ``metadata``."""

    version: int
    metadata: Mapping[str, Any]
    tensors: tuple[TensorExtent, ...]
    data_offset: int
    file_bytes: int

    @property
    def weight_bytes(self) -> int:
        return self.file_bytes - self.data_offset

    def integer(self, key: str) -> int | None:
        """The value of a key that holds a whole number, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def text(self, key: str) -> str | None:
        """The value of a key that holds a text, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None


class _Damaged(Exception):
    """The bytes can't be a GGUF file. The message says what is wrong, without the path."""


def read_header(path: Path) -> GgufHeader:
    """Reads and checks the header of a file.

    Raises ConfigurationError with code ``model_file_missing``, ``model_file_unreadable`` or ``model_file_damaged``.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size == 0:
                raise _Damaged("it is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                return parse_header(view, size)
    except FileNotFoundError:
        raise ConfigurationError(f"there is no model file at {path}", code="model_file_missing") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the model file {path} can't be read: {error}", code="model_file_unreadable"
        ) from None
    except _Damaged as problem:
        raise ConfigurationError(f"the model file {path} is damaged: {problem}", code="model_file_damaged") from None


def parse_header(view: bytes | mmap.mmap, file_bytes: int) -> GgufHeader:
    """Reads the header out of the bytes of a file of ``file_bytes``. Raises ``_Damaged``."""
    cursor = _Cursor(view)
    if cursor.take(4) != _MAGIC:
        raise _Damaged("it does not begin as a GGUF file does")
    version = cursor.number(_U32)
    if version not in _VERSIONS:
        raise _Damaged(f"its format version is {version}; versions 2 and 3 are known")
    tensor_count = cursor.count(smallest_bytes=24)
    metadata_count = cursor.count(smallest_bytes=13)
    metadata = dict(_read_pair(cursor) for _ in range(metadata_count))
    tensors = tuple(_read_tensor(cursor) for _ in range(tensor_count))
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise _Damaged(f"its alignment is {alignment!r}")
    data_offset = -(-cursor.position // alignment) * alignment
    for tensor in tensors:
        end = data_offset + tensor.offset + (tensor.size_bytes or 0)
        if end > file_bytes:
            raise _Damaged(
                f"it is cut short: the tensor {tensor.name!r} ends at byte {end}, and the file has {file_bytes}"
            )
    return GgufHeader(
        version=version,
        metadata={key: value for key, value in metadata.items() if value is not None},
        tensors=tensors,
        data_offset=data_offset,
        file_bytes=file_bytes,
    )


class _Cursor:
    """Reads forward through bytes and never past their end."""

    def __init__(self, view: bytes | mmap.mmap) -> None:
        self._view = view
        self._length = len(view)
        self.position = 0

    def take(self, length: int) -> bytes:
        start = self.skip(length)
        return bytes(self._view[start : start + length])

    def skip(self, length: int) -> int:
        start = self.position
        if length > self._length - start:
            raise _Damaged(f"its header is cut short at byte {self._length}")
        self.position = start + length
        return start

    def number(self, kind: struct.Struct) -> int:
        value: int = self.scalar(kind)
        return value

    def scalar(self, kind: struct.Struct) -> Any:
        start = self.skip(kind.size)
        return kind.unpack_from(self._view, start)[0]

    def count(self, *, smallest_bytes: int) -> int:
        """A number of things of which each takes at least so many bytes: more than fit in the file is damage."""
        count = self.number(_U64)
        if count * smallest_bytes > self._length - self.position:
            raise _Damaged(f"it announces {count} entries, more than it has room for")
        return count

    def text(self) -> str:
        return self.take(self.number(_U64)).decode("utf-8", errors="replace")

    def skip_text(self) -> None:
        self.skip(self.number(_U64))


def _read_pair(cursor: _Cursor) -> tuple[str, Any]:
    key = cursor.text()
    return key, _read_value(cursor, cursor.number(_U32), depth=0)


def _read_value(cursor: _Cursor, kind: int, *, depth: int) -> Any:
    if kind == _STRING:
        return cursor.text()
    if kind == _ARRAY:
        return _read_array(cursor, depth=depth + 1)
    if kind not in _SCALARS:
        raise _Damaged(f"it holds a value of the unknown type {kind}")
    return cursor.scalar(_SCALARS[kind])


def _read_array(cursor: _Cursor, *, depth: int) -> list[Any] | None:
    """The elements, or None for an array too long to keep; the cursor passes it either way."""
    if depth > _DEEPEST_ARRAY:
        raise _Damaged("it holds arrays in arrays without end")
    kind = cursor.number(_U32)
    scalar = _SCALARS.get(kind)
    count = cursor.count(smallest_bytes=scalar.size if scalar else 8)
    if count <= _LONGEST_KEPT_ARRAY:
        return [_read_value(cursor, kind, depth=depth) for _ in range(count)]
    if scalar is not None:
        cursor.skip(count * scalar.size)
    elif kind == _STRING:
        for _ in range(count):
            cursor.skip_text()
    else:
        raise _Damaged(f"it holds an array of {count} values of type {kind}")
    return None


def _read_tensor(cursor: _Cursor) -> TensorExtent:
    name = cursor.text()
    rank = cursor.number(_U32)
    if rank > _MOST_DIMENSIONS:
        raise _Damaged(f"the tensor {name!r} has {rank} dimensions")
    dimensions = tuple(cursor.number(_U64) for _ in range(rank))
    type_number = cursor.number(_U32)
    offset = cursor.number(_U64)
    return TensorExtent(
        name=name,
        dimensions=dimensions,
        type_number=type_number,
        offset=offset,
        size_bytes=_size_bytes(name, dimensions, type_number),
    )


def _size_bytes(name: str, dimensions: tuple[int, ...], type_number: int) -> int | None:
    block = TENSOR_BLOCKS.get(type_number)
    if block is None:
        return None
    length, bytes_in_block = block
    if dimensions and dimensions[0] % length:
        raise _Damaged(f"rows of the tensor {name!r} are {dimensions[0]} long, and its blocks {length}")
    return prod(dimensions) // length * bytes_in_block
