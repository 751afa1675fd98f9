"""Whether answers depend on what else there is: on the store, and on what runs beside them."""

from collections.abc import Sequence

from app.providers.llama.cache import Piece
from app.providers.llama.context import ContextSize, LlamaContext
from app.providers.llama.prefixes import common_length
from benchmarks.support.engine_rig import Asked, Rig, answer, ask

_WINDOW = 4096
_AT_ONCE = 16


def show_equal(rig: Rig, *, prompts: int, head_tokens: int, tail_tokens: int, output_tokens: int) -> None:
    """Deterministic: always equal. Shared: the share of equal ones, and how close candidates are where two part."""
    print(f"equal: {prompts} prompts, answered with the store and without")
    heads = [rig.text(head_tokens, seed=n) for n in range(4)]
    texts = [[*heads[n % 4], *rig.text(tail_tokens, seed=200 + n)] for n in range(prompts)]
    _show_with_and_without(rig, texts, output_tokens, is_strict=True)
    _show_with_and_without(rig, texts, output_tokens, is_strict=False)
    _show_repeats(rig, texts, output_tokens)


def _show_with_and_without(rig: Rig, prompts: Sequence[list[int]], limit: int, *, is_strict: bool) -> None:
    window = _WINDOW if is_strict else None
    cold: list[Asked] = []
    warm: list[Asked] = []
    with rig.engine(store_bytes=0, slots=1, deterministic_tokens=window) as engine:
        for prompt in prompts:
            cold += answer(engine, [prompt], limit=limit, deterministic=is_strict)
    with rig.engine(deterministic_tokens=window) as engine:
        for first in range(0, len(prompts), _AT_ONCE):
            warm += answer(engine, prompts[first : first + _AT_ONCE], limit=limit, deterministic=is_strict)
        cached = engine.counters().prompt_tokens_cached
    pairs = [(prompt, _tokens(one), _tokens(other)) for prompt, one, other in zip(prompts, cold, warm, strict=True)]
    different = [pair for pair in pairs if pair[1] != pair[2]]
    label = "deterministic (all of them)" if is_strict else "shared"
    print(f"  {label}: {len(pairs) - len(different)} of {len(pairs)} equal, {cached} tokens from the store")
    if different:
        gaps = sorted(_gap_at_difference(rig, *pair) for pair in different)
        print(
            f"    at the first difference the less likely of the two is below the likeliest by "
            f"{gaps[len(gaps) // 2]:.3f} in the median and {gaps[-1]:.3f} at most"
        )


def _show_repeats(rig: Rig, prompts: Sequence[list[int]], limit: int, *, repeats: int = 20) -> None:
    """One deterministic request again and again, while others come and go in both contexts."""
    with rig.engine(deterministic_tokens=_WINDOW) as engine:
        beside: list[Asked] = []
        asked: list[Asked] = []
        for number in range(repeats):
            other = prompts[number % len(prompts)]
            beside += ask(engine, [other, other[:-3]], limit=1 + number % limit)
            beside += ask(engine, [other[: 1 + len(other) * number // repeats]], limit=2, deterministic=True)
            asked += ask(engine, [prompts[0]], limit=limit, deterministic=True)
        for each in (*asked, *beside):
            each.wait()
    texts = {_tokens(each) for each in asked}
    print(f"  {repeats} repeats of a deterministic request among {len(beside)} others: {len(texts)} text (1)")


def _tokens(asked: Asked) -> tuple[int, ...]:
    assert asked.outcome is not None
    return asked.outcome.tokens


def _gap_at_difference(rig: Rig, prompt: Sequence[int], one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """How far the less likely of the two tokens at which answers part is below the likeliest of all."""
    length = common_length(one, other)
    text = [*prompt, *one[:length]]
    context = LlamaContext(rig.library, rig.weights, ContextSize(cells=_WINDOW, sequences=1, threads=rig.threads))
    for start in range(0, len(text), context.batch_tokens):
        chunk = tuple(text[start : start + context.batch_tokens])
        context.decode([Piece(sequence=0, start=start, tokens=chunk, has_output=start + len(chunk) == len(text))])
    row = context.row(0)
    gap = float(row.max()) - min(float(row[one[length]]), float(row[other[length]]))
    context.close()
    return gap
