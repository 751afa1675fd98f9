"""What a caller says about one invocation."""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.agents import Agent

DEFAULT_LLM_CALLS: Final = 500

StreamingMode = Literal["none", "sse"]
OnSessionBusy = Literal["enqueue", "reject", "interrupt"]


class RunConfig(BaseModel):
    """Bounds and manners of one invocation, with ADK's names where ADK has one.

    ``max_llm_calls`` caps the model calls of the whole invocation, those of sub-agents included; zero or less takes
    this cap away. ``streaming_mode`` ``"sse"`` adds partial events with text as it is written. ``on_session_busy``:
    wait for the session's open runs, raise SessionBusyError, or cancel them first. ``timeout_seconds`` is a deadline
    for the whole invocation, waiting for its turn included.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_llm_calls: int = DEFAULT_LLM_CALLS
    streaming_mode: StreamingMode = "none"
    on_session_busy: OnSessionBusy = "enqueue"
    timeout_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    def llm_calls_for(self, agent: Agent) -> int:
        """The cap that holds: the least of this one and the one that the agent's author wrote. An agent's default is
        nobody's word and does not count. 0: there is none."""
        written = [agent.max_llm_calls] if "max_llm_calls" in agent.model_fields_set else []
        return min((cap for cap in (self.max_llm_calls, *written) if cap > 0), default=0)
