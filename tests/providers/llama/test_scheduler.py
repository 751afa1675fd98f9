"""The scheduler on a context without a model, in which each token depends on all before it."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.conversation import StopReason
from app.errors import ProviderError
from app.ids import TenantId
from app.providers.llama.cache import Cache
from app.providers.llama.generation import Emission, Generation, Outcome
from app.providers.llama.grammars import AnswerRule
from app.providers.llama.job import Chooser
from app.providers.llama.planning import StepPlanner, StrictPlanner
from app.providers.llama.prefixes import PrefixTree
from app.providers.llama.scheduler import Manner, Scheduler
from tests.providers.llama.fakes import END, FakeChooser, FakeContext, RecordingWatcher, answer_to, outcome_of

WINDOW = 400
SHARED = tuple(range(1, 201))


class Bench:
    """A scheduler and everything around it."""

    def __init__(
        self, *, slots: int = 4, cells: int = 1000, budget: int = 10**6, tile: int = 1, can_share: bool = True
    ) -> None:
        self.context = FakeContext(cells=cells, sequences=slots + 1, can_share=can_share)
        self.tree: PrefixTree[bytearray] = PrefixTree(budget_bytes=budget)
        self.cache = Cache(self.context, self.tree, tile_tokens=tile)
        self.watcher = RecordingWatcher()
        self.choosers: list[FakeChooser] = []
        self.asked: list[tuple[Generation, list[Emission]]] = []
        strict = tile > 1
        self.scheduler = Scheduler(
            self.cache,
            StrictPlanner(batch_tokens=512) if strict else StepPlanner(batch_tokens=512),
            manner=Manner(
                window_tokens=WINDOW, end_tokens=frozenset({END}), spell=lambda token: b"%d " % token,
                chooser=self.make_chooser, keeps_answers=not strict, clock=lambda: 0.0,
            ),
            watcher=self.watcher,
        )  # fmt: skip

    def make_chooser(self, _: Generation) -> Chooser:
        self.choosers.append(FakeChooser(self.context))
        return self.choosers[-1]

    def ask(self, prompt: tuple[int, ...], *, limit: int = 5, tenant: str = "a", **fields: object) -> Generation:
        emissions: list[Emission] = []
        generation = Generation(
            tenant_id=TenantId(tenant), prompt=prompt, max_output_tokens=limit, emit=emissions.append,
            **fields,  # type: ignore[arg-type]  # passed on as they are
        )  # fmt: skip
        self.asked.append((generation, emissions))
        self.scheduler.submit(generation)
        return generation

    def run(self) -> list[Outcome]:
        """Runs until nothing is left to do; the outcomes of all that were not cancelled."""
        while self.scheduler.step():
            pass
        assert self.scheduler.is_idle
        assert (self.context.used, self.cache.used_cells) == (0, 0)
        assert all(chooser.is_closed for chooser in self.choosers)
        return [outcome_of(emissions) for generation, emissions in self.asked if not generation.cancelled]


def expected(prompt: tuple[int, ...], limit: int = 5) -> tuple[int, ...]:
    return answer_to(prompt, limit, WINDOW)


class Schedules(RuleBasedStateMachine):
    """Arrivals, cancels, evictions, aborts and states that are lost, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(slots=3, cells=WINDOW + 250, budget=6000)

    @rule(
        tenant=st.sampled_from("ab"),
        head=st.integers(0, 200),
        rest=st.lists(st.integers(1, 3), min_size=1, max_size=90).map(tuple),
        limit=st.integers(1, 320),
    )
    def arrive(self, tenant: str, head: int, rest: tuple[int, ...], limit: int) -> None:
        self.bench.ask(SHARED[:head] + rest, limit=limit, tenant=tenant, marks=(head,))

    @rule(which=st.integers(0, 20))
    def cancel(self, which: int) -> None:
        if self.bench.asked:
            self.bench.asked[which % len(self.bench.asked)][0].cancelled = True

    @rule(steps=st.integers(1, 60), refuses=st.booleans(), aborts=st.integers(0, 1))
    def work(self, steps: int, refuses: bool, aborts: int) -> None:
        self.bench.context.refuses_states = refuses
        self.bench.context.aborts = aborts
        for _ in range(steps):
            self.bench.scheduler.step()

    @rule()
    def shrink(self) -> None:
        self.bench.tree.budget_bytes = 0
        self.bench.tree.shrink()
        self.bench.tree.budget_bytes = 6000

    @invariant()
    def no_cell_is_lost_sight_of(self) -> None:
        assert self.bench.context.used == self.bench.cache.used_cells
        assert self.bench.tree.held_bytes <= self.bench.tree.budget_bytes

    def teardown(self) -> None:
        self.bench.run()
        for generation, emissions in self.bench.asked:
            if not generation.cancelled:
                tokens = outcome_of(emissions).tokens
                assert tokens == expected(generation.prompt, generation.max_output_tokens)


Schedules.TestCase.settings = settings(max_examples=1000, stateful_step_count=12, deadline=None)
test_whatever_happens_each_answer_is_that_of_a_model_asked_alone = Schedules.TestCase


def test_an_answer_is_that_of_the_model() -> None:
    bench = Bench()
    bench.ask(SHARED, limit=7)
    (outcome,) = bench.run()

    assert outcome.tokens == expected(SHARED, 7)
    assert (outcome.usage.input_tokens, outcome.usage.cached_tokens) == (200, 0)
    assert bench.watcher.evaluated == 200


