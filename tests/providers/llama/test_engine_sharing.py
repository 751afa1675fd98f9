"""What an engine evaluates once for several requests, for whom, and what one that runs beside others may notice."""

import pytest

from app.ids import TenantId
from tests.providers.llama.engines import TENANT, Asked, MakeEngine, submit


def test_equal_leading_tokens_of_a_tenant_are_not_evaluated_again(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine()
    engine.start()
    first, again = Asked(prompt), Asked(prompt)
    submit(engine, first)

    assert first.answer()[1].usage.cached_tokens == 0
    submit(engine, again)
    assert again.answer()[1].usage.cached_tokens == len(prompt) - 1
    assert engine.counters().prompt_tokens_evaluated == len(prompt) + 1
    assert engine.counters().prompt_tokens_cached == len(prompt) - 1


def test_what_differs_early_is_evaluated_from_there(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine()
    engine.start()
    first, other, alone = Asked(prompt), Asked([*prompt[:5], 100, *prompt]), Asked([*prompt[:5], 100, *prompt])
    submit(engine, first)
    first.answer()
    submit(engine, other)
    text, outcome = other.answer()
    fresh = make_engine()
    fresh.start()
    fresh.submit(alone.generation)

    assert outcome.usage.cached_tokens == 5
    assert alone.answer()[0] == text


def test_nothing_of_one_tenant_is_used_for_another(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine()
    engine.start()
    mine, theirs = Asked(prompt), Asked(prompt, tenant=TenantId("two"))
    submit(engine, mine, theirs)

    assert mine.answer()[1].usage.cached_tokens == 0
    assert theirs.answer()[1].usage.cached_tokens == 0


def test_requests_at_once_evaluate_what_they_share_once(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine(cells=1024)
    shared = prompt * 8
    asked = [Asked([*shared, *prompt[:number]], limit=3) for number in range(5, 9)]
    submit(engine, *asked)
    engine.start()
    answers = [each.answer() for each in asked]
    evaluated = engine.counters().prompt_tokens_evaluated
    alone = make_engine()
    alone.start()
    again = [Asked([*shared, *prompt[:number]], limit=3) for number in range(5, 9)]
    submit(alone, *again)

    assert evaluated == len(shared) + 5 + 1 + 2 + 3
    assert sorted(len(outcome.tokens) for _, outcome in answers) == [3] * 4
    assert [each.answer()[0] for each in again] == [text for text, _ in answers]


def test_a_deterministic_request_gives_equal_tokens_whatever_runs_beside_it(
    make_engine: MakeEngine, prompt: list[int]
) -> None:
    engine = make_engine(deterministic_tokens=256)
    engine.start()
    strict = [Asked(prompt * 9, limit=12) for _ in range(4)]
    others = [Asked([*prompt[:number], *prompt * 3], limit=20) for number in range(1, 9)]
    for each in strict:
        each.generation.deterministic = True
    submit(engine, strict[0])
    answers = [strict[0].answer()]
    submit(engine, *others[:4], strict[1], *others[4:], strict[2])
    answers += [strict[1].answer(), strict[2].answer()]
    [other.answer() for other in others]
    submit(engine, strict[3])
    answers.append(strict[3].answer())

    assert len({outcome.tokens for _, outcome in answers}) == 1
    assert [outcome.usage.cached_tokens for _, outcome in answers] == [0, 128, 128, 128]


def test_what_a_text_brings_back_and_what_it_leaves_is_counted(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine()
    engine.start()
    first, again = Asked(prompt, limit=2), Asked(prompt, limit=2)
    submit(engine, first)
    first.answer()
    submit(engine, again)
    again.answer()
    engine.stop()
    counters = engine.counters()

    assert counters.prompt_tokens_restored == counters.prompt_tokens_cached == len(prompt) - 1
    assert counters.used_cells == 0
    # 22.5 KiB a token: two times three heads of 64 numbers of two bytes in each of 30 layers.
    assert counters.stored_bytes == pytest.approx((len(prompt) + 1) * 23_040, rel=0.01)


def test_an_engine_that_has_ended_still_forgets_what_it_stored(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine()
    engine.start()
    asked = Asked(prompt)
    submit(engine, asked)
    asked.answer()
    engine.stop()
    before = engine.counters().stored_bytes
    engine.erase(str(TENANT))

    assert before > 0
    assert engine.counters().stored_bytes == 0
