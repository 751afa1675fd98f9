"""Where runwright is not google-adk, and why: the whole list. docs/compatibility.md is drawn from it."""

from collections.abc import Sequence

from tests.compat.cases import adk_only, case, is_a_transfers_result, ours_only, raises
from tests.compat.listing import Difference

_ADD_RESULT = ("add", {"result": 5})
_HANDED = ("transfer_to_agent", {"result": None})
_LOOKED_UP = {"key": "k", "value": "v"}
_REPORT = ("report", {"report": "All is well."})
_KEY = {"key": 1}
_ZAP = (
    "Invoking `zap()` failed as no tool with that name is available. The tools you can call are: add. You could retry,"
    " but it is IMPORTANT that you only call a tool from that list."
)
_NOBODY = "The tool failed: ToolExecutionError: there is no agent 'nobody' to hand over to"
_ASKED_FIRST = (
    "before_agent root",
    "before_model root 1",
    "after_model root 1",
    "before_tool root add {'a': 2, 'b': 3}",
)
_ASKED_LAST = ("before_model root 3", "after_model root 1", "after_agent root")
_CAP_ERROR, _CAP_CODE = "LlmCallsLimitExceededError", "max_llm_calls_exceeded"


def _our_hand_over(name: str) -> tuple[str, dict[str, str]]:
    return ("transfer_to_agent", {"result": f"{name} takes over."})


_CONTENT = (
    Difference(
        title="Result of a transfer",
        adk="`{'result': None}`",
        ours="a sentence that says who takes over",
        why="the agent that takes over reads it, and text says what an empty result does not",
        rule=is_a_transfers_result,
    ),
    Difference(
        title="Several calls in one turn",
        adk="one event has the responses of all of them, when the last is through",
        ours="one event for each, in the order of the calls",
        why="every outcome is stored by itself, so that a crash between two loses neither",
        cases=(
            case(
                "two tools at once",
                "turn 1, response by root: responses",
                [_ADD_RESULT, ("look_up", _LOOKED_UP)],
                [_ADD_RESULT],
            ),
            ours_only(
                "two tools at once",
                "turn 1, response by root (2)",
                responses=[("look_up", _LOOKED_UP)],
            ),
            case(
                "transfer beside a tool", "turn 1, response by root: responses", [_ADD_RESULT, _HANDED], [_ADD_RESULT]
            ),
            case("transfer beside a tool", "turn 1, response by root: transfer_to_agent", "billing", None),
            ours_only(
                "transfer beside a tool",
                "turn 1, response by root (2)",
                responses=[_our_hand_over("billing")],
                transfer_to_agent="billing",
            ),
            case(
                "two transfers at once",
                "turn 1, response by root: responses",
                [_HANDED, _HANDED],
                [_our_hand_over("billing")],
            ),
            case("two transfers at once", "turn 1, response by root: transfer_to_agent", "refunds", "billing"),
            ours_only(
                "two transfers at once",
                "turn 1, response by root (2)",
                responses=[_our_hand_over("refunds")],
                transfer_to_agent="refunds",
            ),
            case(
                "skip_summarization beside another",
                "turn 1, response by root: responses",
                [_ADD_RESULT, _REPORT],
                [_ADD_RESULT],
            ),
            ours_only("skip_summarization beside another", "turn 1, response by root (2)", responses=[_REPORT]),
        ),
    ),
    Difference(
        title="`skip_summarization`",
        adk="the event with the response is final",
        ours="it is not; an event with the result as the agent's text follows, and is final",
        why="a result that is the answer is held against the guardrails and the form of an answer first",
        cases=(
            *(
                found
                for scenario in ("skip_summarization", "skip_summarization beside another")
                for found in (
                    case(scenario, "turn 1, response by root: final", True, False),
                    case(scenario, "turn 1, response by root: skip_summarization", True, False),
                    ours_only(
                        scenario,
                        "turn 1, text by root",
                        final=True,
                        text='{"report":"All is well."}',
                        skip_summarization=True,
                    ),
                )
            ),
        ),
    ),
)

