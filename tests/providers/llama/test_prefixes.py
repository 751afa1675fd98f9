"""The tree of stored prefixes, against a plain list of everything that was stored."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.providers.llama.prefixes import Match, PrefixTree, Scope, common_length

MINE, THEIRS = Scope(owner="mine"), Scope(owner="theirs")
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple)


def state_of(tokens: tuple[int, ...]) -> str:
    return ",".join(map(str, tokens))


def store(tree: PrefixTree[str], scope: Scope, text: tuple[int, ...], size: int = 1) -> Match[str]:
    """Adds what is missing of a text, as a state that names the tokens from its start to its own end."""
    match = tree.match(scope, text)
    rest = text[match.length :]
    return tree.add(match, scope, rest, state_of(text), size) if rest else match


class TreeAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree: PrefixTree[str] = PrefixTree(budget_bytes=8)

    @rule(scope=st.sampled_from([MINE, THEIRS]), text=TEXTS)
    def store_and_find(self, scope: Scope, text: tuple[int, ...]) -> None:
        store(self.tree, scope, text)
        match = self.tree.match(scope, text)
        assert match.length == len(text)
        self.check(scope, text, match)

    @rule(scope=st.sampled_from([MINE, THEIRS]), text=TEXTS)
    def find(self, scope: Scope, text: tuple[int, ...]) -> None:
        self.check(scope, text, self.tree.match(scope, text))

    @rule(scope=st.sampled_from([MINE, THEIRS]), text=TEXTS, data=st.data())
    def spill_or_pin(self, scope: Scope, text: tuple[int, ...], data: st.DataObject) -> None:
        for stretch in self.tree.match(scope, text).path:
            stretch.is_on_disk = data.draw(st.booleans()) or stretch.state is None
            stretch.pins = data.draw(st.integers(0, 1))

    @rule()
    def shrink(self) -> None:
        pinned = [stretch for stretch in self.tree if stretch.pins]
        forgotten = self.tree.shrink()
        assert not [stretch for stretch in forgotten if stretch.pins or stretch.children]
        idle = [each for each in self.tree if each.state and not each.pins and (each.is_on_disk or not each.children)]
        assert self.tree.held_bytes <= self.tree.budget_bytes or not idle
        assert set(pinned) <= set(self.tree)

    @rule(budget=st.integers(0, 8))
    def shrink_disk(self, budget: int) -> None:
        removed = self.tree.shrink_disk(budget)
        left = [stretch for stretch in self.tree if stretch.is_on_disk]
        assert len(left) <= budget or all(stretch.children or stretch.pins for stretch in left)
        assert not [stretch for stretch in removed if stretch.children or stretch.is_on_disk]
        assert {stretch for stretch in removed if stretch.state} <= set(self.tree)

    @rule(text=TEXTS)
    def drop(self, text: tuple[int, ...]) -> None:
        path = self.tree.match(MINE, text).path
        if path:
            gone = self.tree.drop(path[0])
            assert path[0] in gone
            assert not set(gone) & set(self.tree)

    def check(self, scope: Scope, text: tuple[int, ...], match: Match[str]) -> None:
        found: tuple[int, ...] = ()
        for stretch, end in match.parts():
            assert stretch.scope == scope
            assert (stretch.start, len(found)) == (len(found), stretch.start)
            found += stretch.tokens[: end - stretch.start]
        assert found == text[: match.length]

    @invariant()
    def bytes_are_counted(self) -> None:
        assert self.tree.held_bytes == sum(stretch.size_bytes for stretch in self.tree if stretch.state is not None)
        assert self.tree.held_tokens == sum(len(stretch.tokens) for stretch in self.tree)
        parents = {stretch.parent for stretch in self.tree if stretch.parent is not None}
        assert parents <= set(self.tree)


TreeAgainstList.TestCase.settings = settings(max_examples=200, stateful_step_count=20, deadline=None)
test_what_is_found_was_stored_and_what_is_pinned_stays = TreeAgainstList.TestCase


def test_nothing_is_found_under_another_scope() -> None:
    tree: PrefixTree[str] = PrefixTree(budget_bytes=100)
    store(tree, MINE, (1, 2, 3))

    assert tree.match(THEIRS, (1, 2, 3)).length == 0
    assert tree.match(Scope(owner="mine", fingerprint="other"), (1, 2, 3)).length == 0
    assert tree.match(Scope(owner="mine", kind="deterministic"), (1, 2, 3)).length == 0


def test_texts_that_part_share_what_they_have_in_common() -> None:
    tree: PrefixTree[str] = PrefixTree(budget_bytes=100)
    store(tree, MINE, (1, 2, 3, 4))
    other = store(tree, MINE, (1, 2, 9))

    assert [(stretch.start, stretch.tokens) for stretch in tree.match(MINE, (1, 2, 9, 9)).path] == [
        (0, (1, 2, 3, 4)),
        (2, (9,)),
    ]
    assert [end for _, end in other.parts()] == [2, 3]


def test_the_least_lately_used_goes_first_and_the_end_of_a_path_before_its_beginning() -> None:
    tree: PrefixTree[str] = PrefixTree(budget_bytes=3)
    store(tree, MINE, (1,))
    store(tree, MINE, (1, 2))
    store(tree, MINE, (3,))
    store(tree, MINE, (4,))
    tree.match(MINE, (1, 2))
    tree.match(MINE, (4,))

    assert [stretch.tokens for stretch in tree.shrink()] == [(3,)]
    tree.budget_bytes = 2
    assert [stretch.tokens for stretch in tree.shrink()] == [(2,)]


def test_what_is_pinned_stays_however_small_the_budget() -> None:
    tree: PrefixTree[str] = PrefixTree(budget_bytes=0)
    (pinned,) = store(tree, MINE, (1,)).path
    store(tree, MINE, (2,))
    pinned.pins = 1

    assert [stretch.tokens for stretch in tree.shrink()] == [(2,)]
    assert (tree.held_bytes, pinned.state) == (1, "1")


def test_of_a_path_on_disk_the_end_leaves_the_memory_first() -> None:
    tree: PrefixTree[str] = PrefixTree(budget_bytes=1)
    store(tree, MINE, (1,))
    first, last = store(tree, MINE, (1, 2)).path
    first.is_on_disk = last.is_on_disk = True
    tree.match(MINE, (1, 2))
    tree.shrink()

    assert (first.state, last.state) == ("1", None)


def test_what_goes_on_alike_is_not_added_twice() -> None:
    tree: PrefixTree[str] = PrefixTree(budget_bytes=3)
    before = tree.match(MINE, (1, 2))
    store(tree, MINE, (1, 2))

    with pytest.raises(ValueError, match="can't be added at 0"):
        tree.add(before, MINE, (1, 5), "", 1)
    with pytest.raises(ValueError, match="0 tokens"):
        tree.add(before, MINE, (), "", 1)
    assert len(tree) == 1


def test_a_state_that_comes_back_from_disk_is_counted_once() -> None:
    tree: PrefixTree[str] = PrefixTree(budget_bytes=0)
    stretch = store(tree, MINE, (1, 2), size=7).path[0]
    stretch.is_on_disk = True
    tree.shrink()
    spilled = (stretch.state, tree.held_bytes)
    tree.bring_back(stretch, "again")
    tree.bring_back(stretch, "twice")

    assert spilled == (None, 0)
    assert (stretch.state, tree.held_bytes) == ("again", 7)


def test_what_an_owner_has_from_before_an_instant_is_dropped_with_all_that_hangs_on_it() -> None:
    tree: PrefixTree[str] = PrefixTree(budget_bytes=100)
    late = tree.add(Match(), MINE, (1, 2), "", 1, made_at=9.0)
    old = tree.add(late, MINE, (3,), "", 1, made_at=5.0)
    tree.add(old, MINE, (4,), "", 1, made_at=9.0)
    tree.add(Match(), THEIRS, (1, 2), "", 1, made_at=5.0)
    gone = tree.drop_owner("mine", before=5.0)

    assert [stretch.tokens for stretch in gone] == [(4,), (3,)]
    assert [tree.match(scope, (1, 2, 3, 4)).length for scope in (MINE, THEIRS)] == [2, 2]


def test_a_chain_of_more_stretches_than_python_allows_calls_is_dropped() -> None:
    """As a long conversation leaves it."""
    tree: PrefixTree[str] = PrefixTree(budget_bytes=10_000)
    match: Match[str] = Match()
    for _ in range(3000):
        match = tree.add(match, MINE, (1,), "", 1)

    assert len(tree.drop(match.path[0])) == 3000
    assert (len(tree), tree.held_bytes) == (0, 0)


@given(one=TEXTS, other=TEXTS)
def test_the_common_length_is_that_of_the_first_difference(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    length = common_length(one, other)

    assert one[:length] == other[:length]
    assert length in {len(one), len(other)} or one[length] != other[length]
