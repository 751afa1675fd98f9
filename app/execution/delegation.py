"""An agent as a tool of another one."""

import re
from typing import Any, Final

from app.agents import Agent, ToolDeclaration
from app.errors import ToolExecutionError
from app.events import RunState
from app.execution.runner import AgentRunner
from app.policy import Effect
from app.ports.tools import Tool, ToolContext

_PARAMETERS: Final = {
    "type": "object",
    "properties": {"input": {"type": "string", "minLength": 1, "description": "What the agent shall do"}},
    "required": ["input"],
    "additionalProperties": False,
}


def agent_tool(
    runner: AgentRunner,
    agent: Agent,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | None = None,
    parallel_safe: bool = False,
) -> Tool:
    """Lets an agent hand work to another one. Each call is a run of its own below the caller's: it carries on depth,
    path, deadline and cancel, and spends what the caller has left.

    Without a ``name`` the tool is called like the agent. The tool fails (ToolExecutionError, which the caller's model
    is told) where the run does not complete: no answer is invented.
    """

    async def call(arguments: dict[str, Any], context: ToolContext) -> str:
        run = await runner.run(
            agent, arguments["input"], tenant=context.tenant_id, user=context.user, parent=context.run
        )
        if run.state is RunState.SUSPENDED:
            # Its caller goes on: what is granted later would be done for nobody.
            await runner.cancel(run.run_id, "its caller does not wait for a person")
            raise ToolExecutionError(f"{agent.name} waits for a person, and its caller can't")
        if run.state is not RunState.COMPLETED:
            raise ToolExecutionError(f"{agent.name} did not complete: {run.state.value} ({run.error_code})")
        return run.output_text or ""

    return Tool(
        declaration=ToolDeclaration(
            name=re.sub(r"[^A-Za-z0-9_-]", "_", agent.name) if name is None else name,
            description=agent.description if description is None else description,
            parameters=dict(_PARAMETERS),
        ),
        call=call,
        effect=effect,
        parallel_safe=parallel_safe,
    )
