"""One loaded model: what has to hold before it is used, and how a request becomes its tokens."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from app.agents import ToolChoice, ToolDeclaration
from app.conversation import StopReason
from app.errors import ConfigurationError, ContextOverflowError, ProviderError
from app.ids import TenantId
from app.ports.model import DETERMINISTIC_UNAVAILABLE, ModelRequest, ModelResponse
from app.providers.llama.answers import AnswerMemory
from app.providers.llama.building import SPARE_SEQUENCES, EngineOptions, build_engine
from app.providers.llama.config import LlamaConfig, find_default_model
from app.providers.llama.constraints import Grammars
from app.providers.llama.content import PromptTokenizer
from app.providers.llama.context import STATE_KIND, Sampling
from app.providers.llama.erasures import Erasures
from app.providers.llama.forms import forced_head, spelled_head, syntax_of
from app.providers.llama.generation import Outcome
from app.providers.llama.gguf import GgufHeader, read_header
from app.providers.llama.grammars import (
    AnswerRule,
    answer_rule,
    call_or_answer_rule,
    call_rule,
    forced_call_rule,
)
from app.providers.llama.library import Library, load_library
from app.providers.llama.limits import available_processors
from app.providers.llama.memory import MIB, ContextNeed, read_shape, require_fit, work_out_need
from app.providers.llama.prefixes import common_length
from app.providers.llama.segments import Segment
from app.providers.llama.snapshots import SnapshotFolder, SnapshotOptions
from app.providers.llama.templates import MARKERS, ChatForm, Family, choose_family, choose_form, render
from app.providers.llama.weights import Weights

_MOST_CONTEXT_TOKENS: Final = 8192
_MOST_CELLS: Final = 16384
# ggml's number of the type Q4_1 in ``general.file_type``: x86 has no fast kernel for it.
_FILE_TYPE_Q4_1: Final = 3


@dataclass(frozen=True, slots=True)
class ModelTokenizer:
    """Counts the tokens of a text as content, the way prompts are made."""

    tokenizer: PromptTokenizer

    def count(self, text: str) -> int:
        return len(self.tokenizer.encode_content(text))


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A request as the engine needs it.

    ``head``: the tokens at the end of the prompt that already belong to the answer, as ``head_text`` spells them.
    ``marks``: see ``Generation``.
    """

    prompt: tuple[int, ...]
    marks: tuple[int, ...]
    head: tuple[int, ...] = ()
    head_text: str = ""
    rule: AnswerRule | None = None


