"""The ctypes part by itself, on real weights: what is asked of llama.cpp is done, and what would end the process is
refused before it sees it."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from app.errors import ConfigurationError
from app.providers.llama.cache import Decoded, Piece
from app.providers.llama.context import ContextSize, LlamaContext
from app.providers.llama.library import Library
from app.providers.llama.weights import Weights


@pytest.fixture
def context(library: Library, weights: Weights) -> Iterator[LlamaContext]:
    made = LlamaContext(library, weights, ContextSize(cells=1024, sequences=4, threads=2))
    yield made
    made.close()
    made.close()


@pytest.fixture
def text(weights: Weights) -> tuple[int, ...]:
    return tuple(weights.tokenize_plain("Once upon a time there was a king who had seven sons and one daughter. " * 4))


def piece(sequence: int, start: int, tokens: Sequence[int], *, has_output: bool = True) -> Piece:
    return Piece(sequence=sequence, start=start, tokens=tuple(tokens), has_output=has_output)


def logits(context: LlamaContext, *pieces: Piece) -> list[float]:
    assert context.decode(pieces) is Decoded.DONE
    return [float(value) for value in context.row(0)[:1000]]


def test_a_copied_beginning_goes_on_as_the_whole_text_does(context: LlamaContext, text: tuple[int, ...]) -> None:
    context.decode([piece(0, 0, text[:40])])
    context.copy(0, 1, 0, 40)
    whole = logits(context, piece(0, 40, text[40:50]))
    forked = logits(context, piece(1, 40, text[40:50]))

    assert forked == pytest.approx(whole, abs=0.5)
    assert (context.length(0), context.length(1)) == (50, 50)


def test_a_stretch_comes_back_bit_for_bit(context: LlamaContext, text: tuple[int, ...]) -> None:
    context.decode([piece(0, 0, text[:40])])
    first = context.likeliest(0)
    states = []
    for start, end in [(0, 30), (30, 40)]:
        context.copy(0, 3, start, end)
        states.append((context.read_state(3), start, end))
        context.cut(3, 0)
    before = logits(context, piece(0, 40, [first]))
    context.cut(0, 0)
    context.clear()
    for state, start, end in states:
        assert context.write_state(3, state, start=start, end=end)
        context.copy(3, 0, start, end)
        context.cut(3, 0)

    assert logits(context, piece(0, 40, [first])) == before


def test_outputs_are_those_of_each_sequence_in_order(context: LlamaContext, text: tuple[int, ...]) -> None:
    alone = []
    for start in (0, 5, 10):
        context.decode([piece(0, 0, text[start : start + 20])])
        alone.append(context.likeliest(0))
        context.cut(0, 0)
    together = [piece(sequence, 0, text[start : start + 20]) for sequence, start in enumerate((0, 5, 10))]
    context.decode(together)

    assert [context.likeliest(output) for output in range(3)] == alone


def test_an_aborted_call_leaves_nothing_behind(context: LlamaContext, text: tuple[int, ...]) -> None:
    before = context.decode([piece(0, 0, text[:20])])
    context.abort()
    aborted = context.decode([piece(0, 20, (text * 8)[:490])])
    length = context.length(0)
    context.resume()
    after = context.decode([piece(0, 20, text[:20])])

    assert (before, aborted, after) == (Decoded.DONE, Decoded.ABORTED, Decoded.DONE)
    assert (length, context.length(0)) == (20, 40)


def test_where_no_cells_are_left_nothing_is_applied(context: LlamaContext, text: tuple[int, ...]) -> None:
    for start in (0, 500):
        context.decode([piece(0, start, (text * 8)[:500])])
    outcome = context.decode([piece(1, 0, text[:30])])

    assert outcome is Decoded.NO_ROOM
    assert context.length(1) == 0


def test_a_state_that_is_not_what_it_should_be_fills_nothing(context: LlamaContext, text: tuple[int, ...]) -> None:
    context.decode([piece(0, 0, text[:20])])
    state = context.read_state(0)

    assert not context.write_state(1, state[: len(state) // 2], start=0, end=20)
    assert not context.write_state(1, state, start=0, end=21)
    assert not context.write_state(1, state + b"more", start=0, end=20)
    assert context.length(1) == 0


Misuse = Callable[[LlamaContext, tuple[int, ...]], object]


@pytest.mark.parametrize(
    ("misuse", "told"),
    [
        (lambda context, text: context.decode([piece(1, 0, (text * 9)[:513])]), "513"),
        (lambda context, text: context.decode([]), "not 0"),
        (lambda context, text: context.decode([piece(4, 0, text)]), "sequences 0 to 3, not 4"),
        (lambda context, text: context.decode([piece(-1, 0, text)]), "not -1"),
        (lambda context, text: context.decode([piece(1, 5, text)]), "goes on at 0"),
        (lambda context, text: context.decode([piece(1, 0, text), piece(1, 0, text)]), "stands twice"),
        (lambda context, text: context.copy(0, 2, 0, 10), "goes on at 5, not at 0"),
        (lambda context, text: context.copy(0, 1, 0, 11), "sequence 0 does not hold 0 to 11"),
        (lambda context, text: context.copy(0, 0, 0, 5), "only for itself"),
        (lambda context, text: context.copy(0, 256, 0, 5), "not 256"),
        (lambda context, text: context.read_state(256), "not 256"),
        (lambda context, text: context.write_state(0, bytearray(8), start=0, end=1), "not empty"),
        (lambda context, text: context.copy(256, 1, 0, 5), "not 256"),
        (lambda context, text: context.copy(1, 3, 0, 1), "sequence 1 does not hold 0 to 1"),
        (lambda context, text: context.cut(256, 0), "not 256"),
        (lambda context, text: context.length(256), "not 256"),
        (lambda context, text: context.length(-1), "not -1"),
        (lambda context, text: context.write_state(4, bytearray(8), start=0, end=1), "sequences 0 to 3, not 4"),
        (lambda context, text: context.decode([piece(1, 0, [49_152])]), "llama_decode failed with -1"),
        (lambda context, text: context.row(1), "1 outputs, and none is number 1"),
        (lambda context, text: context.row(-1), "none is number -1"),
    ],
)
def test_what_would_end_the_process_or_mix_texts_is_refused(
    context: LlamaContext, text: tuple[int, ...], misuse: Misuse, told: str
) -> None:
    context.decode([piece(2, 0, text[:5])])
    context.decode([piece(0, 0, text[:10])])

    with pytest.raises(RuntimeError, match=told):
        misuse(context, text)
    assert (context.length(0), context.length(1), context.length(2)) == (10, 0, 5)


def test_more_sequences_than_llama_cpp_is_built_for_are_refused(library: Library, weights: Weights) -> None:
    with pytest.raises(ConfigurationError, match="not 257"):
        LlamaContext(library, weights, ContextSize(cells=512, sequences=257, threads=1))


def test_a_text_without_a_beginning_is_not_gone_on_with(context: LlamaContext, text: tuple[int, ...]) -> None:
    """llama.cpp would go on, with what was never said."""
    context.decode([piece(0, 0, text[:10])])
    context.copy(0, 1, 3, 6)

    with pytest.raises(RuntimeError, match="sequence 1 has no beginning"):
        context.decode([piece(1, 6, text[6:8])])
    assert context.length(1) == 6


def test_as_many_outputs_as_there_are_sequences_are_worked_out(context: LlamaContext, text: tuple[int, ...]) -> None:
    """More ends the process: it can't be asked for, because a sequence stands in a call once, with one output."""
    outcome = context.decode([piece(sequence, 0, text[:3]) for sequence in range(4)])

    assert outcome is Decoded.DONE
    assert len({float(context.row(output)[0]) for output in range(4)}) == 1


def test_a_call_that_was_not_done_has_no_outputs(context: LlamaContext, text: tuple[int, ...]) -> None:
    context.decode([piece(0, 0, text[:20])])
    context.abort()
    outcome = context.decode([piece(0, 20, (text * 8)[:490])])
    context.resume()

    assert outcome is Decoded.ABORTED
    with pytest.raises(RuntimeError, match="0 outputs"):
        context.row(0)


def test_llama_cpp_says_that_attention_is_flash_attention(library: Library, context: LlamaContext) -> None:
    assert library.flash_attention() == "enabled"


def test_a_context_without_flash_attention_is_refused(
    library: Library, weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.providers.llama.context._FLASH_ATTENTION_ON", 0)

    with pytest.raises(ConfigurationError, match="attention is disabled") as caught:
        LlamaContext(library, weights, ContextSize(cells=256, sequences=1, threads=1))
    assert caught.value.code == "flash_attention_unavailable"
