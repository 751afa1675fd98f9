from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import ConfigurationError
from app.providers.llama.gguf import GgufHeader, read_header
from app.providers.llama.memory import MIB, ContextNeed, MemoryNeed, ModelShape, read_shape, require_fit, work_out_need

SHAPE = ModelShape(
    trained_context_tokens=8192,
    embedding_length=576,
    feed_forward_length=1536,
    vocabulary_size=49152,
    kv_heads=(3,) * 30,
    key_length=64,
    value_length=64,
)


def header(**metadata: object) -> GgufHeader:
    known = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.context_length": 128,
    }
    given = {name.replace("__", "."): value for name, value in metadata.items()}
    return GgufHeader(version=3, metadata={**known, **given}, tensors=(), data_offset=0, file_bytes=0)


def need_of(cells: int, *, sequences: int = 1, weight_bytes: int = 0, store_bytes: int = 0) -> MemoryNeed:
    contexts = [ContextNeed(cells=cells, sequences=sequences)]
    return work_out_need(SHAPE, weight_bytes=weight_bytes, contexts=contexts, store_bytes=store_bytes)


def test_the_shape_of_the_default_model_is_read(model_path: Path) -> None:
    assert read_shape(read_header(model_path)) == SHAPE


def test_the_kv_cache_of_the_default_model_is_what_llama_cpp_reports() -> None:
    need = need_of(8192)

    # "KV buffer size = 180.00 MiB", "compute buffer size = 21.51 MiB" in llama.cpp's log.
    assert need.kv_bytes == 180 * MIB
    assert need.buffer_bytes == pytest.approx(21.5 * MIB, rel=0.1)


def test_a_model_may_have_other_heads_in_each_layer() -> None:
    shape = read_shape(header(llama__attention__head_count=8, llama__attention__head_count_kv=[4, 0]))

    assert shape.kv_heads == (4, 0)
    assert (shape.key_length, shape.value_length) == (8, 8)


def test_heads_without_a_number_for_the_cache_are_as_many_there() -> None:
    assert read_shape(header(llama__attention__head_count=8)).kv_heads == (8, 8)


@pytest.mark.parametrize("name", ["llama__block_count", "llama__embedding_length", "llama__context_length"])
@pytest.mark.parametrize("value", [None, 0, "many"])
def test_a_file_that_does_not_say_its_shape_is_unsupported(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=name.replace("__", ".")) as caught:
        read_shape(header(**{name: value}))
    assert caught.value.code == "model_unsupported"


def test_more_layers_than_any_model_has_are_not_believed() -> None:
    with pytest.raises(ConfigurationError, match="4294967295 layers"):
        read_shape(header(llama__block_count=2**32 - 1))


def test_what_does_not_fit_is_refused_with_the_shortfall_in_mib() -> None:
    need = need_of(8192, weight_bytes=92 * MIB)

    with pytest.raises(ConfigurationError, match="100 MiB are missing") as caught:
        require_fit(need, available_bytes=need.total_bytes - 100 * MIB)
    assert caught.value.code == "model_too_large"


def test_what_just_fits_is_let_through() -> None:
    need = need_of(8192, weight_bytes=92 * MIB)

    require_fit(need, available_bytes=need.total_bytes)


@given(tokens=st.integers(1, 2**20), more=st.integers(0, 2**20))
def test_more_context_never_needs_less(tokens: int, more: int) -> None:
    small = need_of(tokens)

    assert need_of(tokens + more).total_bytes >= small.total_bytes


def test_a_second_context_and_the_store_are_counted() -> None:
    contexts = [ContextNeed(cells=8192, sequences=1)] * 2
    both = work_out_need(SHAPE, weight_bytes=0, contexts=contexts, store_bytes=5 * MIB)

    assert both.kv_bytes == 2 * need_of(8192).kv_bytes
    assert both.total_bytes - need_of(8192).total_bytes > 185 * MIB


def test_each_text_at_once_needs_a_row_of_the_vocabulary() -> None:
    assert need_of(8192, sequences=17).buffer_bytes - need_of(8192).buffer_bytes == 16 * 2 * 4 * 49152