class LoadedModel:
    """Weights, the engine over them, and the form of their prompts. Owns both: ``close`` frees them in that order."""

    def __init__(
        self,
        weights: Weights,
        *,
        library: Library,
        config: LlamaConfig,
        path: Path,
        header: GgufHeader,
        erasures: Erasures,
    ) -> None:
        """Takes over ``weights`` once it has returned. Raises ConfigurationError; then they are still the caller's."""
        self._weights = weights
        trained_tokens = read_shape(header).trained_context_tokens
        self.window_tokens = window_tokens = work_out_window(config, trained_tokens)
        self.deterministic_tokens = config.deterministic_tokens
        self.family = choose_family(header.text("tokenizer.chat_template"), weights.special_tokens)
        self.notes = _notes(header, self.family, is_recurrent=weights.is_recurrent)
        form = choose_form(self.family, weights.special_tokens)
        self.syntax = syntax_of(form, weights.special_tokens)
        self._form = ChatForm(family=self.family, calls=self.syntax)
        self._prompts = PromptTokenizer(weights, weights.reserved)
        self.tokenizer = ModelTokenizer(self._prompts)
        self._answers = AnswerMemory(erasures=erasures)
        # Some models go on with the next turn's head instead of ending theirs.
        markers = {weights.special_tokens[marker] for marker in MARKERS[self.family]}
        end_tokens = weights.end_tokens | markers
        self._spellings = self.syntax.spellings()
        self._grammars = Grammars(weights, end_tokens=end_tokens, spell=self._spell)
        options = EngineOptions(
            window_tokens=window_tokens,
            cells=work_out_cells(config, window_tokens, trained_tokens=trained_tokens),
            slots=config.slots,
            threads=config.threads or available_processors(),
            store_bytes=config.prefix_store_mib * MIB,
            end_tokens=end_tokens,
            deterministic_tokens=config.deterministic_tokens,
            sampling=Sampling(temperature=config.temperature, top_p=config.top_p, seed=config.seed),
            spell=self._spell,
            constrain=lambda generation: self._grammars.start(generation.rule),
        )
        self._snapshots = _open_snapshots(config, library, path)
        try:
            self.engine = build_engine(library, weights, options, snapshots=self._snapshots, erasures=erasures)
        except BaseException:
            if self._snapshots is not None:
                self._snapshots.close()
            raise
        self.engine.start()

    @classmethod
    def load(
        cls, config: LlamaConfig, *, available_memory_bytes: int, erasures: Erasures | None = None
    ) -> "LoadedModel":
        """Checks a model file and loads it. Blocks. Raises ConfigurationError, see ``LlamaProvider.start``."""
        path = config.model_path or find_default_model()
        header = read_header(path)
        _require_usable(config, header, available_memory_bytes)
        library = load_library()
        weights = Weights(library, path)
        try:
            return cls(
                weights, library=library, config=config, path=path, header=header, erasures=erasures or Erasures()
            )
        except BaseException:
            weights.close()
            raise

    def prepare(self, request: ModelRequest) -> Prepared:
        """The tokens of a request's prompt, and what its answer has to follow. From any thread; blocks.

        Raises ProviderError ``unknown_tool_choice``, ``schema_unsupported``, ``deterministic_unavailable``,
        ``empty_prompt`` or ContextOverflowError.
        """
        forced = _forced_tool(request)
        tools = () if request.tool_choice == ToolChoice.NONE else request.tools
        rule = self._rule(request, tools, forced)
        recall = partial(self._answers.recall, request.tenant_id)
        body = self._encode(render(self._form, request.messages, tools=tools, recall=recall))
        head = tuple(self._prompts.encode(forced_head(self.syntax, forced.name))) if forced is not None else ()
        prompt = (*body, *head)
        if not prompt:
            # In some families an answer is opened by nothing, and some vocabularies have no token to begin with.
            raise ProviderError("the prompt is empty in this model's form", status=400, code="empty_prompt")
        window = self._window(request)
        if len(prompt) > window:
            raise ContextOverflowError(prompt_tokens=len(prompt), window_tokens=window)
        return Prepared(
            prompt=prompt,
            marks=self._marks(request, tools, body),
            head=head,
            head_text=spelled_head(self.syntax, forced.name) if forced is not None else "",
            rule=rule,
        )

    def remember(
        self, request: ModelRequest, prepared: Prepared, response: ModelResponse, outcome: Outcome, *, made_at: float
    ) -> None:
        """Keeps the tokens of an answer for the next turn of its conversation. ``made_at``: when the request came."""
        tokens = (*prepared.head, *outcome.tokens)
        strange = self._weights.reserved.ids.intersection(tokens) - self._spellings.keys()
        if response.stop_reason in {StopReason.STOP, StopReason.TOOL_CALLS} and not strange:
            self._answers.remember(request.tenant_id, response.content, response.tool_calls, tokens, made_at=made_at)

    def erase(self, tenant_id: TenantId, *, before: float | None) -> None:
        """Forgets what is kept of a tenant's prompts and answers and was made up to an instant; None: everything."""
        self._answers.erase(tenant_id, before=before)
        self.engine.erase(str(tenant_id), before=before)

    def close(self) -> None:
        """Stops the engine and frees the memory. Blocks."""
        self.engine.stop()
        if self._snapshots is not None:
            self._snapshots.close()
        self._weights.close()

    def _encode(self, segments: Iterable[Segment]) -> tuple[int, ...]:
        return (*self._weights.bos, *self._prompts.encode(segments))

    def _spell(self, token: int) -> bytes:
        """What an answer's token adds to its text: the marks of calls so that they can't be taken for text."""
        return self._spellings.get(token) or self._weights.piece(token)

    def _window(self, request: ModelRequest) -> int:
        if not request.deterministic:
            return self.window_tokens
        if self.deterministic_tokens is None:
            raise ProviderError(
                "this model has no context for deterministic requests: set deterministic_tokens",
                status=400,
                code=DETERMINISTIC_UNAVAILABLE,
            )
        return self.deterministic_tokens

    def _marks(
        self, request: ModelRequest, tools: Sequence[ToolDeclaration], prompt: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Where the part ends that the fingerprint covers: there other conversations of the agent part from this."""
        prefix = request.messages[: request.prefix_length]
        if not prefix or len(prefix) == len(request.messages):
            return ()
        segments = render(self._form, prefix, tools=tools, opens_answer=False)
        return (common_length(self._encode(segments), prompt),)

    def _rule(
        self, request: ModelRequest, tools: Sequence[ToolDeclaration], forced: ToolDeclaration | None
    ) -> AnswerRule | None:
        schema = request.output_schema
        if forced is not None:
            rule = forced_call_rule(self._callable(forced), self.syntax)
        elif tools and schema is not None:
            rule = call_or_answer_rule([self._callable(tool) for tool in tools], schema, self.syntax)
        elif tools:
            rule = call_rule([self._callable(tool) for tool in tools], self.syntax)
        elif schema is not None:
            rule = answer_rule(schema)
        else:
            return None
        self._grammars.compile(rule.grammar)
        return rule

    def _callable(self, tool: ToolDeclaration) -> ToolDeclaration:
        """The tool with parameters that a grammar can be made of: any object, where its own are no such schema."""
        try:
            self._grammars.compile(forced_call_rule(tool, self.syntax).grammar)
        except ProviderError:
            return tool.model_copy(update={"parameters": {"type": "object"}})
        return tool


def _forced_tool(request: ModelRequest) -> ToolDeclaration | None:
    """The tool that a request wants called, or None."""
    choice = request.tool_choice
    if choice in {ToolChoice.AUTO.value, ToolChoice.NONE.value}:
        return None
    named = next((tool for tool in request.tools if tool.name == choice), None)
    if named is None:
        raise ProviderError(f"tool_choice {choice!r} names no tool", status=400, code="unknown_tool_choice")
    return named


def work_out_cells(config: LlamaConfig, window_tokens: int, *, trained_tokens: int) -> int:
    """How many tokens the shared context holds: at least a window, so that any request fits alone."""
    chosen = config.cache_tokens or min(2 * window_tokens, trained_tokens, _MOST_CELLS)
    return max(window_tokens, chosen)


def work_out_window(config: LlamaConfig, trained_tokens: int) -> int:
    """The window in tokens."""
    return config.context_tokens or min(trained_tokens, _MOST_CONTEXT_TOKENS)


def _open_snapshots(config: LlamaConfig, library: Library, path: Path) -> SnapshotFolder | None:
    if config.snapshot_folder is None or config.snapshot_key is None:
        return None
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    options = SnapshotOptions(
        folder=config.snapshot_folder,
        key=config.snapshot_key.get_secret_value().encode(),
        dialect=f"{library.version} {digest} {STATE_KIND}",
        budget_bytes=config.snapshot_mib * MIB,
    )
    try:
        return SnapshotFolder(options)
    except OSError as error:
        raise ConfigurationError(
            f"snapshots can't be written to {config.snapshot_folder}: {error.strerror}", code="snapshot_folder_unusable"
        ) from error


def _require_usable(config: LlamaConfig, header: GgufHeader, available_bytes: int) -> None:
    """Checks a model against the configuration and the memory."""
    shape = read_shape(header)
    window = work_out_window(config, shape.trained_context_tokens)
    if window > shape.trained_context_tokens:
        raise ConfigurationError(
            f"context_tokens is {window}, and the model was trained for {shape.trained_context_tokens}",
            code="context_too_long",
        )
    cells = work_out_cells(config, window, trained_tokens=shape.trained_context_tokens)
    contexts = [ContextNeed(cells=cells, sequences=config.slots + SPARE_SEQUENCES)]
    if config.deterministic_tokens is not None:
        contexts.append(ContextNeed(cells=config.deterministic_tokens, sequences=1 + SPARE_SEQUENCES))
    need = work_out_need(
        shape,
        weight_bytes=header.weight_bytes,
        contexts=contexts,
        store_bytes=config.prefix_store_mib * MIB,
    )
    require_fit(need, available_bytes=available_bytes)


def _notes(header: GgufHeader, family: Family, *, is_recurrent: bool) -> tuple[str, ...]:
    notes = [f"chat family {family}"]
    if is_recurrent:
        notes.append("the state of a recurrent or hybrid model can't be parted: every prompt is evaluated whole")
    if name := header.text("general.name"):
        notes.insert(0, name)
    if header.integer("general.file_type") == _FILE_TYPE_Q4_1:
        notes.append(
            "Q4_1 has no fast kernel on x86: the same weights as Q4_0 evaluate prompts more than twice as fast"
        )
    return tuple(notes)
