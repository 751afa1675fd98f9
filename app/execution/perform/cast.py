"""The agents that one run can be under, and what holds while it is under one of them.

Promise of this file: handing a run over never widens it. Hooks, guardrails and questions to people of every agent that
the run has been under stay on, and so do those of the agents above them in the team.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from app.agents import TRANSFER_TOOL, Agent, Member, ToolDeclaration, draw_team
from app.errors import ConfigurationError
from app.execution.answers import AnswerForm
from app.execution.perform.prompts import PromptMaker
from app.execution.runtime import Runtime
from app.policy import Deadline, DeadlineConfig, Effect, RetryConfig
from app.ports.callbacks import Callback, CallbackPoint
from app.ports.hooks import Guardrail, Hook, HookPoint
from app.ports.records import RunRecord
from app.ports.tools import Tool, ToolContext, Tools
from app.run import RunSpec
from app.run.spec import acting, names_under

_INPUT: Final = {
    "type": "object",
    "properties": {"input": {"type": "string", "minLength": 1, "description": "What the agent shall do"}},
    "required": ["input"],
    "additionalProperties": False,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedCallback:
    """A callback, and how its overrides and failures are told."""

    name: str
    function: Callback


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """One agent of the team, ready to be acted: with the tools that it may call, the loop's own among them.

    ``agent`` has what belongs to the run from the run's first agent. ``hooks`` and ``guardrails`` are its own.
    """

    member: Member
    agent: Agent
    tools: Tools
    prompts: PromptMaker
    hooks: tuple[Hook, ...]
    guardrails: tuple[Guardrail, ...]
    callbacks: Mapping[CallbackPoint, tuple[NamedCallback, ...]]
    deadlines: DeadlineConfig
    retry: RetryConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Acting:
    """What holds now. ``hooks`` are the deployment's, then those of every agent with a say; ``fresh`` are the hooks and
    guardrails that this agent brought along, and that have not seen the input yet."""

    role: Role
    spec: RunSpec
    hooks: tuple[Hook, ...]
    guardrails: tuple[Guardrail, ...]
    fresh_hooks: tuple[Hook, ...]
    fresh_guardrails: tuple[Guardrail, ...]


class Cast:
    """The team of one run. One that can't be drawn is the root alone, which ``check`` refuses."""

    def __init__(self, runtime: Runtime, agent: Agent, record: RunRecord, form: AnswerForm | None) -> None:
        self._runtime = runtime
        self._problem: ConfigurationError | None = None
        self.root = agent.name
        team: Mapping[str, Member] = {agent.name: Member(agent=agent)}
        try:
            team = draw_team(agent)
        except ConfigurationError as error:
            self._problem = error
        self.roles: Mapping[str, Role] = {
            name: _cast(runtime, member, agent, team, record) for name, member in team.items()
        }
        check = (AnswerForm(agent) if form is None else form).check
        specs = {
            name: _spec(runtime, role, record, above=_above(team, name), check=check)
            for name, role in self.roles.items()
        }
        root = specs.pop(agent.name)
        self.spec = replace(root, team=specs)
        self._acting: dict[tuple[str, ...], Acting] = {}

    def acting(self, stack: tuple[str, ...]) -> Acting:
        """What holds for a run that was handed along ``stack``; for the root alone where that holds a name that the
        team does not have (any more), which ``check`` refuses."""
        stack = stack or (self.root,)
        if stray := [name for name in stack if name not in self.roles]:
            problem = f"the run was handed to {stray[0]!r}, which the team does not have"
            self._problem = self._problem or ConfigurationError(problem)
            stack = (self.root,)
        if stack not in self._acting:
            self._acting[stack] = self._act(stack)
        return self._acting[stack]

    def _act(self, stack: tuple[str, ...]) -> Acting:
        heard = names_under(self.spec, stack[:-1]) if len(stack) > 1 else ()
        under = names_under(self.spec, stack)
        hooks = self._hooks_of(under)
        guardrails = _each_once(guard for name in under for guard in self.roles[name].guardrails)
        seen_hooks = self._hooks_of(heard) if heard else ()
        seen = _each_once(guard for name in heard for guard in self.roles[name].guardrails)
        return Acting(
            role=self.roles[stack[-1]],
            spec=acting(self.spec, stack),
            hooks=hooks,
            guardrails=guardrails,
            fresh_hooks=tuple(hook for hook in hooks if hook not in seen_hooks),
            fresh_guardrails=tuple(guard for guard in guardrails if guard not in seen),
        )

    def _hooks_of(self, names: Sequence[str]) -> tuple[Hook, ...]:
        own = (hook for name in names for hook in self.roles[name].hooks)
        return _each_once((*self._runtime.hooks.deployment_hooks(), *own))

    def check(self, *, bounds_cost: bool) -> None:
        """Everything that the agents declare is here. Raises ConfigurationError before anything starts."""
        if self._problem is not None:
            raise self._problem
        for role in self.roles.values():
            self._runtime.check(role.agent, role.tools, bounds_cost=bounds_cost)
            for delegate in role.member.delegates.values():
                check_team(self._runtime, as_called_by(role.agent, delegate), bounds_cost=bounds_cost)


