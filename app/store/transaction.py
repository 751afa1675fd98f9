"""What the parts of a tenant's transaction share."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from app.ids import TenantId
from app.store.database import store_errors


class TenantTransaction:
    """An open transaction that sees one tenant's rows."""

    def __init__(self, driver: asyncpg.Connection, tenant_id: TenantId) -> None:
        self._driver = driver
        self.tenant_id = tenant_id

    async def _fetch(self, statement: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        with store_errors():
            rows: Sequence[asyncpg.Record] = await self._driver.fetch(statement, *arguments)
            return rows
