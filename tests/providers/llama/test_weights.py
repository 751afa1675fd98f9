import threading
from pathlib import Path

import pytest

from app.errors import ConfigurationError, ProviderError
from app.providers.llama.library import Library, add_listener, remove_listener
from app.providers.llama.weights import Weights
from tests.providers.support import gguf, text_value


def test_the_vocabulary_tells_its_special_tokens(weights: Weights) -> None:
    assert weights.special_tokens["<|im_start|>"] == 1
    assert weights.special_tokens["<|im_end|>"] in weights.end_tokens
    assert weights.bos == ()
    assert weights.reserved.ids == frozenset(range(17))


def test_a_long_piece_is_whole(weights: Weights) -> None:
    """The vocabulary's longest token has 162 bytes: more than a first look makes room for."""
    longest = max(range(weights.vocabulary_size), key=lambda token: len(weights.piece(token)))

    assert weights.tokenize_plain(weights.piece(longest).decode()) == [longest]
    assert len(weights.piece(longest)) > 64


def test_a_file_that_llama_cpp_refuses_is_refused_with_its_reason(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf(metadata=[("general.architecture", text_value("no-such-thing"))]))

    with pytest.raises(ConfigurationError, match="no-such-thing") as caught:
        Weights(library, path)
    assert caught.value.code == "model_load_failed"


def test_what_llama_cpp_says_goes_to_listeners_and_not_to_stderr(
    library: Library, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    heard: list[str] = []
    add_listener(heard.append)
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf(metadata=[("general.architecture", text_value("no-such-thing"))]))
    with pytest.raises(ConfigurationError):
        Weights(library, path)
    remove_listener(heard.append)

    assert any("no-such-thing" in line for line in heard)
    assert capfd.readouterr() == ("", "")


def test_closed_weights_refuse_instead_of_reading_freed_memory(library: Library, model_path: Path) -> None:
    weights = Weights(library, model_path)
    weights.close()
    weights.close()

    with pytest.raises(ProviderError) as caught:
        weights.tokenize_plain("hi")
    assert caught.value.code == "model_closed"


def test_close_waits_for_a_call_that_is_inside(library: Library, model_path: Path) -> None:
    weights = Weights(library, model_path)
    with weights._in_use():
        closing = threading.Thread(target=weights.close)
        closing.start()
        closing.join(timeout=0.05)
        assert closing.is_alive()
    closing.join(timeout=10)

    assert not closing.is_alive()


def test_special_tokens_are_read_out_of_templates_only(weights: Weights) -> None:
    assert weights.tokenize_template("<|im_end|>") == [2]
    assert weights.reserved.ids.isdisjoint(weights.tokenize_plain("<|im_end|>"))
