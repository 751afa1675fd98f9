"""The invariants hold for sound states, and each of them can be broken."""

from dataclasses import replace
from typing import Any

import pytest

from app.ids import ApprovalId, RunId
from app.run import CallProgress, CallStatus, Cause, Phase
from app.run.invariants import broken_invariants
from tests.builders import build_call, fold_bodies, terminated, told_by_tool
from tests.run.samples import LOGS

_LOOK, _SET = build_call("look", number=1), build_call("set", number=2)
_ASKED = CallProgress(call=_LOOK, approval_id=ApprovalId("apr_1"))


@pytest.mark.parametrize("phase", list(Phase))
def test_a_state_that_a_legal_log_folds_to_is_sound(phase: Phase) -> None:
    assert broken_invariants(fold_bodies(*LOGS[phase])) == []


@pytest.mark.parametrize(
    ("phase", "changes", "broken"),
    [
        (Phase.READY, {"end": terminated()}, "an end is recorded exactly in the ended phase"),
        (Phase.ENDED, {"end": None}, "an end is recorded exactly in the ended phase"),
        (Phase.STOPPING, {"cause": None}, "a run that stops knows why"),
        (Phase.READY, {"cause": Cause(code="cancelled")}, "a run that is alive has no cause"),
        (
            Phase.READY,
            {"calls": (CallProgress(call=_LOOK),)},
            "open calls exist only while acting or after a stop, or were taken over",
        ),
        (Phase.ANSWERED, {"calls": (CallProgress(call=_LOOK),)}, "an answer stands only where no call is open"),
        (
            Phase.ACTING,
            {"calls": (CallProgress(call=_LOOK, status=CallStatus.SETTLED, dispatches=1),)},
            "every settled call has its result, once",
        ),
        (Phase.READY, {"turns": (told_by_tool(_LOOK, "x"),)}, "no result stands alone"),
        (Phase.READY, {"model_calls": -1}, "counters never run back"),
        (Phase.READY, {"attempts": 1}, "an attempt is a model call"),
        (Phase.READY, {"fence": 0}, "a claim holds every run that has begun"),
        (
            Phase.ACTING,
            {"calls": (CallProgress(call=_LOOK, status=CallStatus.DISPATCHED),)},
            "a dispatched call was dispatched",
        ),
        (
            Phase.ACTING,
            {"calls": (_ASKED, CallProgress(call=_SET, status=CallStatus.DISPATCHED, dispatches=1, fence=1))},
            "no call is out before every question of its turn is answered",
        ),
        (Phase.HELD, {"calls": (CallProgress(call=_LOOK),)}, "a run that is held waits for somebody"),
        (Phase.ACTING, {"calls": (CallProgress(call=_LOOK, approved=True),)}, "a grant is of a question"),
        (Phase.HELD, {"waiting_for": ()}, "only a run that is held waits for answers"),
        (Phase.ACTING, {"waiting_for": (ApprovalId("apr_1"),)}, "only a run that is held waits for answers"),
        (Phase.HELD, {"waiting_for": (ApprovalId("apr_2"),)}, "a run that is held waits for all of its questions"),
        (Phase.READY, {"stack": ()}, "a run that was accepted is under an agent"),
        (Phase.NEW, {"stack": ("planner",)}, "a run that was accepted is under an agent"),
        (Phase.ACTING, {"is_entered": False}, "only an agent that has begun has open calls"),
        (Phase.READY, {"is_passed_over": True}, "only an agent that has not begun is passed over"),
        (
            Phase.STANDING_IN,
            {"calls": (CallProgress(call=_LOOK),)},
            "what stands in for a model has no call before it",
        ),
        (
            Phase.ACTING,
            {"calls": (CallProgress(call=_LOOK, transfer_to="booker"),)},
            "a result asks for something and nothing else does",
        ),
        (
            Phase.ACTING,
            {"calls": (CallProgress(call=_LOOK, answer="Four nights."),)},
            "a result asks for something and nothing else does",
        ),
        (
            Phase.ACTING,
            {"calls": (CallProgress(call=_LOOK, child_run_id=RunId("run_2")),)},
            "only a call that went out has a run of its own",
        ),
    ],
)
def test_a_state_that_breaks_an_invariant_is_told_by_its_name(
    phase: Phase, changes: dict[str, Any], broken: str
) -> None:
    assert broken in broken_invariants(replace(fold_bodies(*LOGS[phase]), **changes))


def test_a_call_that_a_lost_claim_had_sent_may_be_asked_about_again() -> None:
    lost = CallProgress(call=_SET, status=CallStatus.DISPATCHED, dispatches=1, fence=1)
    state = replace(fold_bodies(*LOGS[Phase.ACTING]), fence=2, calls=(_ASKED, lost))
    assert broken_invariants(state) == []


def test_a_run_is_held_also_where_only_a_sub_agent_waits_for_somebody() -> None:
    out = CallProgress(call=_SET, status=CallStatus.DISPATCHED, dispatches=1, fence=1, child_run_id=RunId("run_2"))
    state = replace(fold_bodies(*LOGS[Phase.HELD]), calls=(out,))
    assert broken_invariants(state) == []
