"""What is true of every state that a legal log folds to. Tests check it after each event of random walks."""

from collections.abc import Mapping

from app.conversation import Role, settle_dangling_calls
from app.policy import ApprovalKind
from app.run.state import CallStatus, Phase, State


def broken_invariants(state: State) -> list[str]:
    """The names of the invariants that do not hold; empty for a sound state."""
    settled = [progress for progress in state.calls if progress.status is CallStatus.SETTLED]
    out = [progress for progress in state.calls if progress.status is CallStatus.DISPATCHED]
    asked_before = [progress for progress in state.pending_approvals if progress.asked is ApprovalKind.CALL]
    sound = settle_dangling_calls(state.turns)
    results = [message.call_id for message in state.turns if message.role is Role.TOOL]
    checks = {
        "an end is recorded exactly in the ended phase": (state.end is not None) == (state.phase is Phase.ENDED),
        "a run that stops knows why": state.phase is not Phase.STOPPING or state.cause is not None,
        "a run that is alive has no cause": state.phase in (Phase.STOPPING, Phase.ENDED) or state.cause is None,
        "open calls exist only while acting or after a stop, or were taken over": not state.open_calls
        or state.phase in (Phase.QUEUED, Phase.ACTING, Phase.HELD, Phase.STOPPING, Phase.ENDED),
        "an answer stands only where no call is open": state.phase is not Phase.ANSWERED or not state.open_calls,
        "every settled call has its result, once": all(
            results.count(progress.call.call_id) == 1 for progress in settled
        ),
        "no result stands alone": all(message in sound for message in state.turns),
        "counters never run back": min(state.model_calls, state.tool_calls, state.iteration, state.seq) >= 0,
        "an attempt is a model call": state.attempts <= state.model_calls,
        "a claim holds every run that has begun": state.fence > 0 or state.phase in (Phase.NEW, Phase.QUEUED),
        "no call is out before every question of its turn is answered": not asked_before
        or state.phase is not Phase.ACTING
        or all(progress.fence < state.fence or progress.asked is ApprovalKind.OUTCOME for progress in out),
        "a run that is held waits for somebody": state.phase is not Phase.HELD
        or bool(state.pending_approvals)
        or any(progress.child_run_id is not None for progress in out),
        "only a run that is held waits for answers": bool(state.waiting_for) == (state.phase is Phase.HELD),
        "a run that is held waits for all of its questions": state.phase is not Phase.HELD
        or {progress.approval_id for progress in state.pending_approvals} <= set(state.waiting_for),
        "a grant is of a question": all(
            progress.approval_id is not None for progress in state.calls if progress.approved
        ),
        "a dispatched call was dispatched": all(progress.dispatches > 0 for progress in out),
        **_of_the_team(state),
    }
    return [name for name, holds in checks.items() if not holds]


def _of_the_team(state: State) -> Mapping[str, bool]:
    """What holds of agents, callbacks and sub-agents."""
    asks = [progress for progress in state.calls if progress.transfer_to is not None or progress.answer is not None]
    return {
        "a run that was accepted is under an agent": bool(state.stack) == (state.phase is not Phase.NEW),
        "only an agent that has begun has open calls": state.is_entered or not state.open_calls,
        "only an agent that has not begun is passed over": not state.is_passed_over or not state.is_entered,
        "what stands in for a model has no call before it": state.phase is not Phase.STANDING_IN or not state.calls,
        "a result asks for something and nothing else does": all(
            progress.status is CallStatus.SETTLED for progress in asks
        ),
        "only a call that went out has a run of its own": all(
            progress.dispatches > 0 for progress in state.calls if progress.child_run_id is not None
        ),
    }