_FAILURES = (
    Difference(
        title="Failures",
        adk="an event with the name of the exception's class, after a transfer by the root; then `run_async` raises it",
        ours="an event with a stable `error_code` by the agent at work; `run_async` just ends",
        why="a failure is a state of the run, and one that is stored reads the same afterwards",
        cases=(
            *raises("model that fails", "RuntimeError", "provider_error"),
            *raises("callback that raises", "KeyError", "callback_failed"),
            *raises("cap is reached", _CAP_ERROR, _CAP_CODE),
            *raises("message after a reached cap", _CAP_ERROR, _CAP_CODE),
            adk_only("cap over a transfer", "turn 1, error by root", final=True, error_code=_CAP_ERROR),
            ours_only(
                "cap over a transfer", "turn 1, error by refunds", author="refunds", final=True, error_code=_CAP_CODE
            ),
            case("cap over a transfer", "turn 1, raised", _CAP_ERROR, None),
        ),
    ),
    Difference(
        title="A tool that raises",
        adk="ends the invocation, and the exception comes out of `run_async`",
        ours="is told to the model, which may go on (`on_tool_error: fail_run` ends the run)",
        why="most failures of tools are the model's to work around",
        cases=(
            adk_only("tool that raises", "turn 1, error by root", final=True, error_code="RuntimeError"),
            ours_only(
                "tool that raises",
                "turn 1, response by root",
                responses=[("explode", {"error": "The tool failed: RuntimeError: boom"})],
                error_code="tool_failed",
            ),
            ours_only("tool that raises", "turn 1, text by root", final=True, text="Sorry."),
            case("tool that raises", "turn 1, raised", "RuntimeError", None),
            case("tool that raises", "model_calls", 1, 2),
        ),
    ),
    Difference(
        title="A call of a tool that the agent has not",
        adk="is told to the model",
        ours="ends the run: `tool_not_allowed`",
        why="the tools of an agent are an allowlist, and a call outside it is not a slip to be tried again",
        cases=(
            case(
                "tool that is not there",
                "turn 1, response by root: responses",
                [("zap", {"error": _ZAP})],
                [("zap", {"error": "the agent may not call this tool"})],
            ),
            case("tool that is not there", "turn 1, response by root: error_code", None, "tool_not_allowed"),
            adk_only("tool that is not there", "turn 1, text by root", final=True, text="Sorry."),
            ours_only("tool that is not there", "turn 1, error by root", final=True, error_code="tool_not_allowed"),
            case("tool that is not there", "model_calls", 2, 1),
        ),
    ),
    Difference(
        title="A transfer to an agent that is not there",
        adk="is in an event's actions; then `run_async` raises a `ValueError`",
        ours="the model's call fails its schema: the run ends `schema_violation`; a tool that asks for it has failed",
        why="the targets are an enum in the tool's declaration; no event says that the run goes where it can't go",
        cases=(
            adk_only("transfer to nobody", "turn 1, response by root", responses=[_HANDED], transfer_to_agent="nobody"),
            ours_only("transfer to nobody", "turn 1, error by root", final=True, error_code="schema_violation"),
            case("transfer to nobody", "turn 1, raised", "ValueError", None),
            case(
                "transfer to nobody by a tool",
                "turn 1, response by root: responses",
                [("hand_over", {"to": "nobody"})],
                [("hand_over", {"error": _NOBODY})],
            ),
            case("transfer to nobody by a tool", "turn 1, response by root: transfer_to_agent", "nobody", None),
            case("transfer to nobody by a tool", "turn 1, response by root: error_code", None, "unknown_agent"),
            ours_only("transfer to nobody by a tool", "turn 1, text by root", final=True, text="Sorry."),
            case("transfer to nobody by a tool", "turn 1, raised", "ValueError", None),
            case("transfer to nobody by a tool", "model_calls", 1, 2),
        ),
    ),
)

