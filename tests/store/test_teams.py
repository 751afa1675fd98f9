"""Agents of a team, as a drive loads them: whole, in their pinned versions, and with no more than they were granted."""

import pytest

from app.agents import Agent, SubAgent, SubAgentMode
from app.errors import ConfigurationError
from app.execution.system import SystemClock
from app.ids import TenantId, WorkerId
from app.ports.records import Claim
from app.store.database import Database
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.store.support import new_run

TENANT = TenantId("ten_a")
CLERK = Agent(name="clerk", instructions="one", tools=("read", "pay"))
BOSS = Agent(
    name="boss",
    instructions="Delegate.",
    tools=("read",),
    sub_agents=(SubAgent(agent="clerk", mode=SubAgentMode.TOOL),),
)


@pytest.fixture
def work(empty_database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(empty_database, SystemClock())


@pytest.fixture
async def root(empty_database: Database, work: PostgresWorkStore) -> Claim:
    """A claimed run of a team whose second agent has been given another version since."""
    async with PostgresTenantStore(empty_database).begin(TENANT) as tx:
        await tx.put_agent(CLERK)
        await tx.put_agent(BOSS)
        await tx.insert_run(new_run(TENANT, agent=BOSS, team={"clerk": 1}))
        await tx.put_agent(CLERK.model_copy(update={"instructions": "two"}))
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    return claim


async def test_a_team_is_loaded_in_its_pinned_versions(work: PostgresWorkStore, root: Claim) -> None:
    loaded = await work.load(root)
    [entry] = loaded.agent.below
    assert isinstance(entry.agent, Agent)
    assert (loaded.agent.name, entry.agent.instructions) == ("boss", "one")
    assert loaded.record.team == {"clerk": 1}


async def test_a_child_has_no_more_than_its_root_grants_it(work: PostgresWorkStore, root: Claim) -> None:
    child = new_run(TENANT, agent=CLERK, parent_run_id=root.run_id)
    adopted = await work.adopt(root, child)
    assert (await work.load(adopted.claim)).agent.tools == ("read",)


async def test_a_child_of_an_agent_outside_the_team_is_not_loaded(work: PostgresWorkStore, root: Claim) -> None:
    stranger = Agent(name="stranger", instructions="Hm.")
    adopted = await work.adopt(root, new_run(TENANT, agent=stranger, parent_run_id=root.run_id))
    with pytest.raises(ConfigurationError, match="not in the team"):
        await work.load(adopted.claim)


async def test_a_child_without_a_version_is_a_mistake(work: PostgresWorkStore, root: Claim) -> None:
    with pytest.raises(ValueError, match="names its agent's version"):
        await work.adopt(root, new_run(TENANT, agent_version=None, parent_run_id=root.run_id))


async def test_a_run_below_another_is_not_inserted_by_a_request(empty_database: Database, root: Claim) -> None:
    async with PostgresTenantStore(empty_database).begin(TENANT) as tx:
        with pytest.raises(ValueError, match="adopted"):
            await tx.insert_run(new_run(TENANT, parent_run_id=root.run_id))
