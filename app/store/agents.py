"""Agents of a tenant: versions are immutable and counted on, also over a retirement."""

from collections.abc import Sequence
from typing import Final

import asyncpg

from app.agents import Agent, AgentVersion
from app.store.rows import dump_json, load_agent
from app.store.transaction import TenantTransaction

# Two writers of one name come one after the other from here on.
_LOCK: Final = """
    INSERT INTO agents AS a (tenant_id, name, newest_version) VALUES ($1, $2, 0)
    ON CONFLICT (tenant_id, name) DO UPDATE SET newest_version = a.newest_version RETURNING a.newest_version, a.retired
"""
_ADD_VERSION: Final = """
    INSERT INTO agent_versions (tenant_id, name, version, digest, definition) VALUES ($1, $2, $3, $4, $5)
"""
_SET_NEWEST: Final = "UPDATE agents SET newest_version = $3, retired = false WHERE tenant_id = $1 AND name = $2"
_RETIRE: Final = "UPDATE agents SET retired = true WHERE tenant_id = $1 AND name = $2 RETURNING name"
_GET: Final = """
    SELECT v.version, v.digest, v.definition, v.created_at, a.retired
    FROM agents a JOIN agent_versions v ON v.tenant_id = a.tenant_id AND v.name = a.name
    WHERE a.tenant_id = $1 AND a.name = $2 AND v.version = coalesce($3, a.newest_version)
"""
_LIST: Final = """
    SELECT v.version, v.digest, v.definition, v.created_at, a.retired
    FROM agents a JOIN agent_versions v
        ON v.tenant_id = a.tenant_id AND v.name = a.name AND v.version = a.newest_version
    WHERE a.tenant_id = $1 AND NOT a.retired AND a.name > $2 ORDER BY a.name LIMIT $3
"""


class AgentTables(TenantTransaction):
    """The part of a tenant's transaction that keeps agents."""

    async def put_agent(self, agent: Agent) -> tuple[AgentVersion, bool]:
        [row] = await self._fetch(_LOCK, self.tenant_id, agent.name)
        newest = await self.get_agent(agent.name)
        if newest is not None and newest.digest == agent.digest():
            if newest.retired:
                await self._fetch(_SET_NEWEST, self.tenant_id, agent.name, newest.version)
            return newest.model_copy(update={"retired": False}), False
        version = row["newest_version"] + 1
        definition = dump_json(agent.model_dump(mode="json"))
        await self._fetch(_ADD_VERSION, self.tenant_id, agent.name, version, agent.digest(), definition)
        await self._fetch(_SET_NEWEST, self.tenant_id, agent.name, version)
        stored = await self.get_agent(agent.name, version)
        assert stored is not None
        return stored, True

    async def get_agent(self, name: str, version: int | None = None) -> AgentVersion | None:
        rows = await self._fetch(_GET, self.tenant_id, name, version)
        return to_version(rows[0]) if rows else None

    async def list_agents(self, *, limit: int, after: str | None) -> Sequence[AgentVersion]:
        """Retired ones are left out."""
        return [to_version(row) for row in await self._fetch(_LIST, self.tenant_id, after or "", limit)]

    async def retire_agent(self, name: str) -> bool:
        return bool(await self._fetch(_RETIRE, self.tenant_id, name))


def to_version(row: asyncpg.Record) -> AgentVersion:
    return AgentVersion(
        agent=load_agent(row["definition"]),
        version=row["version"],
        digest=row["digest"],
        created_at=row["created_at"].timestamp(),
        retired=row["retired"],
    )
