"""Sound worlds of several agents and of sessions, broken by hand: for each rule what it must not overlook."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from app.conversation import Message, Role
from app.events import (
    AgentTransfer,
    AnyEvent,
    ArtifactDelta,
    CallbackOverride,
    ModelResponded,
    RunEvent,
    RunStarted,
    StateDelta,
    SummarySkipped,
    Terminated,
    ToolCalled,
    ToolResult,
)
from app.events.body import Actions
from app.ids import RunId
from app.policy import BudgetLimits
from app.ports.callbacks import CallbackPoint
from tests.execution.crash_scenes import CALLED_BACK, ONE_BY_ONE, TALK, TEAM, TEAM_TALK
from tests.execution.crash_session_audit import Conversation
from tests.execution.crash_setting import Setting
from tests.execution.crash_tree_audit import Tree

Appends = Sequence[Sequence[RunEvent]]
Change = Callable[[Appends], Appends]
TreeBreak = Callable[[Tree], Tree]
TalkBreak = Callable[[Conversation], Conversation]


@dataclass(frozen=True, kw_only=True)
class Which:
    """The events of a kind; of the runs below, of the roots, or of all. Only the ``nth``, where that is said."""

    kind: type[AnyEvent]
    below: bool | None = None
    nth: int | None = None

    def places(self, appends: Appends) -> list[tuple[int, int]]:
        found = [
            (place, at)
            for place, append in enumerate(appends)
            for at, event in enumerate(append)
            if isinstance(event.body, self.kind) and self.below in {None, not event.run_id.startswith("run-")}
        ]
        return found if self.nth is None else [found[self.nth]]


def _edit(which: Which, edit: Callable[[RunEvent], Sequence[RunEvent]]) -> Change:
    def change(appends: Appends) -> Appends:
        places = which.places(appends)
        assert places, which
        return [
            [new for at, event in enumerate(append) for new in (edit(event) if (place, at) in places else [event])]
            for place, append in enumerate(appends)
        ]

    return change


def _without(which: Which) -> Change:
    return _edit(which, lambda event: [])


def _twice(which: Which) -> Change:
    return _edit(which, lambda event: [event, event])


def _with(which: Which, **fields: Any) -> Change:
    return _edit(which, lambda event: [replace(event, body=event.body.model_copy(update=fields))])


def _twice_with(which: Which, **fields: Any) -> Change:
    return _edit(which, lambda event: [event, replace(event, body=event.body.model_copy(update=fields))])


def _to_the_end(which: Which) -> Change:
    def change(appends: Appends) -> Appends:
        moved = [appends[place][at] for place, at in which.places(appends)]
        return [*_without(which)(appends), moved]

    return change


def _in_tree(change: Change) -> TreeBreak:
    return lambda tree: replace(tree, appends=change(tree.appends))


def _in_talk(change: Change) -> TalkBreak:
    return lambda talk: replace(talk, appends=change(talk.appends))


def _asked_late(point: CallbackPoint) -> TreeBreak:
    """The callback is asked once more when the run is over."""

    def broken(tree: Tree) -> Tree:
        asked = next(one for one in tree.asked if one.point is point)
        return replace(tree, asked=[*tree.asked, replace(asked, seq=len(tree.logs[asked.run_id]))])

    return broken


def _asked_again_after_it_went_out(tree: Tree) -> Tree:
    """About a call that can't be repeated, before its outcome."""
    out = next(e for e in tree.order if isinstance(e.body, ToolCalled) and e.body.name in tree.once)
    about = (asked for asked in tree.asked if asked.call_id == out.body.call_id)  # type: ignore[union-attr]
    return replace(tree, asked=[*tree.asked, replace(next(about), seq=out.seq)])


def _found_something_else(tree: Tree) -> Tree:
    first, *rest = tree.asked
    return replace(tree, asked=[replace(first, found={"key": "nobody wrote it"}), *rest])


def _misread(tree: Tree) -> Tree:
    first, *rest = tree.readings
    return replace(tree, readings=[replace(first, told=(first.told[0], first.told[1] + 1)), *rest])


