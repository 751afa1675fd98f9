"""Runs that fail with something open, and runs that go on from them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.agents import Agent
from app.events import RunEvent, RunState
from app.ids import CallId, RunId
from app.policy import Effect, Indeterminate, Outcome
from app.ports.approvals import ApprovalGate
from app.providers import ScriptedStep
from app.run.reopen import unresolved
from tests.execution.answering import Lossy
from tests.execution.desk import pays
from tests.execution.fakes import Recorder, make_tool, say
from tests.execution.support import Bench, Story

PAID = CallId("call_1_1")


class Counter:
    """A process over one log whose payment gets lost. The model pays once and then says something."""

    def __init__(
        self,
        *script: ScriptedStep,
        effect: Effect = Effect.ONCE,
        gate: ApprovalGate | None = None,
        **bench_fields: Any,
    ) -> None:
        self.pay, self.look = Lossy(), Recorder("four trains")
        tools = [make_tool("look", self.look, effect=Effect.READ), make_tool("pay", self.pay, effect=effect)]
        self.bench = Bench(script or (pays(3), say("Well.")), tools=tools, **bench_fields)
        self.bench.runtime = replace(self.bench.runtime, approvals=gate)

    def agent(self, **fields: Any) -> Agent:
        return self.bench.agent(**{"on_indeterminate": Indeterminate.FAIL, **fields})

    async def lose(self, run_id: RunId) -> None:
        """Claims the run and goes down while the payment is out."""
        driving = asyncio.create_task(self.bench.drive(await self.bench.claim()))
        await self.pay.reached.wait()
        driving.cancel()
        await asyncio.wait({driving})
        self.pay.go_on.set()
        await self.bench.lose_worker()

    async def fail(self, agent: Agent | None = None, **fields: Any) -> Story:
        """A run whose payment was lost, and which failed by that."""
        run_id = await self.bench.submit(agent or self.agent(), **fields)
        await self.lose(run_id)
        return await self.go_on(run_id)

    async def go_on(self, run_id: RunId) -> Story:
        await self.bench.drive(await self.bench.claim())
        return self.bench.story(run_id)

    async def reopen(self, story: Story, resolutions: Mapping[CallId, Outcome] | None = None, **fields: Any) -> RunId:
        """Accepts a run that goes on from that one, with everything of it that was fixed."""
        before = story.record
        return await self.bench.submit(
            fields.pop("agent", None) or self.agent(),
            str(before.input),
            resumes=before.run_id,
            first_run_id=before.first_run_id or before.run_id,
            resolutions=dict(resolutions or {}),
            session_id=before.session_id,
            **fields,
        )

    async def resume(self, story: Story, resolutions: Mapping[CallId, Outcome] | None = None, **fields: Any) -> Story:
        """The run that goes on from that one, at its end."""
        return await self.go_on(await self.reopen(story, resolutions, **fields))

    def open_calls(self, *stories: Story) -> Sequence[CallId]:
        """Calls of which whoever resumes has to say what became."""
        logs: list[tuple[RunEvent, ...]] = [story.events for story in stories]
        return [progress.call.call_id for progress in unresolved(logs)]


def ended_as(story: Story) -> tuple[RunState, str | None]:
    return story.record.state, story.record.error_code
