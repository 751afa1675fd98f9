"""The cells of a context and what is stored of them, on a context without a model."""

from app.providers.llama.cache import Cache, Decoded, Piece
from app.providers.llama.prefixes import PrefixTree, Scope
from tests.providers.llama.fakes import FakeContext

SCOPE = Scope(owner="tenant")
TEXT = tuple(range(1, 101))


def make(*, cells: int = 500, budget: int = 10**6, sequences: int = 4) -> tuple[Cache, FakeContext]:
    context = FakeContext(cells=cells, sequences=sequences)
    return Cache(context, PrefixTree(budget_bytes=budget)), context


def evaluate(cache: Cache, slot: int, tokens: tuple[int, ...], start: int = 0) -> Decoded:
    return cache.decode([Piece(sequence=slot, start=start, tokens=tokens, has_output=True)])


def store(cache: Cache, text: tuple[int, ...]) -> None:
    evaluate(cache, 0, text)
    cache.keep(0, SCOPE, text)
    cache.release(0)


def bring(cache: Cache, slot: int, text: tuple[int, ...], *, source: int | None = None, length: int = 0) -> int:
    return cache.bring(slot, source=source, length=length, match=cache.find(SCOPE, text))


def test_the_last_token_is_never_found_because_it_tells_the_next() -> None:
    cache, _ = make()
    store(cache, TEXT)

    assert cache.find(SCOPE, TEXT).length == 99


def test_what_a_running_text_has_is_shared_and_the_rest_is_brought_back() -> None:
    cache, context = make()
    store(cache, TEXT)
    evaluate(cache, 1, TEXT[:60])
    reached = bring(cache, 2, (*TEXT, 0), source=1, length=60)

    assert (reached, context.used, cache.used_cells) == (100, 100, 100)
    assert [token for _, token in context.text(2)] == list(TEXT)
    assert cache.totals.restored_tokens == 40


def test_a_stretch_that_does_not_fit_whole_is_evaluated_instead() -> None:
    """Only ten tokens of it are wanted, but state bytes can't be cut."""
    cache, context = make(cells=150)
    store(cache, TEXT)
    evaluate(cache, 1, tuple(range(200, 260)))
    reached = bring(cache, 2, (*TEXT[:10], 7))

    assert (reached, context.used) == (0, 60)


def test_nothing_is_evaluated_where_the_cells_do_not_suffice() -> None:
    cache, context = make(cells=50)

    assert evaluate(cache, 0, TEXT) is Decoded.NO_ROOM
    assert (context.calls, cache.used_cells) == ([], 0)


def test_a_few_tokens_are_not_worth_a_stretch() -> None:
    cache, _ = make()
    evaluate(cache, 0, TEXT[:3])
    cache.keep(0, SCOPE, TEXT[:3])

    assert (cache.find(SCOPE, TEXT).length, cache.totals.kept) == (0, 0)


def test_a_long_text_is_kept_in_stretches_that_end_at_the_marks() -> None:
    context = FakeContext(cells=3000, sequences=2)
    tree: PrefixTree[bytearray] = PrefixTree(budget_bytes=10**7)
    cache = Cache(context, tree)
    text = tuple(range(2000))
    for start in range(0, 2000, 500):
        evaluate(cache, 0, text[start : start + 500], start)
    cache.keep(0, SCOPE, text, marks=(300, 0, 2000, 9999))

    assert sorted((stretch.start, stretch.end) for stretch in tree) == [(0, 300), (300, 1324), (1324, 2000)]


def test_what_is_stored_already_is_not_stored_again() -> None:
    cache, _ = make()
    store(cache, TEXT)
    before = cache.totals.kept
    store(cache, TEXT)
    evaluate(cache, 0, (*TEXT, 500, 501, 502, 503))
    cache.keep(0, SCOPE, (*TEXT, 500, 501, 502, 503))

    assert (before, cache.totals.kept) == (1, 2)


def test_the_store_holds_no_more_than_its_budget() -> None:
    cache, _ = make(budget=10)
    store(cache, TEXT)

    assert (cache.find(SCOPE, TEXT).length, cache.totals.forgotten) == (0, 1)


def test_a_state_that_cannot_be_loaded_is_lost_and_costs_its_evaluation() -> None:
    cache, context = make()
    store(cache, TEXT)
    context.refuses_states = True

    assert bring(cache, 1, (*TEXT, 0)) == 0
    assert (cache.totals.lost, context.used, cache.find(SCOPE, TEXT).length) == (1, 0, 0)


def test_when_nothing_runs_the_cells_begin_again() -> None:
    cache, context = make()
    evaluate(cache, 0, TEXT)
    evaluate(cache, 1, TEXT)
    cache.release(0)
    before = context.times_cleared
    cache.release(1)

    assert (before, context.times_cleared) == (0, 1)


def test_of_a_text_that_has_lost_its_beginning_nothing_is_kept_and_nothing_taken() -> None:
    context = FakeContext(cells=500, sequences=4, sliding_window=20)
    cache = Cache(context, PrefixTree(budget_bytes=10**6))
    evaluate(cache, 0, TEXT)
    context.firsts[0] = 85
    cache.keep(0, SCOPE, TEXT)

    assert cache.find(SCOPE, TEXT).length == 0
    assert [cache.can_take(0, length) for length in (60, 100)] == [False, False]


def test_no_stretch_is_longer_than_a_sliding_window() -> None:
    context = FakeContext(cells=500, sequences=4, sliding_window=20)
    tree: PrefixTree[bytearray] = PrefixTree(budget_bytes=10**6)
    cache = Cache(context, tree)
    evaluate(cache, 0, TEXT)
    cache.keep(0, SCOPE, TEXT)

    assert sorted((stretch.start, stretch.end) for stretch in tree) == [(n, n + 20) for n in range(0, 100, 20)]