def _called_agent(**fields: Any) -> Which:
    return Which(kind=ToolCalled, below=False, **fields)


_BELOW: Final = Setting(scene=ONE_BY_ONE)
_TEAM: Final = Setting(scene=TEAM)
_CALLED_BACK: Final = Setting(scene=CALLED_BACK)
_OTHER: Final = RunId("run_of_nobody")
TREE_BREAKS: Final[Mapping[str, tuple[Setting, Mapping[str, TreeBreak]]]] = {
    "a run below ends once, and before its caller": (
        _BELOW,
        {
            "left open": _in_tree(_without(Which(kind=Terminated, below=True, nth=0))),
            "ended twice": _in_tree(_twice(Which(kind=Terminated, below=True, nth=0))),
            "ended late": _in_tree(_to_the_end(Which(kind=Terminated, below=True, nth=0))),
        },
    ),
    "no run of a tree is written under an older claim than another one was": (
        _BELOW,
        {
            "below": _in_tree(_with(Which(kind=RunStarted, below=True, nth=0), fence=0)),
            "above": _in_tree(_with(Which(kind=RunStarted, below=True, nth=0), fence=2)),
        },
    ),
    "a call of a sub-agent is one run, and told of before it begins": (
        _BELOW,
        {
            "two runs": _in_tree(_twice_with(_called_agent(nth=0), child_run_id=_OTHER)),
            "two calls": _in_tree(_twice_with(_called_agent(nth=0), call_id="call_9_9")),
            "begun without a word": _in_tree(_without(_called_agent(nth=0))),
            "told of late": _in_tree(_to_the_end(_called_agent(nth=0))),
            "never begun": _in_tree(_with(_called_agent(nth=0), child_run_id=_OTHER)),
        },
    ),
    "who speaks is whom the run is under": (
        _TEAM,
        {
            "a stranger": _in_tree(_with(Which(kind=ModelResponded, nth=0), author="nobody")),
            "another member": _in_tree(_with(Which(kind=ModelResponded, nth=1), author="clerk")),
            "handed to a stranger": _in_tree(_with(Which(kind=AgentTransfer, nth=-1), to_agent="nobody")),
        },
    ),
    "a run is handed over as it was asked for": (
        _TEAM,
        {
            "to another one": _in_tree(_with(Which(kind=AgentTransfer, nth=0), to_agent="guide")),
            "nobody asked": _in_tree(_with(Which(kind=ToolResult), actions=Actions())),
            "not at all": _in_tree(_without(Which(kind=AgentTransfer, nth=0))),
            "twice": _in_tree(_twice(Which(kind=AgentTransfer, nth=0))),
        },
    ),
    "the fold stands where the transfers lead": (
        _TEAM,
        {
            "elsewhere": lambda tree: replace(tree, stacks=dict.fromkeys(tree.stacks, ("clerk",))),
            "a transfer is lost": _in_tree(_without(Which(kind=AgentTransfer, nth=0))),
        },
    ),
    "a result that is the answer is not summarized": (
        _TEAM,
        {
            "another answer": _in_tree(_with(Which(kind=SummarySkipped), answer="Something else.")),
            "not final": _in_tree(_with(Which(kind=SummarySkipped), final=False)),
        },
    ),
    "no callback is asked about what is settled": (
        _CALLED_BACK,
        {
            **{f"late {point}": _asked_late(point) for point in CallbackPoint if not point.value.endswith("model")},
            "it went out": _asked_again_after_it_went_out,
        },
    ),
    "what a callback says has its result": (
        _CALLED_BACK,
        {
            "nothing comes of it": _in_tree(_without(Which(kind=ToolResult))),
            "no response": _in_tree(_without(Which(kind=ModelResponded))),
            "nobody said so": _in_tree(_without(Which(kind=CallbackOverride))),
            "it never went out": _in_tree(_without(Which(kind=ToolCalled))),
        },
    ),
    "an agent speaks once after its answer": (
        _CALLED_BACK,
        {"twice": _in_tree(_twice(Which(kind=CallbackOverride, nth=-1)))},
    ),
    "a callback finds what is stored": (
        _CALLED_BACK,
        {
            "something else": _found_something_else,
            "a change is lost": _in_tree(_with(Which(kind=StateDelta, nth=0), actions=Actions())),
        },
    ),
    "what a callback leaves is stored once": (
        _CALLED_BACK,
        {
            "a change is lost": _in_tree(_without(Which(kind=StateDelta, nth=0))),
            "a result's change is lost": _in_tree(_without(Which(kind=StateDelta, nth=4))),
            "stored twice": _in_tree(_twice(Which(kind=StateDelta, nth=0))),
            "nobody left it": lambda tree: replace(tree, asked=tree.asked[1:]),
        },
    ),
    "the budget of a tree is the sum of its logs": (_BELOW, {"one too many": _misread}),
    "a tree keeps to the bounds of its root": (
        _BELOW,
        {
            "its cap": lambda tree: replace(tree, most_model_calls=5),
            "its model calls": lambda tree: replace(tree, limits=BudgetLimits(max_model_calls=5)),
            "its tool calls": lambda tree: replace(tree, limits=BudgetLimits(max_tool_calls=3)),
        },
    ),
}


