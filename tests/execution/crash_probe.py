"""The callbacks of a process in a crashing world: each asking is written down, leaves a mark of its own in the state,
and may be answered by the scene."""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.ids import RunId
from app.ports.callbacks import CallbackPoint, CallbackSet

if TYPE_CHECKING:
    from tests.execution.crash_process import Process

PROBE = "probe"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One asking: under which claim, how long the log was then, what the state held, and the mark that was left."""

    run_id: RunId
    point: CallbackPoint
    agent: str
    call_id: str | None
    fence: int
    seq: int
    found: Mapping[str, Any]
    mark: int


class Probe:
    """One process's set of callbacks."""

    def __init__(self, process: "Process") -> None:
        self._process = process

    def callbacks(self) -> CallbackSet:
        """All six, in the set that agents name."""
        return CallbackSet(name=PROBE, **{point.field: self._at(point) for point in CallbackPoint})

    def _at(self, point: CallbackPoint) -> Callable[..., Any]:
        async def asked(**given: Any) -> Any:
            context = given.get("callback_context") or given["tool_context"]
            await self._process.point()
            mark = self._write_down(point, context)
            await self._process.point()
            self._process.world.finished.add(mark)
            says = self._process.world.setting.scene.says.get(point)
            return None if says is None else says(given)

        return asked

    def _write_down(self, point: CallbackPoint, context: Any) -> int:
        process, world = self._process, self._process.world
        assert process.lease is not None
        asking = Asked(
            run_id=context.invocation_id,
            point=point,
            agent=context.agent_name,
            call_id=getattr(context, "function_call_id", None),
            fence=process.lease.claim.fence,
            seq=world.store.record(context.invocation_id).last_seq,
            found=json.loads(json.dumps(copy.deepcopy(dict(context.state)))),
            mark=len(world.asked) + 1,
        )
        world.asked.append(asking)
        context.state[point.value] = asking.mark
        return asking.mark
