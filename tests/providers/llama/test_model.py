"""Models that can't be used: refused by name, the same from ``start``, from readiness and from a request."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.errors import ConfigurationError, ProviderError
from app.providers import LlamaConfig, LlamaProvider
from app.providers.llama.model import LoadedModel, work_out_cells
from app.providers.llama.weights import Weights
from tests.providers.support import ask, system, user

Patch = Callable[[bytes, bytes], Path]


@pytest.fixture
def patch(model_path: Path, tmp_path: Path) -> Patch:
    """Writes the default model with other bytes in the place of some, and returns where."""

    def write(old: bytes, new: bytes) -> Path:
        path = tmp_path / "patched.gguf"
        path.write_bytes(model_path.read_bytes().replace(old, new))
        return path

    return write


@pytest.fixture
def truncated(model_path: Path, tmp_path: Path) -> Path:
    path = tmp_path / "cut.gguf"
    path.write_bytes(model_path.read_bytes()[:-1])
    return path


async def refused(config: LlamaConfig, *, available_bytes: int = 2**40) -> ConfigurationError:
    provider = LlamaProvider(config, available_memory=lambda: available_bytes)
    with pytest.raises(ConfigurationError) as caught:
        await provider.start()
    with pytest.raises(ProviderError) as requested:
        await provider.complete(ask(user("hi")))
    assert provider.readiness() == requested.value.code == caught.value.code
    assert not requested.value.retryable
    await provider.close()
    return caught.value


async def test_a_missing_model_is_refused(tmp_path: Path) -> None:
    error = await refused(LlamaConfig(model_path=tmp_path / "nowhere.gguf"))

    assert error.code == "model_file_missing"


async def test_a_truncated_model_is_refused(truncated: Path) -> None:
    error = await refused(LlamaConfig(model_path=truncated))

    assert error.code == "model_file_damaged"


async def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<html>404</html>")
    error = await refused(LlamaConfig(model_path=tmp_path / "page.gguf"))

    assert error.code == "model_file_damaged"


async def test_a_model_larger_than_the_memory_is_refused_with_the_shortfall() -> None:
    error = await refused(LlamaConfig(context_tokens=8192), available_bytes=100 * 2**20)

    assert error.code == "model_too_large"
    assert "KV cache 180" in str(error)
    assert "stored prefixes 256" in str(error)
    assert "520 MiB are missing" in str(error)


async def test_a_window_larger_than_the_model_was_trained_for_is_refused() -> None:
    error = await refused(LlamaConfig(context_tokens=8193))

    assert error.code == "context_too_long"


async def test_a_model_of_an_unknown_chat_family_is_refused(patch: Patch) -> None:
    error = await refused(LlamaConfig(model_path=patch(b"<|im_start|>", b"<|im_begin|>")))

    assert error.code == "chat_template_unsupported"


async def test_warnings_go_to_the_listener(patch: Patch) -> None:
    heard: list[str] = []
    config = LlamaConfig(model_path=patch(b"output_norm.weight", b"output_nrom.weight"))
    provider = LlamaProvider(config, on_warning=heard.append)
    with pytest.raises(ConfigurationError) as caught:
        await provider.start()
    await provider.close()

    assert caught.value.code == "model_load_failed"
    assert any("output_norm.weight" in line for line in heard)


@pytest.fixture
def loaded() -> Iterator[LoadedModel]:
    model = LoadedModel.load(LlamaConfig(context_tokens=256), available_memory_bytes=2**40)
    yield model
    model.close()


def test_the_prefix_of_an_agent_is_marked_where_its_conversations_part(loaded: LoadedModel, weights: Weights) -> None:
    prefix = "<|im_start|>system\nBe kind.<|im_end|>\n"
    marked = loaded.prepare(ask(system("Be kind."), user("q"), prefix_length=1))
    unmarked = [loaded.prepare(ask(system("Be kind."), prefix_length=1)), loaded.prepare(ask(user("q")))]

    assert marked.marks == (len(weights.tokenize_template(prefix)),)
    assert [prepared.marks for prepared in unmarked] == [(), ()]


def test_the_cells_of_the_shared_context_hold_at_least_a_window() -> None:
    given = [LlamaConfig(), LlamaConfig(cache_tokens=100), LlamaConfig(cache_tokens=9000)]

    assert [work_out_cells(config, 4096, trained_tokens=8192) for config in given] == [8192, 4096, 9000]
    assert work_out_cells(LlamaConfig(), 8192, trained_tokens=131072) == 16384
