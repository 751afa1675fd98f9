"""The model in this process, behind the protocol of a provider: asyncio here, the engine's thread on the other side."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Final, TypeVar

from app.agents import ToolChoice
from app.conversation import StopReason
from app.errors import AdkError, ConfigurationError, ProviderError
from app.ids import TenantId
from app.ports.model import ModelInfo, ModelRequest, ModelResponse, TextDelta, Tokenizer
from app.providers.llama.calls import reader_of
from app.providers.llama.config import LlamaConfig, find_default_model
from app.providers.llama.engine import EngineCounters
from app.providers.llama.erasures import Erasures
from app.providers.llama.generation import MODEL_CLOSED, Emission, Generation, Outcome, model_closed
from app.providers.llama.library import LogListener, add_listener, remove_listener
from app.providers.llama.limits import available_memory_bytes
from app.providers.llama.model import LoadedModel, Prepared
from app.providers.llama.snapshots import erase_files

DEFAULT_MODEL: Final = "default"
MODEL_LOADING: Final = "model_loading"
MODEL_FAILED: Final = "model_failed"

_T = TypeVar("_T")


class LlamaProvider:
    """Runs one GGUF model in this process, under the names ``default`` and its file's name without the ending.

    ``start`` loads it, off the event loop; a request that comes earlier waits for that. ``on_warning`` gets what
    llama.cpp warns about, from any thread.
    """

    name = "llama"

    def __init__(
        self,
        config: LlamaConfig | None = None,
        *,
        on_warning: LogListener | None = None,
        available_memory: Callable[[], int] = available_memory_bytes,
    ) -> None:
        self._config = config or LlamaConfig()
        self._on_warning = on_warning
        self._available_memory = available_memory
        # One thread, apart from asyncio's own pool, which tools may have filled: loads, and tokenizes in the order
        # in which requests came.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="llama-prepare")
        self._names = _names(self._config)
        self._erasures = Erasures()
        self._load: asyncio.Future[None] | None = None
        self._model: LoadedModel | None = None
        self._load_error: AdkError | None = None
        self._closed = False

    async def start(self) -> None:
        """Loads the model. Idempotent; what failed once fails again without another look at the file.

        Raises ConfigurationError: ``model_file_missing``, ``model_file_unreadable``, ``model_file_damaged``,
        ``model_unsupported``, ``chat_template_unsupported``, ``context_too_long``, ``model_too_large``,
        ``model_load_failed``, ``flash_attention_unavailable``.
        """
        if self._closed:
            raise model_closed()
        if self._load is None:
            if self._on_warning is not None:
                add_listener(self._on_warning)
            self._load = asyncio.ensure_future(self._in_worker(self._load_model))
        # Shielded: a caller that gives up must not leave a half loaded model that nobody closes.
        await asyncio.shield(self._load)

    def _load_model(self) -> None:
        try:
            self._model = LoadedModel.load(
                self._config, available_memory_bytes=self._available_memory(), erasures=self._erasures
            )
        except AdkError as error:
            self._load_error = error
            raise

    def models(self) -> list[ModelInfo]:
        """The one model, under both of its names."""
        model = self._model
        return [
            ModelInfo(
                name=name,
                context_tokens=model.window_tokens if model else None,
                supports_tools=True,
                enforces_schema=True,
                supports_deterministic=self._config.deterministic_tokens is not None,
                deterministic_tokens=self._config.deterministic_tokens,
                notes=model.notes if model else (),
            )
            for name in self._names
        ]

    def tokenizer(self, model: str) -> Tokenizer | None:
        """Counts with the model's own vocabulary; None before it is loaded."""
        self._require_known(model)
        return self._model.tokenizer if self._model else None

    def readiness(self) -> str | None:
        if self._load_error is not None:
            return self._load_error.code
        if self._closed:
            return MODEL_CLOSED
        if self._model is None:
            return MODEL_LOADING
        return None if self._model.engine.failure is None else MODEL_FAILED

    def counters(self) -> EngineCounters:
        """Totals since the model was loaded, and how many requests wait and run."""
        return self._model.engine.counters() if self._model else EngineCounters()

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The whole answer. Raises as ``stream`` does."""
        async with aclosing(self.stream(request)) as items:
            async for item in items:
                if isinstance(item, ModelResponse):
                    return item
        raise ProviderError("the stream ended without an answer")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        """Yields text while it is generated, and last the whole answer.

        Raises ProviderError: ContextOverflowError before anything is evaluated, ``unknown_tool_choice``,
        ``schema_unsupported``, ``grammar_failed``, ``deterministic_unavailable``, ``empty_prompt``,
        ``content_not_encodable``, ``content_too_long``, ``engine_failed``, ``model_closed``, or the code for which the
        model was not loaded.
        """
        made_at = self._erasures.now()
        model = await self._require_model(request)
        prepared = await self._in_worker(partial(model.prepare, request))
        own_limit = self._config.max_output_tokens
        loop = asyncio.get_running_loop()
        arrivals: asyncio.Queue[Emission] = asyncio.Queue()
        generation = Generation(
            tenant_id=request.tenant_id,
            weight=request.weight,
            prompt=prepared.prompt,
            max_output_tokens=min(request.max_output_tokens or own_limit, own_limit),
            emit=partial(_hand_over, loop, arrivals),
            fingerprint=request.fingerprint,
            marks=prepared.marks,
            rule=prepared.rule,
            deterministic=request.deterministic,
            made_at=made_at,
        )
        model.engine.submit(generation)
        try:
            reader = _Reader(request, model, prepared)
            while isinstance(emission := await arrivals.get(), str):
                if text := reader.feed(emission):
                    yield TextDelta(text=text)
            if isinstance(emission, ProviderError):
                raise emission
            if text := reader.finish():
                yield TextDelta(text=text)
            response = reader.response(emission)
            model.remember(request, prepared, response, emission, made_at=made_at)
            yield response
        finally:
            model.engine.cancel(generation)

    def erase_tenant(self, tenant_id: TenantId, before: float | None = None) -> None:
        """Forgets what is kept of a tenant's prompts and answers, in memory and on disk, also of earlier processes.

        ``before``: only what was made up to that instant, in epoch seconds by this machine's clock (who has it from
        another clock adds what the two may differ by: what was forgotten too much is evaluated again). What hangs on
        such text goes, too. A request that came up to then and still runs goes on, and leaves nothing behind.

        Does not wait for it: it is done before the next call for the tenant is evaluated, and before ``close`` returns.
        """
        self._erasures.note(str(tenant_id), before)
        try:
            # In its turn: what is loading the model, or closing it, is at the same files.
            self._worker.submit(self._erase, tenant_id, before)
        except RuntimeError:
            # It was shut down: only the files are left.
            self._erase(tenant_id, before)

    def _erase(self, tenant_id: TenantId, before: float | None) -> None:
        config, model = self._config, self._model
        if model is not None:
            model.erase(tenant_id, before=before)
        elif config.snapshot_folder is not None and config.snapshot_key is not None:
            key = config.snapshot_key.get_secret_value().encode()
            erase_files(config.snapshot_folder, key=key, owner=str(tenant_id), before=before)

    async def close(self) -> None:
        """Interrupts what runs and frees the model. Requests that wait or run get ProviderError ``model_closed``."""
        was_closed, self._closed = self._closed, True
        if self._load is not None and not self._load.done():
            await asyncio.wait([self._load])
        if not was_closed:
            # Also where no model was loaded: an erasure may wait for its turn there.
            await self._in_worker(self._unload)
        if self._on_warning is not None:
            remove_listener(self._on_warning)
        self._worker.shutdown(wait=False)

    def _unload(self) -> None:
        # In the worker's turn: an erasure that was asked for before has to find the model, which may still be writing.
        model, self._model = self._model, None
        if model is not None:
            model.close()

    async def _require_model(self, request: ModelRequest) -> LoadedModel:
        self._require_known(request.model)
        if self._model is None:
            try:
                await self.start()
            except ConfigurationError as error:
                raise ProviderError(str(error), status=400, code=error.code) from error
        if self._model is None:
            raise model_closed()
        return self._model

    def _require_known(self, model: str) -> None:
        if model not in self._names:
            known = ", ".join(f"{self.name}:{name}" for name in self._names)
            raise ConfigurationError(f"there is no model {self.name}:{model}; known are {known}")

    async def _in_worker(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)


class _Reader:
    """Makes an answer out of the engine's pieces: calls are looked for only where tools were declared."""

    def __init__(self, request: ModelRequest, model: LoadedModel, prepared: Prepared) -> None:
        declared = bool(request.tools) and request.tool_choice != ToolChoice.NONE
        self._calls = reader_of(model.syntax) if declared else None
        self._shown: list[str] = []
        if self._calls is not None and prepared.head_text:
            self._calls.feed(prepared.head_text)

    def feed(self, text: str) -> str:
        return self._show(self._calls.feed(text) if self._calls else text)

    def finish(self) -> str:
        return self._show(self._calls.finish() if self._calls else "")

    def response(self, outcome: Outcome) -> ModelResponse:
        calls = self._calls.calls() if self._calls else ()
        # A cut answer stays a cut answer, also where a call can be read in it.
        is_whole_turn = outcome.stop_reason is StopReason.STOP
        return ModelResponse(
            content="".join(self._shown),
            tool_calls=calls,
            usage=outcome.usage,
            stop_reason=StopReason.TOOL_CALLS if calls and is_whole_turn else outcome.stop_reason,
            timing=outcome.timing,
        )

    def _show(self, text: str) -> str:
        self._shown.append(text)
        return text


def _names(config: LlamaConfig) -> tuple[str, ...]:
    try:
        path = config.model_path or find_default_model()
    except ConfigurationError:
        return (DEFAULT_MODEL,)
    return tuple(dict.fromkeys((DEFAULT_MODEL, path.stem)))


def _hand_over(loop: asyncio.AbstractEventLoop, arrivals: asyncio.Queue[Emission], emission: Emission) -> None:
    """Called on the engine's thread. Raises RuntimeError where the loop is closed: rule 4 then ends the request."""
    loop.call_soon_threadsafe(arrivals.put_nowait, emission)
