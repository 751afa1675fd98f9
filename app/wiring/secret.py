"""The server's own secret: what it seals, it must be able to open after a restart."""

import contextlib
import hashlib
import os
import secrets
from pathlib import Path
from typing import Final

_BYTES: Final = 32


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that only this user reads, whole or not at all."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)


def load_secret(configured: str | None, data_dir: Path) -> bytes:
    """The configured secret, or one that is made once and kept in ``data_dir``."""
    if configured is not None:
        return configured.encode()
    path = data_dir / "server-secret"
    if not path.exists():
        data_dir.mkdir(parents=True, exist_ok=True)
        draft = data_dir / f"server-secret.{secrets.token_hex(4)}"
        write_private(draft, secrets.token_bytes(_BYTES))
        # Of processes that start together one makes it; a rename would take it from those that have read it.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_bytes()


def derive_key(secret: bytes, purpose: str) -> bytes:
    """A key of its own for each purpose (32 bytes): what one of them seals, no other one opens. ``purpose`` has at most
    16 bytes."""
    return hashlib.blake2b(secret, digest_size=32, person=purpose.encode("ascii")).digest()