def _second_first(talk: Conversation) -> Conversation:
    return replace(talk, run_ids=talk.run_ids[::-1])


def _interleaved(talk: Conversation) -> Conversation:
    return _in_talk(_to_the_end(Which(kind=Terminated, nth=0)))(talk)


def _history(change: Callable[[Sequence[Message]], Sequence[Message]]) -> TalkBreak:
    return lambda talk: replace(talk, history=change(talk.history))


def _forgetful(talk: Conversation) -> Conversation:
    """The second run's model is asked without the first message of the session."""
    first, second = talk.run_ids
    asked = next(request for request in talk.requests if request.run_id == second)
    kept = [m for m in asked.messages if m.role is Role.SYSTEM or m.content != talk.inputs[first]]
    return replace(talk, requests=[*talk.requests, replace(asked, messages=tuple(kept))])


def _kept_again(talk: Conversation) -> Conversation:
    """There is a version that no log tells of, and every dispatch brought its result."""
    newest = talk.artifacts[-1]
    return replace(talk, artifacts=[*talk.artifacts, replace(newest, version=newest.version + 1)])


_TALK: Final = Setting(scene=TALK, runs_of_session=2)
_TEAM_TALK: Final = Setting(scene=TEAM_TALK, runs_of_session=2)
SESSION_BREAKS: Final[Mapping[str, tuple[Setting, Mapping[str, TalkBreak]]]] = {
    "the runs of a session go one at a time": (_TALK, {"interleaved": _interleaved}),
    "the runs of a session begin in their order": (_TALK, {"the second one first": _second_first}),
    "the history is what the logs tell, once": (
        _TALK,
        {
            "twice": _history(lambda history: [*history, *history]),
            "one is lost": _history(lambda history: history[1:]),
            "another order": _history(lambda history: history[::-1]),
            "nobody said so": _in_talk(_with(Which(kind=ModelResponded, nth=0), text="Something else.")),
        },
    ),
    "the model reads all that was said before": (_TALK, {"forgotten": _forgetful}),
    "the session's state is what the logs tell": (
        _TALK,
        {
            "one too many": lambda talk: replace(talk, state={**talk.state, "stray": 1}),
            "one is lost": _in_talk(_without(Which(kind=StateDelta, nth=-1))),
        },
    ),
    "an artifact is told of by whom it was kept": (
        _TALK,
        {
            "not told of": _in_talk(_without(Which(kind=ArtifactDelta, nth=0))),
            "not kept": lambda talk: replace(talk, artifacts=[]),
            "kept too often": _kept_again,
        },
    ),
    "a session remembers who spoke last": (
        _TEAM_TALK,
        {
            "another one": lambda talk: replace(talk, last_agent="clerk"),
            "begins elsewhere": _in_talk(_with(Which(kind=RunStarted, nth=1), author="clerk")),
        },
    ),
}
