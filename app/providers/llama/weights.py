"""A model's weights and its vocabulary: read only, so that any thread may tokenize while another one generates.

Ownership: whoever opened ``Weights`` closes them, after every context over them was closed. ``close`` waits for calls
that are inside C at that moment; a call that comes later raises ProviderError instead of reading freed memory.
"""

import ctypes
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from app.errors import ConfigurationError, ProviderError
from app.providers.llama.content import ReservedTokens
from app.providers.llama.library import Library

_CONTROL: Final = 8
_USER_DEFINED: Final = 16
_MOST_TEXT_BYTES: Final = 2**28
_BYTE_PAIRS: Final = 2
# Some tokenizers read words by a regular expression that calls itself for each character: from about 20,000 equal ones
# on the stack ends, and with it the process. A tenth of that is longer than any word.
_LONGEST_RUN_BYTES: Final = 2048
# Looked for at the beginning of a word only: once for each byte of it would take the square of its length.
_LONG_RUN: Final = re.compile(rb"(?<!\S)\S{%d,}|(?<!\s)\s{%d,}" % (_LONGEST_RUN_BYTES, _LONGEST_RUN_BYTES))


class Weights:
    """Weights mapped into memory, and the functions of their vocabulary."""

    def __init__(self, library: Library, path: Path) -> None:
        """Raises ConfigurationError ``model_load_failed`` with what llama.cpp said."""
        self._native = library.native
        library.forget_lines()
        parameters = self._native.llama_model_default_params()
        self._model = self._native.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            reason = library.recent_lines() or "no reason given"
            raise ConfigurationError(f"llama.cpp can't load {path}: {reason}", code="model_load_failed")
        self._vocabulary = self._native.llama_model_get_vocab(self._model)
        self._pieces: dict[int, bytes] = {}
        self._idle = threading.Condition()
        self._users = 0
        self._closed = False

    @property
    def model(self) -> Any:
        """The C pointer, for a context over these weights."""
        return self._model

    @cached_property
    def is_recurrent(self) -> bool:
        """Whether the model sums up a text in a state that can't be parted, as recurrent and hybrid ones do."""
        return bool(
            self._native.llama_model_is_recurrent(self._model) or self._native.llama_model_is_hybrid(self._model)
        )

    @cached_property
    def sliding_window(self) -> int | None:
        """So many tokens back some layers see; None: all of them see everything."""
        return int(self._native.llama_model_n_swa(self._model)) or None

    @cached_property
    def vocabulary_size(self) -> int:
        return int(self._native.llama_vocab_n_tokens(self._vocabulary))

    @cached_property
    def bos(self) -> tuple[int, ...]:
        """What every prompt begins with: one token, or none."""
        with self._in_use():
            wanted = self._native.llama_vocab_get_add_bos(self._vocabulary)
            return (int(self._native.llama_vocab_bos(self._vocabulary)),) if wanted else ()

    @cached_property
    def special_tokens(self) -> dict[str, int]:
        """Every token that is no plain text, by its text: control tokens and user defined ones."""
        with self._in_use():
            return {self._text(token): token for token in self._tokens_with(_CONTROL | _USER_DEFINED)}

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """The tokens with which a model ends its turn."""
        with self._in_use():
            is_end = self._native.llama_vocab_is_eog
            return frozenset(token for token in range(self.vocabulary_size) if is_end(self._vocabulary, token))

    @cached_property
    def reserved(self) -> ReservedTokens:
        """What content must not turn into. White space and single characters control nothing, whatever their kind."""
        with self._in_use():
            control = self._tokens_with(_CONTROL)
            added = [(token, self._text(token)) for token in self._tokens_with(_USER_DEFINED)]
        risky = [(token, text) for token, text in added if len(text) > 1 and text.strip()]
        return ReservedTokens(
            ids=frozenset([*control, *(token for token, _ in risky)]),
            parsed_texts=tuple(text for _, text in risky),
        )

    def tokenize_template(self, text: str) -> list[int]:
        return self._tokenize(text.encode(), ctypes.c_bool(True))

    def tokenize_plain(self, text: str) -> list[int]:
        return self._tokenize(text.encode(), ctypes.c_bool(False))

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for: none for a control token, and not always whole characters.

        Raises RuntimeError for what is no token: C++ would end the process.
        """
        piece = self._pieces.get(token)
        if piece is None:
            if not 0 <= token < self.vocabulary_size:
                raise RuntimeError(f"there are tokens 0 to {self.vocabulary_size - 1}, not {token}")
            with self._in_use():
                piece = self._pieces[token] = self._piece(token, ctypes.c_bool(False))
        return piece

    @cached_property
    def _reads_words(self) -> bool:
        """Whether the tokenizer parts a text into words by regular expressions."""
        return int(self._native.llama_vocab_type(self._vocabulary)) == _BYTE_PAIRS

    def make_grammar_tokenizer(self, end_tokens: Sequence[int]) -> Any:
        """The vocabulary in the form that llguidance needs. Must not be used once the weights are closed.

        Done as ``llguidance.llamacpp`` does it, which imports the whole binding and calls what is deprecated there.
        """
        with self._in_use():
            special = frozenset(self._tokens_with(_CONTROL)) | frozenset(
                token
                for token in self._tokens_with(_USER_DEFINED)
                if self._text(token).startswith("<") and self._text(token).endswith(">")
            )
            pieces = [
                # The byte that can't be in a text tells llguidance that text never makes this token.
                (b"\xff" if token in special else b"") + self._piece(token, ctypes.c_bool(True))
                for token in range(self.vocabulary_size)
            ]
            tokenize = ctypes.cast(self._tokenize_for_grammars, ctypes.c_void_p).value
            return import_module("llguidance").LLTokenizer.from_llamacpp(
                tokens=pieces,
                vocab_ptr=self._vocabulary,
                tokenize_fptr=tokenize,
                eos_token=list(end_tokens),
                slices=None,
            )

    @cached_property
    def _tokenize_for_grammars(self) -> Any:
        """``llama_tokenize`` with our bounds, for C: a schema may force a text that no word is as long as."""
        native = self._native
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_int32,
            ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.c_bool, ctypes.c_bool,
        )  # fmt: skip

        def tokenize(_: int, text: Any, size: int, room: Any, capacity: int, __: bool, parse_special: bool) -> int:
            try:
                tokens = self._tokenize(ctypes.string_at(text, size), ctypes.c_bool(parse_special))
            except ProviderError:
                # Through C no error finds its way.
                return 0
            if len(tokens) > capacity:
                return -len(tokens)
            ctypes.memmove(room, (native.llama_token * len(tokens))(*tokens), 4 * len(tokens))
            return len(tokens)

        return kind(tokenize)

    def close(self) -> None:
        """Frees the weights. Idempotent."""
        with self._idle:
            already, self._closed = self._closed, True
            self._idle.wait_for(lambda: self._users == 0)
        if not already:
            self._native.llama_model_free(self._model)

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with self._idle:
            if self._closed:
                raise ProviderError("the model was closed", code="model_closed")
            self._users += 1
        try:
            yield
        finally:
            with self._idle:
                self._users -= 1
                self._idle.notify_all()

    def _tokenize(self, text: bytes, parse_special: ctypes.c_bool) -> list[int]:
        if len(text) > _MOST_TEXT_BYTES:
            # C counts them in an int, and would go on with a negative length.
            raise ProviderError(f"a text has {len(text)} bytes", status=400, code="content_too_long")
        pieces = _cut_runs(text) if self._reads_words else (text,)
        return [token for piece in pieces for token in self._tokenize_piece(piece, parse_special)]

    def _tokenize_piece(self, text: bytes, parse_special: ctypes.c_bool) -> list[int]:
        # A token stands for at least one byte, but some vocabularies put a space in front, and some expand characters.
        capacity = len(text) + 2
        with self._in_use():
            while True:
                tokens = (self._native.llama_token * capacity)()
                count = self._native.llama_tokenize(
                    self._vocabulary, text, len(text), tokens, capacity, False, parse_special
                )
                if count >= 0:
                    return list(tokens[:count])
                capacity = -count

    def _piece(self, token: int, with_special: ctypes.c_bool) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            written = self._native.llama_token_to_piece(self._vocabulary, token, buffer, size, 0, with_special)
            if written >= 0:
                return buffer.raw[:written]
            size = -written

    def _tokens_with(self, attributes: int) -> list[int]:
        attribute_of = self._native.llama_vocab_get_attr
        return [token for token in range(self.vocabulary_size) if attribute_of(self._vocabulary, token) & attributes]

    def _text(self, token: int) -> str:
        return bytes(self._native.llama_vocab_get_text(self._vocabulary, token)).decode("utf-8", errors="replace")


def _cut_runs(text: bytes) -> Iterator[bytes]:
    """Cuts where so many bytes stand together without white space between them, or so much white space."""
    start = 0
    for found in _LONG_RUN.finditer(text):
        for edge in range(found.start() + _LONGEST_RUN_BYTES, found.end(), _LONGEST_RUN_BYTES):
            # Not inside of a character, which has up to four bytes.
            end = next((at for at in range(edge, edge - 4, -1) if text[at] & 0xC0 != 0x80), edge)
            yield text[start:end]
            start = end
    if start < len(text):
        yield text[start:]
