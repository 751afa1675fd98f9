"""The finished run as the library hands it out, with the type of its answer."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    field_serializer,
    model_validator,
)

from app.agents import Agent
from app.conversation import Usage
from app.conversation.answers import parse_json
from app.errors import AdkError, error_of
from app.events import RunEvent, RunState, decode_event
from app.execution.answers import AnswerForm
from app.ids import ApprovalId, RunId
from app.run import Phase, State, fold_all

T = TypeVar("T")


def _write_event(event: RunEvent) -> dict[str, Any]:
    return {
        "run_id": event.run_id,
        "seq": event.seq,
        "at": event.at,
        "kind": event.kind,
        "payload": json.loads(event.payload),
    }


def _read_event(value: Any) -> RunEvent:
    if isinstance(value, RunEvent):
        return value
    if not isinstance(value, Mapping) or set(value) != {"run_id", "seq", "at", "kind", "payload"}:
        raise ValueError("an event has run_id, seq, at, kind and payload")
    payload = json.dumps(value["payload"], ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return RunEvent(
        run_id=RunId(value["run_id"]),
        seq=int(value["seq"]),
        at=float(value["at"]),
        body=decode_event(value["kind"], payload),
        payload=payload,
    )


StoredEvent = Annotated[
    RunEvent, PlainValidator(_read_event), PlainSerializer(_write_event, return_type=dict, when_used="json")
]


class Run(BaseModel, Generic[T]):
    """How a run got to where it stands: its terminal state, or the questions that it waits for (``waiting_for``).

    ``output`` is the answer in the form that the agent declared, None where there is none; ``output_text`` is what the
    model wrote of it. ``cost`` is None where nothing that the run used has a price. It round-trips through JSON; an
    answer with a form needs the type named, ``Run[TripPlan].model_validate_json``: nothing on the wire says which it
    was, and a bare ``Run`` refuses it (ValidationError) rather than drop it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: RunId
    state: RunState
    output: T | None = None
    output_text: str | None = None
    error_code: str | None = None
    error_detail: str | None = None
    cap: str | None = None
    usage: Usage
    cost: Decimal | None = None
    model_calls: int = 0
    tool_calls: int = 0
    prompt_version: str | None = None
    prompt_fingerprint: str | None = None
    depth: int = 0
    path: tuple[str, ...] = ()
    waiting_for: tuple[ApprovalId, ...] = ()
    events: tuple[StoredEvent, ...]

    @field_serializer("output", when_used="json")
    def _write_output(self, output: T | None) -> Any:
        """What the type was made of, so that it can be made again; else as the type writes itself."""
        if output is None or output == self.output_text:
            return output
        if self.output_text is not None:
            return parse_json(self.output_text)
        named = self.__pydantic_generic_metadata__["args"]
        adapter: TypeAdapter[Any] = TypeAdapter(named[0] if named else Any)
        return adapter.dump_python(output, mode="json", by_alias=True, round_trip=True)

    @property
    def error(self) -> AdkError | None:
        """Why the run did not complete, as an error whose class names the kind of end; None where it did, or waits. To
        be looked at, or raised by a caller who wants that."""
        return None if self.error_code is None else error_of(self.error_code, self.error_detail or "")

    @model_validator(mode="after")
    def _type_is_named(self) -> Self:
        is_bare = not self.__pydantic_generic_metadata__["args"]
        # Prose is its own form: there the answer is what the model wrote.
        if is_bare and self.output is not None and self.output != self.output_text:
            raise ValueError("the answer has a form: name its type, Run[YourType]")
        return self

    @classmethod
    def from_events(cls, agent: Agent, events: tuple[RunEvent, ...], *, form: AnswerForm | None = None) -> "Run[Any]":
        """The run that a log tells of. ``form`` has read its answer. Raises ValueError for a log in which the run
        neither ended nor waits."""
        return cls.from_state(agent, fold_all(State(), events), events, form=form)

    @classmethod
    def from_state(
        cls, agent: Agent, state: State, events: tuple[RunEvent, ...], *, form: AnswerForm | None = None
    ) -> "Run[Any]":
        """The same for a log whose fold is known."""
        if state.end is None and state.phase is not Phase.HELD:
            raise ValueError("the run goes on")
        end = state.end
        text = state.answer if end is not None and end.code is None else None
        typed: Any = Run[_form_of(agent)] if agent.output_schema is not None else Run  # type: ignore[misc]
        # As it is: the answer was validated, and a second time might make something else of it.
        made: Run[Any] = typed.model_construct(
            run_id=events[0].run_id,
            state=RunState.SUSPENDED if end is None else end.state,
            output=(form or AnswerForm(agent)).read(text),
            output_text=text,
            error_code=None if end is None else end.code,
            error_detail=None if end is None or end.code is None else end.detail,
            cap=None if end is None else end.cap,
            usage=state.usage,
            cost=state.cost,
            model_calls=state.model_calls,
            tool_calls=state.tool_calls,
            prompt_version=state.prompt_version,
            prompt_fingerprint=state.fingerprint,
            depth=state.depth,
            path=state.path,
            waiting_for=state.waiting_for if end is None else (),
            events=events,
        )
        return made


def _form_of(agent: Agent) -> Any:
    return Any if agent.output_type is None else agent.output_type