def check_team(runtime: Runtime, root: Agent, *, bounds_cost: bool) -> None:
    """Everything that an agent and those below it declare is here. Raises ConfigurationError."""
    team = draw_team(root)
    for name, member in team.items():
        agent = _equipped(member, root, _inherited(team, name))
        runtime.check(agent, MemberTools(runtime.tools, member), bounds_cost=bounds_cost)
        for delegate in member.delegates.values():
            check_team(runtime, as_called_by(agent, delegate), bounds_cost=bounds_cost)


def as_called_by(caller: Agent, agent: Agent) -> Agent:
    """The agent as its caller calls it: with the caller's model where it names none, and deterministic like it."""
    changes: dict[str, Any] = {}
    if agent.model is None and agent.task_class is None:
        changes |= {"model": caller.model, "task_class": caller.task_class}
    if caller.deterministic:
        changes["deterministic"] = True
    return agent.model_copy(update=changes) if changes else agent


def _each_once(items: Iterable[Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for item in items:
        if not any(item is other for other in found):
            found.append(item)
    return tuple(found)


def _cast(runtime: Runtime, member: Member, root: Agent, team: Mapping[str, Member], record: RunRecord) -> Role:
    agent = _equipped(member, root, _inherited(team, member.agent.name))
    tools = MemberTools(runtime.tools, member)
    return Role(
        member=member,
        agent=agent,
        tools=tools,
        prompts=PromptMaker(agent, models=runtime.models, tools=tools, given=record.context),
        hooks=runtime.own_hooks(agent),
        guardrails=runtime.known_guardrails(agent),
        callbacks={point: _callbacks_at(runtime, agent, point) for point in CallbackPoint},
        deadlines=agent.deadlines or runtime.rules.deadlines,
        retry=agent.retry or runtime.rules.retry,
    )


def _equipped(member: Member, root: Agent, inherited: Mapping[str, Any]) -> Agent:
    """The agent with its tools in this team, and what belongs to the run from the run's first agent."""
    own = member.agent
    transfer = (TRANSFER_TOOL,) if member.targets else ()
    changes: dict[str, Any] = {"tools": (*own.tools, *member.delegates, *transfer), **inherited}
    if own.name != root.name:
        # Also how often an answer may go back: the form is the root's, and so is its patience. A cap on the run's shape
        # is no wider under another agent.
        changes |= {
            "output_schema": root.output_schema,
            "max_iterations": root.max_iterations,
            "repair": root.repair or own.repair,
            "loop": min(root.loop, own.loop, key=lambda loop: loop.max_repeated_calls),
        }
    return own if own.name == root.name and len(changes["tools"]) == len(own.tools) else own.model_copy(update=changes)


def _inherited(team: Mapping[str, Member], name: str) -> Mapping[str, Any]:
    """Who declares no model is asked with that of the agent above; who is below a deterministic agent is one too."""
    line = [team[above].agent for above in (*_above(team, name), name)]
    inherited: dict[str, Any] = {"deterministic": any(agent.deterministic for agent in line)}
    for agent in reversed(line):
        if agent.model is not None or agent.task_class is not None:
            return {**inherited, "model": agent.model, "task_class": agent.task_class}
    return inherited


def _above(team: Mapping[str, Member], name: str) -> tuple[str, ...]:
    above: list[str] = []
    parent = team[name].parent
    while parent is not None:
        above.insert(0, parent)
        parent = team[parent].parent
    return tuple(above)


def _callbacks_at(runtime: Runtime, agent: Agent, point: CallbackPoint) -> tuple[NamedCallback, ...]:
    """Those of the operator's sets first, in the order in which the agent names them; then its own."""
    sets = (runtime.callbacks.callbacks(name) for name in agent.callbacks)
    named = (NamedCallback(name=each.name, function=one) for each in sets if each is not None for one in each.at(point))
    own = (NamedCallback(name=_name_of(function), function=function) for function in getattr(agent, point.field))
    return (*named, *own)


def _name_of(function: Callback) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _spec(runtime: Runtime, role: Role, record: RunRecord, *, above: tuple[str, ...], check: Any) -> RunSpec:
    agent, tools = role.agent, role.tools.all()
    hooks = (*runtime.hooks.deployment_hooks(), *role.hooks)
    return RunSpec(
        agent=agent,
        limits=record.budget.limits,
        sources=record.budget.sources,
        deadline=None if record.deadline_at is None else Deadline(at=record.deadline_at),
        max_llm_calls=record.max_llm_calls,
        max_recoveries=runtime.rules.max_recoveries,
        effects={tool.name: tool.recovers_as for tool in tools},
        check_arguments=role.tools.check_arguments,
        check_output=check,
        gates_dispatch=any(HookPoint.BEFORE_TOOL_DISPATCH in hook.points for hook in hooks),
        approved_by_people=runtime.approved_by_people(agent),
        parallel_safe=frozenset(tool.name for tool in tools if tool.parallel_safe),
        route=runtime.known_route(agent),
        resolutions=record.resolutions,
        above=above,
    )


class MemberTools:
    """The tools of the process, and those that the loop brings along for one agent of a team."""

    def __init__(self, tools: Tools, member: Member) -> None:
        self._tools = tools
        self._own = {tool.name: tool for tool in _own_tools(member)}

    def find(self, name: str) -> Tool | None:
        return self._own.get(name) or self._tools.find(name)

    def all(self) -> Sequence[Tool]:
        if not self._own:
            return self._tools.all()
        return sorted((*self._tools.all(), *self._own.values()), key=lambda tool: tool.name)

    def check_arguments(self, name: str, arguments: dict[str, Any]) -> Sequence[str]:
        tool = self._own.get(name)
        if tool is None:
            return self._tools.check_arguments(name, arguments)
        return _problems(tool.declaration, arguments)


def _own_tools(member: Member) -> Sequence[Tool]:
    transfer = member.transfer_declaration()
    tools = [] if transfer is None else [Tool(declaration=transfer, call=_hand_over, effect=Effect.READ)]
    tools += [
        Tool(
            declaration=ToolDeclaration(name=name, description=agent.description, parameters=dict(_INPUT)),
            call=_never_called,
            # Gone back to, and never begun again: its log says what was done.
            effect=Effect.IDEMPOTENT,
            parallel_safe=True,
        )
        for name, agent in member.delegates.items()
    ]
    return tools


async def _hand_over(arguments: dict[str, Any], context: ToolContext) -> str:
    context.actions.transfer_to_agent = arguments["agent_name"]
    return f"{arguments['agent_name']} takes over."


async def _never_called(arguments: dict[str, Any], context: ToolContext) -> str:
    raise AssertionError("a sub-agent is driven, and not called")


def _problems(declaration: ToolDeclaration, arguments: Mapping[str, Any]) -> Sequence[str]:
    """Both of the loop's own tools take one text, some of them one of a list."""
    [(name, wanted)] = declaration.parameters["properties"].items()
    given = arguments.get(name)
    problems = [f"/{stray}: is no argument of this tool" for stray in sorted(set(arguments) - {name})]
    if not isinstance(given, str) or not given:
        problems.append(f"/{name}: must be a text that says something")
    elif given not in wanted.get("enum", [given]):
        problems.append(f"/{name}: must be one of {', '.join(wanted['enum'])}")
    return problems
