"""A tenant of the database that the settings point to, as a file."""

import gzip
import os
import secrets
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TextIO

from app.errors import ConfigurationError
from app.execution.system import Uuid7Ids
from app.settings import Settings
from app.store.database import Database
from app.store.export import read_tenant
from app.store.operator import PostgresOperatorStore
from app.wiring.operator import OperatorDesk
from app.wiring.schema import open_server


async def export_configured_tenant(settings: Settings, named: str, path: Path) -> int:
    """Writes all that is kept of a tenant (by name or id), JSON in lines, compressed. Returns how many rows.

    The file is there as a whole or not at all, and for this user only: texts of people are in it. Raises
    ConfigurationError ``tenant_unknown``, ``export_exists``, ``export_unusable``.
    """
    async with open_server(settings) as config:
        database, ids, count = Database(config), Uuid7Ids(), 0
        try:
            desk = OperatorDesk(store=PostgresOperatorStore(database, ids), ids=ids, actor="export")
            tenant = await desk.find_tenant(named)
            async with aclosing(read_tenant(database, tenant.tenant_id)) as lines:
                with _new_file(path) as file:
                    async for line in lines:
                        file.write(f"{line}\n")
                        count += 1
        finally:
            await database.close()
    return count


@contextmanager
def _new_file(path: Path) -> Iterator[TextIO]:
    """A text file that is compressed, and has its name when the block has ended well."""
    if path.exists():
        raise ConfigurationError(f"{path} exists; name another file", code="export_exists")
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with gzip.open(file, "wt", encoding="ascii", newline="\n") as packed:
                yield packed
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be written: {error.strerror}", code="export_unusable") from error
    finally:
        part.unlink(missing_ok=True)