_CALLBACKS = (
    Difference(
        title="Arguments changed in place by `before_tool_callback`",
        adk="the tool gets the changed ones",
        ours="end the run: `callback_failed`",
        why="what goes out is what is on record and was approved; a hook may rewrite a call, and that is told",
        cases=(
            adk_only("before_tool changes arguments", "turn 1, response by root", responses=[("add", {"result": 43})]),
            adk_only("before_tool changes arguments", "turn 1, text by root", final=True, text="43."),
            ours_only(
                "before_tool changes arguments", "turn 1, error by root", final=True, error_code="callback_failed"
            ),
            case("before_tool changes arguments", "model_calls", 2, 1),
        ),
    ),
    Difference(
        title="The type of a result that is no object",
        adk="stays what the tool's function returned",
        ours="is not kept: an event reads the text as JSON; `after_tool_callback` gets an array as such, or the text",
        why="a result is text on record, also where a tool is no Python function",
        cases=(
            case(
                "tool with a number as text",
                "turn 1, response by root: responses",
                [("count", {"result": "3"})],
                [("count", {"result": 3})],
            ),
            case(
                "after_tool replaces",
                "turn 1, response by root: responses",
                [("add", {"wrapped": 5})],
                [("add", {"wrapped": "5"})],
            ),
            case(
                "callbacks that only look",
                "asked",
                [*_ASKED_FIRST, "after_tool root add {'a': 2, 'b': 3} 5", *_ASKED_LAST],
                [*_ASKED_FIRST, "after_tool root add {'a': 2, 'b': 3} '5'", *_ASKED_LAST],
            ),
        ),
    ),
)

_STATE = (
    Difference(
        title="State changed by `before_agent_callback` or `after_agent_callback` without an answer",
        adk="is an event without content that counts as a final response",
        ours="is an event without content that does not: it is bookkeeping",
        why="a final response is what a user is shown, and here is nothing to show",
        cases=(
            adk_only("state by before_agent", "turn 1, state by root", final=True, state_delta=_KEY),
            adk_only("state by after_agent", "turn 1, state by root", final=True, state_delta=_KEY),
        ),
    ),
    Difference(
        title="A key set to `None`",
        adk="is kept, with `None`",
        ours="is removed",
        why="there would be no way to remove one",
        cases=(case("state set to None", "state", {"note": None, "other": 1}, {"other": 1}),),
    ),
)

_TEAM = (
    Difference(
        title="`escalate`",
        adk="is only recorded where the agent above is an `LlmAgent`: the agent goes on",
        ours="hands the run back to the agent above; at the root there is none, which is a warning",
        why="an agent that gives up says so for somebody to act on it",
        cases=(
            case("escalate below", "turn 1, response by billing: transfer_to_agent", None, "root"),
            adk_only("escalate below", "turn 1, text by billing", author="billing", final=True, text="Well."),
            ours_only("escalate below", "turn 1, text by root", final=True, text="Well."),
        ),
    ),
    Difference(
        title="The argument of an agent as a tool",
        adk="`AgentTool` calls it `request`",
        ours="a sub-agent in mode `tool` calls it `input`",
        why="it becomes the input of a run",
        cases=tuple(
            case(
                scenario,
                "turn 1, call by root: calls",
                [("expert", {"request": "Why?"})],
                [("expert", {"input": "Why?"})],
            )
            for scenario in ("agent as a tool", "agent as a tool changes state", "agent as a tool under a cap")
        ),
    ),
    Difference(
        title="`max_llm_calls` and an agent as a tool",
        adk="the agent has a count of its own, with the same cap",
        ours="one count for the whole invocation, those of sub-agents included",
        why="a cap that grows with every agent that is called is none",
        cases=(
            adk_only("agent as a tool under a cap", "turn 1, text by root", final=True, text="He says: because."),
            ours_only("agent as a tool under a cap", "turn 1, error by root", final=True, error_code=_CAP_CODE),
            case("agent as a tool under a cap", "model_calls", 3, 2),
        ),
    ),
    Difference(
        title="State changed by an agent as a tool",
        adk="all of it is the caller's too, and rides on the response",
        ours="`user:` and `app:` keys are kept; others are gone with the agent's own run",
        why="the session is the caller's, and an agent that is asked for one thing has none",
        cases=(
            case(
                "agent as a tool changes state",
                "turn 1, response by root: state_delta",
                {"note": "why", "user:seen": 1, "app:all": 2},
                {},
            ),
            case(
                "agent as a tool changes state",
                "state",
                {"note": "why", "app:all": 2, "user:seen": 1},
                {"app:all": 2, "user:seen": 1},
            ),
        ),
    ),
)

DIFFERENCES: Sequence[Difference] = (*_CONTENT, *_FAILURES, *_CALLBACKS, *_STATE, *_TEAM)
