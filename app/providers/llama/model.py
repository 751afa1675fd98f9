"""One loaded model: what has to hold before it is used, and how a request becomes its tokens."""

from dataclasses import dataclass
from typing import Final

from app.agents import ToolChoice
from app.errors import ConfigurationError, ProviderError
from app.ports.model import ModelRequest
from app.providers.llama.config import LlamaConfig, find_default_model
from app.providers.llama.content import PromptTokenizer
from app.providers.llama.context import LlamaContext, Sampling
from app.providers.llama.engine import Engine
from app.providers.llama.gguf import GgufHeader, read_header
from app.providers.llama.library import Library, load_library
from app.providers.llama.limits import available_processors
from app.providers.llama.memory import read_shape, require_fit, work_out_need
from app.providers.llama.templates import MARKERS, Family, choose_family, render, supports_tools
from app.providers.llama.weights import Weights

_MOST_CONTEXT_TOKENS: Final = 8192
# ggml's number of the type Q4_1 in ``general.file_type``: x86 has no fast kernel for it.
_FILE_TYPE_Q4_1: Final = 3


@dataclass(frozen=True, slots=True)
class ModelTokenizer:
    """Counts the tokens of a text as content, the way prompts are made."""

    tokenizer: PromptTokenizer

    def count(self, text: str) -> int:
        return len(self.tokenizer.encode_content(text))


class LoadedModel:
    """Weights, the engine over them, and the form of their prompts. Owns both: ``close`` frees them in that order."""

    def __init__(
        self, weights: Weights, *, library: Library, config: LlamaConfig, header: GgufHeader, window_tokens: int
    ) -> None:
        """Takes over ``weights`` once it has returned. Raises ConfigurationError; then they are still the caller's."""
        self._weights = weights
        self.window_tokens = window_tokens
        self.family = choose_family(header.text("tokenizer.chat_template"), weights.special_tokens)
        self.notes = _notes(header, self.family)
        self._prompts = PromptTokenizer(weights, weights.reserved)
        self.tokenizer = ModelTokenizer(self._prompts)
        # Some models go on with the next turn's head instead of ending theirs.
        markers = {weights.special_tokens[marker] for marker in MARKERS[self.family]}
        context = LlamaContext(
            library, weights, window_tokens=window_tokens, threads=config.threads or available_processors()
        )
        self.engine = Engine(
            context,
            weights,
            end_tokens=weights.end_tokens | markers,
            sampling=Sampling(temperature=config.temperature, top_p=config.top_p, seed=config.seed),
        )
        self.engine.start()

    @classmethod
    def load(cls, config: LlamaConfig, *, available_memory_bytes: int) -> "LoadedModel":
        """Checks a model file and loads it. Blocks. Raises ConfigurationError, see ``LlamaProvider.start``."""
        path = config.model_path or find_default_model()
        header = read_header(path)
        window_tokens = _require_usable(config, header, available_memory_bytes)
        library = load_library()
        weights = Weights(library, path)
        try:
            return cls(weights, library=library, config=config, header=header, window_tokens=window_tokens)
        except BaseException:
            weights.close()
            raise

    @property
    def supports_tools(self) -> bool:
        return supports_tools(self.family)

    def prepare(self, request: ModelRequest) -> tuple[int, ...]:
        """The tokens of a request's prompt. From any thread.

        Raises ProviderError ``tools_unsupported`` or ``unknown_tool_choice``.
        """
        forced = forced_tool(request)
        if forced is not None and all(tool.name != forced for tool in request.tools):
            raise ProviderError(f"tool_choice {forced!r} names no tool", status=400, code="unknown_tool_choice")
        tools = () if request.tool_choice == ToolChoice.NONE else request.tools
        if tools and not self.supports_tools:
            raise ProviderError(
                f"models of the family {self.family} can't be told about tools yet",
                status=400,
                code="tools_unsupported",
            )
        segments = render(self.family, request.messages, tools=tools, forced_tool=forced)
        return (*self._weights.bos, *self._prompts.encode(segments))

    def close(self) -> None:
        """Stops the engine and frees the memory. Blocks."""
        self.engine.stop()
        self._weights.close()


def forced_tool(request: ModelRequest) -> str | None:
    """The tool that a request wants called, or None."""
    choice = request.tool_choice
    return None if choice in {ToolChoice.AUTO.value, ToolChoice.NONE.value} else choice


def _require_usable(config: LlamaConfig, header: GgufHeader, available_bytes: int) -> int:
    """Checks a model against the configuration and the memory; returns the window in tokens."""
    shape = read_shape(header)
    window = config.context_tokens or min(shape.trained_context_tokens, _MOST_CONTEXT_TOKENS)
    if window > shape.trained_context_tokens:
        raise ConfigurationError(
            f"context_tokens is {window}, and the model was trained for {shape.trained_context_tokens}",
            code="context_too_long",
        )
    need = work_out_need(shape, weight_bytes=header.weight_bytes, context_tokens=window)
    require_fit(need, available_bytes=available_bytes)
    return window


def _notes(header: GgufHeader, family: Family) -> tuple[str, ...]:
    notes = [f"chat family {family}"]
    if name := header.text("general.name"):
        notes.insert(0, name)
    if header.integer("general.file_type") == _FILE_TYPE_Q4_1:
        notes.append(
            "Q4_1 has no fast kernel on x86: the same weights as Q4_0 evaluate prompts more than twice as fast"
        )
    return tuple(notes)
