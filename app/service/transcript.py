"""What the model of a run was told and what it said: made from the log, as it is each time that a run goes on."""

from collections.abc import Sequence

from app.agents import Agent
from app.conversation import Message, Role
from app.errors import NotFound
from app.ports.catalogue import Catalogue
from app.ports.records import RunRecord
from app.ports.store import TenantTx
from app.prompt import PromptLayer, assemble_prompt, drop_turns
from app.run.reopen import fold_chain
from app.run.state import State
from app.service import runs

Line = tuple[PromptLayer, Message]
"""A message, and the layer of the prompt that it belongs to."""


async def transcript_page(
    tx: TenantTx, run_id: str, catalogue: Catalogue, *, limit: int, after: int
) -> tuple[Sequence[Line], int | None]:
    """Up to ``limit`` messages behind the first ``after``, oldest first, and how many there are before the next page;
    None on the last one. Raises NotFound."""
    lines = await _read(tx, await runs.get(tx, run_id), catalogue)
    page = lines[after : after + limit]
    return page, after + len(page) if len(lines) > after + len(page) else None


async def _read(tx: TenantTx, run: RunRecord, catalogue: Catalogue) -> Sequence[Line]:
    """The prompt of the agent that the run is under, what of the history fitted, and what was said since. Declarations
    of tools are no messages."""
    *before, own = await tx.logs_before(run.run_id)
    state = fold_chain(before, own)
    *given, newest = (Message(role=Role.USER, content=run.input),) if isinstance(run.input, str) else run.input
    history = drop_turns((*await tx.history_before(run.run_id), *given), state.turns_dropped)
    prompt = assemble_prompt(
        await _find_agent(tx, run, state),
        (),
        pinned=run.context.pinned,
        retrieved=run.context.retrieved,
        output_schema=run.output_schema,
        enforces_schema=_enforces_schema(state.model or run.model, catalogue),
    )
    # As they stand in the log: of a call that is still out nothing is made up.
    spoken = (*history, newest, *state.turns)
    return (*prompt.layers, *((PromptLayer.CONVERSATION, message) for message in spoken))


async def _find_agent(tx: TenantTx, run: RunRecord, state: State) -> Agent:
    """The one that the run is under, in the version that it was accepted with."""
    name = state.stack[-1] if state.stack else run.agent
    version = run.agent_version if name == run.agent else (run.team or {}).get(name)
    found = await tx.get_agent(name, version)
    if found is None:
        raise NotFound("the agent of this run is not kept any more")
    return found.agent


def _enforces_schema(model: str | None, catalogue: Catalogue) -> bool:
    """Such a model gets the schema beside the prompt."""
    return any(known.name == model and known.enforces_schema for known in catalogue.models())