def test_requests_at_once_evaluate_what_they_share_once() -> None:
    bench = Bench(slots=16)
    prompts = [(*SHARED, 1000 + n, 7, 8) for n in range(16)]
    [bench.ask(prompt) for prompt in prompts]
    outcomes = bench.run()

    assert [outcome.tokens for outcome in outcomes] == [expected(prompt) for prompt in prompts]
    assert bench.watcher.evaluated == 200 + 16 * 3
    assert bench.context.calls[:2] == [[203], [3] * 15]


def test_of_two_tenants_one_with_twice_the_weight_has_twice_the_room() -> None:
    bench = Bench(slots=6, cells=4000, can_share=False)
    for _ in range(6):
        bench.ask(SHARED, limit=50, tenant="light")
        bench.ask(SHARED, limit=50, tenant="heavy", weight=2)
    bench.scheduler.step()
    running = sorted(generation.tenant_id for generation in bench.watcher.running)
    assert running == ["heavy"] * 4 + ["light"] * 2


def test_nothing_is_shared_between_tenants_or_fingerprints() -> None:
    bench = Bench()
    bench.ask(SHARED, tenant="a")
    bench.ask(SHARED, tenant="b")
    bench.ask(SHARED, tenant="a", fingerprint="other")
    bench.run()

    assert (bench.watcher.evaluated, bench.watcher.cached) == (600, 0)


def test_the_second_turn_evaluates_what_is_new() -> None:
    bench = Bench()
    bench.ask(SHARED)
    (first,) = bench.run()
    bench.ask((*SHARED, *first.tokens, 7, 7, 7))
    second = bench.run()[1]

    # The last token of the first answer was never evaluated.
    assert second.usage.cached_tokens == 200 + len(first.tokens) - 1


def test_a_model_whose_state_cannot_be_parted_evaluates_everything() -> None:
    bench = Bench(can_share=False)
    bench.ask(SHARED)
    bench.ask(SHARED)
    outcomes = bench.run()

    assert [outcome.tokens for outcome in outcomes] == [expected(SHARED)] * 2
    assert (bench.watcher.evaluated, len(bench.tree)) == (400, 0)


def test_when_cells_run_out_somebody_gives_way_and_keeps_the_text() -> None:
    bench = Bench(cells=620)
    first, second = tuple(range(51, 101)), tuple(range(101, 151))
    bench.ask(first, limit=340)
    bench.ask(second, limit=340, tenant="b")
    outcomes = bench.run()

    assert [outcome.tokens for outcome in outcomes] == [expected(first, 340), expected(second, 340)]
    assert bench.watcher.times_gave_way > 0
    assert [outcome.usage.cached_tokens for outcome in outcomes] == [0, 0], "as it was when they first started"
    assert bench.watcher.evaluated == 100, "what gave way is brought back and not evaluated again"


def test_a_cancelled_request_gets_nothing_more_and_leaves_what_was_evaluated() -> None:
    bench = Bench()
    generation = bench.ask(SHARED, limit=100)
    bench.scheduler.step()
    generation.cancelled = True
    before = len(bench.asked[0][1])
    bench.run()
    bench.ask(SHARED)
    bench.run()

    assert len(bench.asked[0][1]) == before
    assert bench.watcher.evaluated == 201


def test_one_that_waits_for_another_takes_over_when_that_is_cancelled() -> None:
    bench = Bench()
    leader = bench.ask(SHARED * 2, limit=1)
    bench.ask((*SHARED, 7))
    bench.context.aborts = 1
    bench.scheduler.step()
    leader.cancelled = True

    assert bench.run()[0].tokens == expected((*SHARED, 7))


def test_the_longest_text_ends_an_answer() -> None:
    bench = Bench()
    bench.ask(tuple(range(1, WINDOW - 1)), limit=100)
    (outcome,) = bench.run()

    assert len(outcome.tokens) <= 3
    assert outcome.tokens == expected(tuple(range(1, WINDOW - 1)), 100)


def test_an_answer_that_reaches_its_limit_is_no_whole_one() -> None:
    bench = Bench()
    bench.ask((1, 2, 3), limit=1)

    assert bench.run()[0].stop_reason is StopReason.LENGTH


def test_a_request_that_cannot_be_begun_fails_alone() -> None:
    bench = Bench()
    make = bench.make_chooser

    def refuse_first(generation: Generation) -> Chooser:
        if generation.rule is not None:
            raise ProviderError("no", code="grammar_refused")
        return make(generation)

    object.__setattr__(bench.scheduler._manner, "chooser", refuse_first)
    bench.ask(SHARED, rule=AnswerRule(grammar="bad"))
    bench.ask((5, 6, 7))
    while bench.scheduler.step():
        pass

    assert [getattr(emission, "code", None) for emission in bench.asked[0][1]] == ["grammar_refused"]
    assert outcome_of(bench.asked[1][1]).tokens == expected((5, 6, 7))
    assert bench.context.used == 0


def test_everybody_is_told_when_the_engine_ends() -> None:
    bench = Bench(slots=1)
    bench.ask(SHARED)
    bench.ask(SHARED)
    bench.scheduler.step()
    bench.scheduler.refuse_all(ProviderError("over", code="model_closed"))

    assert [getattr(emissions[-1], "code", None) for _, emissions in bench.asked] == ["model_closed"] * 2
    assert bench.choosers[0].is_closed


@pytest.mark.parametrize("length", [63, 64, 65, 190])
def test_a_strict_scheduler_cuts_what_it_takes_again_at_tiles(length: int) -> None:
    bench = Bench(slots=1, tile=64)
    prompt = tuple(range(1, length + 1))
    bench.ask(prompt)
    bench.run()
    bench.ask(prompt)
    again = bench.run()[1]

    assert again.usage.cached_tokens == (length - 1) // 64 * 64
    assert again.tokens == expected(prompt)
    assert all(stretch.end % 64 == 0 for stretch in bench.tree)
