"""Puts an engine together: contexts over one model's weights, what they keep, and who decides."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from app.providers.llama.cache import Cache
from app.providers.llama.choosers import Constraint, DrawnTokens, FreeAnswer, LikeliestTokens
from app.providers.llama.context import ContextSize, LlamaContext, Sampling
from app.providers.llama.engine import Engine, EngineState, Lane
from app.providers.llama.erasures import Erasures
from app.providers.llama.generation import Generation
from app.providers.llama.job import Chooser
from app.providers.llama.library import Library
from app.providers.llama.planning import TILE_TOKENS, StepPlanner, StrictPlanner
from app.providers.llama.prefixes import PrefixTree
from app.providers.llama.scheduler import Manner, Planner, Scheduler
from app.providers.llama.snapshots import SnapshotFolder
from app.providers.llama.weights import Weights

# One sequence is spare: stored prefixes pass through it.
SPARE_SEQUENCES: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineOptions:
    """How an engine is built. ``cells``: tokens of all running requests together, at least ``window_tokens``.

    ``store_bytes``: what stored prefixes may take of the memory. ``deterministic_tokens``: the window of the second
    context; None: there is none. ``spell``: what a token adds to an answer's text; None: its piece. ``constrain``:
    what an answer has to follow; None: nothing.
    """

    window_tokens: int
    cells: int
    slots: int
    threads: int
    store_bytes: int
    end_tokens: frozenset[int]
    deterministic_tokens: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    spell: Callable[[int], bytes] | None = None
    constrain: Callable[[Generation], Constraint] | None = None


def build_engine(
    library: Library,
    weights: Weights,
    options: EngineOptions,
    *,
    snapshots: SnapshotFolder | None = None,
    erasures: Erasures | None = None,
    kind: type[LlamaContext] = LlamaContext,
) -> Engine:
    """An engine that was not started. ``snapshots`` stay the caller's. Raises ConfigurationError."""
    erasures = erasures or Erasures()
    tree: PrefixTree[bytearray] = PrefixTree(budget_bytes=options.store_bytes)
    if snapshots is not None:
        snapshots.fill(tree)
    contexts: list[LlamaContext] = []
    try:
        contexts.append(kind(library, weights, _size(options, cells=options.cells, slots=options.slots)))
        if options.deterministic_tokens is not None:
            contexts.append(kind(library, weights, _size(options, cells=options.deterministic_tokens, slots=1)))
    except BaseException:
        for context in contexts:
            context.close()
        raise
    state = EngineState(contexts)
    lanes: list[Lane] = []
    for context, is_strict in zip(contexts, (False, True), strict=False):
        tile = TILE_TOKENS if is_strict else 1
        cache = Cache(context, tree, tile_tokens=tile, snapshots=snapshots, erasures=erasures)
        manner = Manner(
            window_tokens=(options.deterministic_tokens if is_strict else None) or options.window_tokens,
            end_tokens=options.end_tokens,
            spell=options.spell or weights.piece,
            chooser=partial(_make_chooser, context, options),
            keeps_answers=not is_strict,
        )
        scheduler = Scheduler(cache, _planner(context, is_strict), manner=manner, watcher=state)
        lanes.append(Lane(context=context, scheduler=scheduler))
    return Engine(state, shared=lanes[0], deterministic=lanes[1] if len(lanes) > 1 else None)


def _size(options: EngineOptions, *, cells: int, slots: int) -> ContextSize:
    return ContextSize(cells=cells, sequences=slots + SPARE_SEQUENCES, threads=options.threads)


def _planner(context: LlamaContext, is_strict: bool) -> Planner:
    if is_strict:
        return StrictPlanner(batch_tokens=context.batch_tokens)
    return StepPlanner(batch_tokens=context.batch_tokens)


def _make_chooser(context: LlamaContext, options: EngineOptions, generation: Generation) -> Chooser:
    constraint = options.constrain(generation) if options.constrain is not None else FreeAnswer()
    sampling = options.sampling
    if sampling.temperature == 0:
        return LikeliestTokens(context, constraint)
    if generation.deterministic and sampling.seed is None:
        # Any seed, as long as it is always the same.
        sampling = Sampling(temperature=sampling.temperature, top_p=sampling.top_p, seed=0)
    return DrawnTokens(context, sampling, constraint)
