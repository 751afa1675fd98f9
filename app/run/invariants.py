"""What is true of every state that a legal log folds to. Tests check it after each event of random walks."""

from app.conversation import Role, settle_dangling_calls
from app.run.state import CallStatus, Phase, State


def broken_invariants(state: State) -> list[str]:
    """The names of the invariants that do not hold; empty for a sound state."""
    settled = [progress for progress in state.calls if progress.status is CallStatus.SETTLED]
    sound = settle_dangling_calls(state.turns)
    results = [message.call_id for message in state.turns if message.role is Role.TOOL]
    checks = {
        "an end is recorded exactly in the ended phase": (state.end is not None) == (state.phase is Phase.ENDED),
        "a run that stops knows why": state.phase is not Phase.STOPPING or state.cause is not None,
        "a run that is alive has no cause": state.phase in (Phase.STOPPING, Phase.ENDED) or state.cause is None,
        "open calls exist only while acting or after a stop": not state.open_calls
        or state.phase in (Phase.ACTING, Phase.HELD, Phase.STOPPING, Phase.ENDED),
        "an answer stands only where no call is open": state.phase is not Phase.ANSWERED or not state.open_calls,
        "every settled call has its result, once": all(
            results.count(progress.call.call_id) == 1 for progress in settled
        ),
        "no result stands alone": all(message in sound for message in state.turns),
        "counters never run back": min(state.model_calls, state.tool_calls, state.iteration, state.seq) >= 0,
        "an iteration is a model call": state.iteration <= state.model_calls,
        "a claim holds every run that has begun": state.fence > 0 or state.phase in (Phase.NEW, Phase.QUEUED),
        "no call is out before every question of its turn is answered": not state.pending_approvals
        or state.phase is not Phase.ACTING
        or all(
            progress.status is not CallStatus.DISPATCHED or progress.fence < state.fence for progress in state.calls
        ),
        "a run that is held waits for somebody": state.phase is not Phase.HELD or bool(state.pending_approvals),
        "a grant is of a question": all(
            progress.approval_id is not None for progress in state.calls if progress.approved
        ),
        "a dispatched call was dispatched": all(
            progress.dispatches > 0 for progress in state.calls if progress.status is CallStatus.DISPATCHED
        ),
    }
    return [name for name, holds in checks.items() if not holds]
