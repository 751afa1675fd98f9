"""Whose turn it is, and who has to give way when the cells run out. Pure.

Promises of this file: (1) among tenants that wait, the one that holds the fewest cells for its weight comes next;
within a tenant, requests keep the order of their arrival; (2) the request that arrived first of all that run never
gives way, so something always gets done; (3) who gives way belongs to a tenant that holds at least its share.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

ItemT = TypeVar("ItemT")

# An answer may be long and mostly is not: cells are promised in steps.
GROWTH_TOKENS: Final = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticket(Generic[ItemT]):
    """One request that waits. ``arrival`` orders it; ``cells`` is what it will hold at first; ``weight`` is its
    tenant's."""

    tenant: str
    arrival: int
    cells: int
    item: ItemT
    weight: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """What one running request holds and was promised."""

    slot: int
    tenant: str
    arrival: int
    cells: int
    weight: int = 1


class FairQueue(Generic[ItemT]):
    """Requests that wait, by tenant."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Ticket[ItemT]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, ticket: Ticket[ItemT]) -> None:
        """Adds a request where its arrival belongs: one that gave way is before those that came later."""
        line = self._waiting.setdefault(ticket.tenant, deque())
        place = next((index for index, other in enumerate(line) if other.arrival > ticket.arrival), len(line))
        line.insert(place, ticket)

    def remove(self, ticket: Ticket[ItemT]) -> None:
        """Takes a request out. Raises ValueError where it does not wait."""
        line = self._waiting.get(ticket.tenant, deque())
        line.remove(ticket)
        if not line:
            del self._waiting[ticket.tenant]

    def order(self, held: Mapping[str, int]) -> Iterator[Ticket[ItemT]]:
        """Everything that waits, in the order of its turns. ``held``: cells by tenant. Changes nothing."""
        held = dict(held)
        lines = {tenant: deque(line) for tenant, line in self._waiting.items()}
        while lines:
            tenant = min(lines, key=lambda name: (held.get(name, 0) / lines[name][0].weight, lines[name][0].arrival))
            ticket = lines[tenant].popleft()
            if not lines[tenant]:
                del lines[tenant]
            held[tenant] = held.get(tenant, 0) + ticket.cells
            yield ticket


def choose_victim(holdings: Sequence[Holding]) -> int | None:
    """The slot that gives way when cells run out: the newest of the tenant that holds most for its weight. None for the
    last one."""
    if len(holdings) < 2:
        return None
    held: dict[str, int] = {}
    for holding in holdings:
        held[holding.tenant] = held.get(holding.tenant, 0) + holding.cells
    first = min(holding.arrival for holding in holdings)
    movable = [holding for holding in holdings if holding.arrival != first]
    return max(movable, key=lambda holding: (held[holding.tenant] / holding.weight, holding.arrival)).slot


def reserve(length: int, *, tokens_left: int, most: int) -> int:
    """Up to which length a request of ``length`` tokens is promised cells, where it may write ``tokens_left`` more."""
    return min(length + min(tokens_left, GROWTH_TOKENS), most)
