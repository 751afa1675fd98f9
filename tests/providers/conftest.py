"""The default model, loaded once: its real weights answer in every test here."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.providers import LlamaConfig, LlamaProvider
from app.providers.llama import find_default_model
from app.providers.llama.library import Library, load_library
from app.providers.llama.weights import Weights

SMALL_WINDOW = 64


@pytest.fixture(scope="session")
def model_path() -> Path:
    return find_default_model()


def _started(config: LlamaConfig) -> Iterator[LlamaProvider]:
    provider = LlamaProvider(config)
    asyncio.run(provider.start())
    yield provider
    asyncio.run(provider.close())


@pytest.fixture(scope="session")
def llama() -> Iterator[LlamaProvider]:
    """A window of 1,024 tokens: its memory is taken in a moment."""
    yield from _started(LlamaConfig(context_tokens=1024))


@pytest.fixture(scope="session")
def small_llama() -> Iterator[LlamaProvider]:
    yield from _started(LlamaConfig(context_tokens=SMALL_WINDOW))


@pytest.fixture(scope="session")
def single_llama() -> Iterator[LlamaProvider]:
    """Answers one request after the other."""
    yield from _started(LlamaConfig(context_tokens=1024, slots=1))


@pytest.fixture(scope="session")
def library() -> Library:
    return load_library()


@pytest.fixture(scope="session")
def weights(library: Library, model_path: Path) -> Iterator[Weights]:
    opened = Weights(library, model_path)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def weights_with_added_token(
    library: Library, model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Weights]:
    """The default model, in which ``<tool_call>`` is a user defined token, as it is in Qwen's vocabulary."""
    path = tmp_path_factory.mktemp("model") / "added.gguf"
    path.write_bytes(_with_added_token(model_path.read_bytes()))
    opened = Weights(library, path)
    yield opened
    opened.close()
    path.unlink()


def _with_added_token(file: bytes) -> bytes:
    old, new = b"<repo_name>", b"<tool_call>"
    types = b"tokenizer.ggml.token_type"
    # Key, then the type of an array, the type of its elements and their number: 16 bytes before the first element.
    first_type = file.index(types) + len(types) + 16
    token = 3
    kind = first_type + 4 * token
    file = file[:kind] + (4).to_bytes(4, "little") + file[kind + 4 :]
    return file.replace(old, new, 1)
