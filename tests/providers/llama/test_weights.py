import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from app.errors import ConfigurationError, ProviderError
from app.providers.llama.library import Library, add_listener, remove_listener
from app.providers.llama.weights import Weights, _cut_runs
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


@pytest.mark.parametrize("text", ["." * 9000, "a" * 9000, " " * 9000, "字" * 3000, "é" * 4097 + " b", "x" * 2049])
def test_a_long_run_is_cut_and_nothing_of_it_is_lost(weights: Weights, text: str) -> None:
    tokens = weights.tokenize_plain(text)

    assert b"".join(map(weights.piece, tokens)) == text.encode()


def test_a_text_with_words_is_not_cut(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "word " * 3000 + "y" * 2000
    cut = weights.tokenize_plain(text)
    monkeypatch.setattr("app.providers.llama.weights._LONGEST_RUN_BYTES", 10**9)

    assert cut == weights.tokenize_plain(text)


def test_long_runs_are_found_in_linear_time() -> None:
    text = (b"x" * 2047 + b" ") * 2000
    started = time.process_time()
    pieces = list(_cut_runs(text))

    assert pieces == [text]
    # Of its own work, whatever else the machine has to do.
    assert time.process_time() - started < 2


_READS_A_LONG_RUN = """
import sys
from pathlib import Path
from app.providers.llama.constraints import Grammars
from app.providers.llama.grammars import answer_rule
from app.providers.llama.library import load_library
from app.providers.llama.weights import Weights

weights = Weights(load_library(), Path(sys.argv[1]))
grammars = Grammars(weights, end_tokens=weights.end_tokens, spell=weights.piece)
rule = answer_rule({"const": "." * 40_000})
grammars.compile(rule.grammar)
print(len(weights.tokenize_plain("." * 40_000)), len(grammars.start(rule).forced()))
"""


def test_a_long_run_does_not_end_the_process_where_words_are_read_by_regular_expressions(
    model_path: Path, tmp_path: Path
) -> None:
    """In a process of its own: without our cuts it is killed by its stack, as a prompt and as what a schema forces."""
    path = tmp_path / "falcon.gguf"
    file = model_path.read_bytes()
    place = file.index(b"smollm", file.index(b"tokenizer.ggml.pre"))
    path.write_bytes(file[:place] + b"falcon" + file[place + 6 :])
    done = subprocess.run(
        [sys.executable, "-c", _READS_A_LONG_RUN, str(path)], check=False, capture_output=True, text=True
    )
    path.unlink()

    assert (done.returncode, done.stderr) == (0, "")
    assert [int(count) > 1000 for count in done.stdout.split()] == [True, True]


def test_what_is_no_token_has_no_text_and_does_not_end_the_process(weights: Weights) -> None:
    with pytest.raises(RuntimeError, match="not 49152"):
        weights.piece(weights.vocabulary_size)
    with pytest.raises(RuntimeError, match="not -1"):
        weights.piece(-1)


def test_a_text_of_more_bytes_than_c_counts_is_refused(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.providers.llama.weights._MOST_TEXT_BYTES", 5)

    with pytest.raises(ProviderError) as caught:
        weights.tokenize_plain("123456")
    assert (caught.value.code, caught.value.retryable) == ("content_too_long", False)
