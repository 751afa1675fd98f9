"""What was evaluated before, found by its tokens. Pure: the states themselves are opaque and lie elsewhere.

A tree of stretches for each scope. A stretch holds the tokens of positions ``start`` to ``end``, and hangs on the
stretch that holds what comes before, at its end or somewhere inside it: state bytes can't be cut, so a stretch is
never split; who needs a part of one takes its first tokens. Each token's state is stored once.

Promises of this file: (1) what is found under a scope was added under that scope; (2) it equals the prompt token for
token; (3) a stretch that others hang on is not dropped, nor one that is pinned; (4) after ``shrink`` the bytes in
memory are within the budget, as far as pins allow.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

StateT = TypeVar("StateT")
# Of one kind: a list never equals a tuple.
TokensT = TypeVar("TokensT", list[int], tuple[int, ...])


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """Who may find what: nothing is shared between two scopes. ``owner`` is a tenant.

    ``kind`` parts states that are not bitwise alike: those of the deterministic context from those of the shared one.
    """

    owner: str
    fingerprint: str = ""
    kind: str = "shared"


@dataclass(eq=False, kw_only=True, slots=True)
class Stretch(Generic[StateT]):
    """Some tokens of a text that were evaluated after ``parent``'s. ``state`` None: it lies on disk only.

    ``made_at``: when the request began that brought the text, in epoch seconds; ``seen_at``: when the last one began
    that had all of it, so that it is that one's text as well. ``name``: what stands for the whole text up to its end;
    filled in by whoever needs one.
    """

    scope: Scope
    parent: "Stretch[StateT] | None"
    start: int
    tokens: tuple[int, ...]
    state: StateT | None
    size_bytes: int
    made_at: float = 0.0
    seen_at: float = 0.0
    is_on_disk: bool = False
    used_at: int = 0
    pins: int = 0
    name: str = ""
    children: "dict[tuple[int, int], Stretch[StateT]]" = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class Match(Generic[StateT]):
    """The longest stored beginning of a prompt: ``length`` tokens, and the stretches that hold them, in order.

    Of each stretch the part is meant that ends where the next one starts; of the last one, at ``length``.
    """

    length: int = 0
    path: tuple[Stretch[StateT], ...] = ()

    def parts(self) -> Iterator[tuple[Stretch[StateT], int]]:
        """Each stretch with the position up to which it is needed."""
        ends = (*(stretch.start for stretch in self.path[1:]), self.length)
        yield from zip(self.path, ends, strict=False)


class PrefixTree(Generic[StateT]):
    """All scopes' trees and the bytes of their states. Not safe for threads: the engine's own."""

    def __init__(self, *, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._roots: dict[Scope, dict[tuple[int, int], Stretch[StateT]]] = {}
        self._clock = 0
        self._stretches: set[Stretch[StateT]] = set()
        self._held_bytes = 0
        self._held_tokens = 0

    @property
    def held_tokens(self) -> int:
        """How many tokens' states are stored, in memory or on disk."""
        return self._held_tokens

    @property
    def held_bytes(self) -> int:
        """What the states in memory take."""
        return self._held_bytes

    def __len__(self) -> int:
        return len(self._stretches)

    def __iter__(self) -> Iterator[Stretch[StateT]]:
        return iter(tuple(self._stretches))

    def match(self, scope: Scope, tokens: tuple[int, ...]) -> Match[StateT]:
        """The longest beginning of ``tokens`` that is stored. Counts as a use."""
        self._clock += 1
        path: list[Stretch[StateT]] = []
        length = 0
        children = self._roots.get(scope, {})
        # Where two texts part, the next token tells them apart: at most one stretch goes on.
        while length < len(tokens) and (found := children.get((length, tokens[length]))) is not None:
            length += common_length(found.tokens, tokens[found.start : found.end])
            found.used_at = self._clock
            path.append(found)
            children = found.children
        return Match(length=length, path=tuple(path))

    def add(
        self,
        match: Match[StateT],
        scope: Scope,
        tokens: tuple[int, ...],
        state: StateT | None,
        size_bytes: int,
        *,
        made_at: float = 0.0,
    ) -> Match[StateT]:
        """Hangs ``tokens`` on what ``match`` found, whose length is where they start. Returns the longer match.

        Raises ValueError for no tokens, or where a stretch goes on alike: then ``match`` was not the longest.
        """
        children = match.path[-1].children if match.path else self._roots.setdefault(scope, {})
        key = (match.length, tokens[0]) if tokens else None
        if key is None or key in children:
            raise ValueError(f"{len(tokens)} tokens can't be added at {match.length}")
        self._clock += 1
        stretch = Stretch(
            scope=scope,
            parent=match.path[-1] if match.path else None,
            start=match.length,
            tokens=tokens,
            state=state,
            size_bytes=size_bytes,
            made_at=made_at,
            is_on_disk=state is None,
            used_at=self._clock,
        )
        children[key] = stretch
        self._stretches.add(stretch)
        self._held_tokens += len(tokens)
        self._held_bytes += size_bytes if state is not None else 0
        return Match(length=stretch.end, path=(*match.path, stretch))

    def bring_back(self, stretch: Stretch[StateT], state: StateT) -> None:
        """Holds a state in memory that was on disk only."""
        if stretch.state is None:
            stretch.state = state
            self._held_bytes += stretch.size_bytes

    def drop(self, stretch: Stretch[StateT]) -> list[Stretch[StateT]]:
        """Forgets a stretch and all that hangs on it, pinned or not. Returns what was forgotten, deepest first."""
        # By a list and not by calls: a long conversation is a chain of more stretches than Python allows calls.
        found = [stretch]
        for each in found:
            found.extend(each.children.values())
        for each in reversed(found):
            self._forget(each)
        return found[::-1]

    def drop_owner(self, owner: str, *, before: float | None = None) -> list[Stretch[StateT]]:
        """Forgets what is under the scopes of an owner, was made up to an instant and not seen since, with all that
        hangs on it; None: everything. Returns what was forgotten."""
        found = [root for scope, roots in self._roots.items() if scope.owner == owner for root in roots.values()]
        older: list[Stretch[StateT]] = []
        for stretch in found:
            if before is None or max(stretch.made_at, stretch.seen_at) <= before:
                older.append(stretch)
            else:
                # Of two requests at once the one that began later may have been evaluated first.
                found.extend(stretch.children.values())
        return [gone for stretch in older for gone in self.drop(stretch)]

    def shrink(self) -> list[Stretch[StateT]]:
        """Makes room, least lately used first: states that are on disk leave the memory, others are forgotten.

        Returns what was forgotten.
        """
        forgotten: list[Stretch[StateT]] = []
        while self._held_bytes > self.budget_bytes:
            idle = [stretch for stretch in self._stretches if self._may_leave_memory(stretch)]
            if not idle:
                break
            oldest = min(idle, key=_last_use)
            if oldest.is_on_disk:
                oldest.state = None
                self._held_bytes -= oldest.size_bytes
            else:
                self._forget(oldest)
                forgotten.append(oldest)
        return forgotten

    def shrink_disk(self, budget_bytes: int) -> list[Stretch[StateT]]:
        """Takes leaves from the disk, least lately used first, until the rest takes at most so many bytes there.

        Returns those, whose files have to be removed; what is not in memory either is forgotten.
        """
        removed: list[Stretch[StateT]] = []
        on_disk = sum(stretch.size_bytes for stretch in self._stretches if stretch.is_on_disk)
        while on_disk > budget_bytes:
            leaves = [each for each in self._stretches if each.is_on_disk and not each.children and not each.pins]
            if not leaves:
                break
            oldest = min(leaves, key=_last_use)
            oldest.is_on_disk = False
            if oldest.state is None:
                self._forget(oldest)
            removed.append(oldest)
            on_disk -= oldest.size_bytes
        return removed

    @staticmethod
    def _may_leave_memory(stretch: Stretch[StateT]) -> bool:
        has_no_use = not stretch.pins and stretch.state is not None
        return has_no_use and (stretch.is_on_disk or not stretch.children)

    def _forget(self, stretch: Stretch[StateT]) -> None:
        siblings = stretch.parent.children if stretch.parent is not None else self._roots[stretch.scope]
        del siblings[stretch.start, stretch.tokens[0]]
        if stretch.parent is None and not siblings:
            del self._roots[stretch.scope]
        self._stretches.discard(stretch)
        self._held_tokens -= len(stretch.tokens)
        if stretch.state is not None:
            self._held_bytes -= stretch.size_bytes
            stretch.state = None


def _last_use(stretch: Stretch[StateT]) -> tuple[int, int]:
    """Of a path that was used together, the end goes first."""
    return stretch.used_at, -stretch.start


def common_length(one: TokensT, other: TokensT) -> int:
    """How many leading tokens are equal. Compares slices, which C does: a thousand tokens take microseconds."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
