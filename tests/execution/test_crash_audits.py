"""The audits of trees, sessions and chains see what they are there for: each rule has a sound world that, broken by
hand, it complains about."""

import pytest

from tests.execution.crash_chain_audit import CHAIN_RULES, chain_complaints
from tests.execution.crash_chain_breaks import CHAIN_BREAKS, LOSES_A_PAYMENT, TWO_RUNS, ChainBreak
from tests.execution.crash_session_audit import SESSION_RULES, session_complaints
from tests.execution.crash_setting import Setting
from tests.execution.crash_tree_audit import TREE_RULES, tree_complaints
from tests.execution.crash_tree_breaks import SESSION_BREAKS, TREE_BREAKS, TalkBreak, TreeBreak
from tests.execution.crash_world import live_through


def test_every_rule_about_trees_and_sessions_has_a_world_that_breaks_it() -> None:
    assert TREE_BREAKS.keys() == TREE_RULES.keys()
    assert SESSION_BREAKS.keys() == SESSION_RULES.keys()


@pytest.mark.parametrize(
    ("rule", "setting", "broken"),
    [
        pytest.param(rule, setting, broken, id=f"{rule}: {how}")
        for rule, (setting, breaks) in TREE_BREAKS.items()
        for how, broken in breaks.items()
    ],
)
async def test_the_audit_sees_what_is_wrong_with_a_tree_that_was_broken_by_hand(
    rule: str, setting: Setting, broken: TreeBreak
) -> None:
    sound = (await live_through([], setting)).tree()
    assert tree_complaints(sound) == []
    assert rule in {complaint.partition(": ")[0] for complaint in tree_complaints(broken(sound))}


@pytest.mark.parametrize(
    ("rule", "setting", "broken"),
    [
        pytest.param(rule, setting, broken, id=f"{rule}: {how}")
        for rule, (setting, breaks) in SESSION_BREAKS.items()
        for how, broken in breaks.items()
    ],
)
async def test_the_audit_sees_what_is_wrong_with_a_session_that_was_broken_by_hand(
    rule: str, setting: Setting, broken: TalkBreak
) -> None:
    sound = (await live_through([], setting)).conversation()
    assert session_complaints(sound) == []
    assert rule in {complaint.partition(": ")[0] for complaint in session_complaints(broken(sound))}


def test_every_rule_about_chains_has_one_that_breaks_it() -> None:
    assert CHAIN_BREAKS.keys() == CHAIN_RULES.keys()


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        pytest.param(rule, broken, id=f"{rule}: {how}")
        for rule, breaks in CHAIN_BREAKS.items()
        for how, broken in breaks.items()
    ],
)
async def test_the_audit_sees_what_is_wrong_with_a_chain_that_was_broken_by_hand(rule: str, broken: ChainBreak) -> None:
    sound = (await live_through(LOSES_A_PAYMENT, TWO_RUNS)).chain()
    assert (len(sound.logs), chain_complaints(sound)) == (2, [])
    assert rule in {complaint.partition(": ")[0] for complaint in chain_complaints(broken(sound))}
