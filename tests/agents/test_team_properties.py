"""Whatever authors write: nobody gains a tool, every name is one agent, and a team always ends."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from app.agents import Agent, SubAgent, SubAgentMode, draw_team, inline_team
from app.agents.team import granted
from app.errors import ConfigurationError
from tests.builders import TOOLS, build_agent

_NAMES = ("desk", "billing", "ledger", "booking", "auditor")
_TOOLS = st.sets(st.sampled_from(TOOLS)).map(lambda names: tuple(sorted(names)))
_GRANTS = st.none() | _TOOLS
_MODES = st.sampled_from(SubAgentMode)


def _entry(agent: Agent | str, mode: SubAgentMode, tools: tuple[str, ...] | None) -> SubAgent:
    return SubAgent(agent=agent, mode=mode, tools=tools)


def _entries(names: Sequence[str]) -> st.SearchStrategy[list[SubAgent]]:
    """Some of these agents, one of them more than once perhaps."""
    return st.lists(st.builds(_entry, st.sampled_from(names), _MODES, _GRANTS), max_size=3) if names else st.just([])


@st.composite
def definitions(draw: st.DrawFn) -> Mapping[str, Agent]:
    """Definitions that name each other as they like, the root's first."""
    return {name: build_agent(name=name, tools=draw(_TOOLS), sub_agents=draw(_entries(_NAMES))) for name in _NAMES}


@st.composite
def sound_definitions(draw: st.DrawFn) -> Mapping[str, Agent]:
    """Definitions that name only those that come later: no team leads back into itself."""
    later = {name: _NAMES[place:] for place, name in enumerate(_NAMES, start=1)}
    return {name: build_agent(name=name, tools=draw(_TOOLS), sub_agents=draw(_entries(later[name]))) for name in _NAMES}


@st.composite
def trees(draw: st.DrawFn) -> Agent:
    """A team that its author wrote in place."""
    agents: list[Agent] = []
    for name in reversed(_NAMES):
        below = draw(st.integers(min_value=0, max_value=len(agents)))
        entries = [_entry(agents.pop(), draw(_MODES), draw(_GRANTS)) for _ in range(below)]
        fields = {"disallow_transfer_to_parent": draw(st.booleans()), "disallow_transfer_to_peers": draw(st.booleans())}
        agents.append(build_agent(name=name, tools=draw(_TOOLS), sub_agents=entries, **fields))
    return agents[-1]


def leads_back(versions: Mapping[str, Agent], path: tuple[str, ...] = ("desk",)) -> bool:
    below = [entry.name for entry in versions[path[-1]].below]
    return any(name in path or leads_back(versions, (*path, name)) for name in below)


def is_refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except ConfigurationError:
        return True
    return False


def whole_of(versions: Mapping[str, Agent]) -> Agent:
    return inline_team(versions["desk"], versions)


def shape_of(root: Agent) -> dict[str, object]:
    """Who may call what, hand over to whom, and call whom with what."""
    return {
        name: (
            member.agent.tools,
            dict(member.targets),
            {tool: agent.tools for tool, agent in member.delegates.items()},
        )
        for name, member in draw_team(root).items()
    }


def pairs_of(whole: Agent) -> Iterator[tuple[Agent, Agent]]:
    """Every agent with each agent right below it, as they may call tools in this team."""
    for entry in whole.below:
        below = granted(entry)
        yield whole, below
        yield from pairs_of(below)


@given(versions=definitions())
def test_names_that_lead_back_are_refused_and_no_others(versions: Mapping[str, Agent]) -> None:
    assert is_refused(lambda: inline_team(versions["desk"], versions)) == leads_back(versions)


@given(versions=sound_definitions())
def test_nobody_gets_a_tool_that_is_not_its_own(versions: Mapping[str, Agent]) -> None:
    gained = [(below.name, below.tools) for _, below in pairs_of(whole_of(versions))]
    assert [name for name, tools in gained if not set(tools) <= set(versions[name].tools)] == []


@given(versions=sound_definitions())
def test_nobody_below_the_root_hands_on_a_tool_that_it_was_not_given(versions: Mapping[str, Agent]) -> None:
    pairs = [(above, below) for above, below in pairs_of(whole_of(versions)) if above.name != "desk"]
    assert [below.name for above, below in pairs if not set(below.tools) <= set(above.tools)] == []


@given(versions=sound_definitions())
def test_whom_the_root_grants_nothing_of_its_own_gets_what_both_may(versions: Mapping[str, Agent]) -> None:
    root = versions["desk"]
    entries = zip(root.below, whole_of(versions).below, strict=True)
    got = {below.name: set(granted(below).tools) for entry, below in entries if entry.tools is None}
    assert got == {name: set(versions[name].tools) & set(root.tools) for name in got}


@given(versions=sound_definitions())
def test_whom_the_root_grants_tools_gets_no_others(versions: Mapping[str, Agent]) -> None:
    entries = zip(versions["desk"].below, whole_of(versions).below, strict=True)
    wider = [
        entry.name
        for entry, below in entries
        if entry.tools is not None and not set(granted(below).tools) <= set(entry.tools)
    ]
    assert wider == []


@given(versions=sound_definitions())
def test_in_a_team_that_is_drawn_every_name_is_one_agent(versions: Mapping[str, Agent]) -> None:
    whole = whole_of(versions)
    names = ["desk", *(below.name for _, below in pairs_of(whole))]
    assert is_refused(lambda: draw_team(whole)) == (len(set(names)) < len(names))


@given(root=trees())
def test_a_run_is_handed_to_members_of_its_team_and_never_to_whom_it_is_under(root: Agent) -> None:
    team = draw_team(root)
    assert {name for member in team.values() for name in member.targets} <= set(team)
    assert [name for name, member in team.items() if name in member.targets] == []


@given(root=trees())
def test_everybody_but_who_is_kept_from_it_can_hand_the_run_back_up(root: Agent) -> None:
    below = {name: member for name, member in draw_team(root).items() if member.parent is not None}
    can = {name for name, member in below.items() if member.parent in member.targets}
    assert can == {name for name, member in below.items() if not member.agent.disallow_transfer_to_parent}


@given(root=trees())
def test_every_agent_of_a_tree_can_be_handed_the_run_or_be_called(root: Agent) -> None:
    team = draw_team(root)
    reached = [name for member in team.values() for name in member.targets]
    assert set(team) - {root.name} <= set(reached)


@given(root=trees())
def test_what_members_may_call_is_never_more_than_their_authors_gave_them(root: Agent) -> None:
    bounds = {below.name: set(below.tools) for _, below in pairs_of(root)} | {root.name: set(root.tools)}
    assert [name for name, member in draw_team(root).items() if set(member.agent.tools) != bounds[name]] == []


@given(root=trees())
def test_a_team_that_was_written_in_place_needs_nobody_to_be_found(root: Agent) -> None:
    assert shape_of(inline_team(root, {})) == shape_of(root)


@given(root=trees())
def test_a_team_is_the_same_after_it_was_stored(root: Agent) -> None:
    assert shape_of(Agent.model_validate_json(root.model_dump_json())) == shape_of(root)
