import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.providers.llama.admission import FairQueue, Holding, Ticket, choose_victim, reserve

TICKETS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), max_size=12).map(
    lambda pairs: [ticket(tenant, arrival, cells) for arrival, (tenant, cells) in enumerate(pairs)]
)
HOLDINGS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), min_size=2, max_size=12).map(
    lambda pairs: [Holding(slot=n, tenant=tenant, arrival=n, cells=cells) for n, (tenant, cells) in enumerate(pairs)]
)


def ticket(tenant: str, arrival: int, cells: int = 10, *, weight: int = 1) -> Ticket[str]:
    return Ticket(tenant=tenant, arrival=arrival, cells=cells, item=f"{tenant}{arrival}", weight=weight)


def queue_of(tickets: list[Ticket[str]]) -> FairQueue[str]:
    queue: FairQueue[str] = FairQueue()
    for each in tickets:
        queue.put(each)
    return queue


def names(queue: FairQueue[str], **held: int) -> list[str]:
    return [each.item for each in queue.order(held)]


def test_tenants_take_turns_however_many_requests_one_of_them_sends() -> None:
    queue = queue_of([ticket("a", 0), ticket("a", 1), ticket("a", 2), ticket("b", 3)])

    assert names(queue) == ["a0", "b3", "a1", "a2"]


def test_who_holds_fewest_cells_comes_next() -> None:
    queue = queue_of([ticket("a", 0), ticket("b", 1)])

    assert names(queue, a=11) == ["b1", "a0"]
    assert names(queue, a=11, b=12) == ["a0", "b1"]


def test_a_tenant_of_twice_the_weight_gets_twice_the_turns() -> None:
    queue = queue_of([*(ticket("a", n, weight=2) for n in range(4)), *(ticket("b", n) for n in range(4, 8))])

    assert names(queue) == ["a0", "b4", "a1", "a2", "b5", "a3", "b6", "b7"]


def test_who_gives_way_holds_most_for_its_weight() -> None:
    heavy = [Holding(slot=n, tenant="a", arrival=n, cells=30, weight=4) for n in range(2)]
    light = [Holding(slot=n, tenant="b", arrival=n, cells=10) for n in range(2, 4)]

    assert choose_victim([*heavy, *light]) == 3


def test_one_that_gave_way_is_before_those_that_came_later() -> None:
    queue = queue_of([ticket("a", 1), ticket("a", 5)])
    queue.put(ticket("a", 3))

    assert names(queue) == ["a1", "a3", "a5"]


def test_what_was_taken_out_waits_no_more() -> None:
    queue = queue_of([ticket("a", 0), ticket("b", 1)])
    queue.remove(ticket("a", 0))

    assert (names(queue), len(queue)) == (["b1"], 1)
    with pytest.raises(ValueError, match="not in deque"):
        queue.remove(ticket("a", 0))


@given(tickets=TICKETS)
def test_everybody_gets_a_turn_and_tenants_keep_their_own_order(tickets: list[Ticket[str]]) -> None:
    order = list(queue_of(tickets).order({}))

    assert sorted(order, key=lambda each: each.arrival) == tickets
    assert [each.arrival for each in order if each.tenant == "a"] == [t.arrival for t in tickets if t.tenant == "a"]


def test_the_newest_of_the_tenant_that_holds_most_gives_way() -> None:
    holdings = [
        Holding(slot=0, tenant="a", arrival=0, cells=5),
        Holding(slot=1, tenant="b", arrival=1, cells=40),
        Holding(slot=2, tenant="b", arrival=2, cells=40),
        Holding(slot=3, tenant="a", arrival=3, cells=5),
    ]

    assert choose_victim(holdings) == 2


def test_the_last_one_does_not_give_way() -> None:
    assert choose_victim([Holding(slot=0, tenant="a", arrival=0, cells=5)]) is None
    assert choose_victim([]) is None


@given(holdings=HOLDINGS)
def test_the_first_never_gives_way(holdings: list[Holding]) -> None:
    victim = choose_victim(holdings)

    assert victim in {holding.slot for holding in holdings[1:]}


@pytest.mark.parametrize(
    ("length", "left", "most", "expected"), [(100, 50, 1000, 150), (100, 900, 2000, 356), (100, 900, 120, 120)]
)
def test_cells_are_promised_in_steps(length: int, left: int, most: int, expected: int) -> None:
    assert reserve(length, tokens_left=left, most=most) == expected
