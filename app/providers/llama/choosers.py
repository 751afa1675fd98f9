"""Ways to take the next token of an answer: the likeliest or a drawn one, freely or within a grammar."""

from typing import Any, Protocol

from app.providers.llama.context import LlamaContext, Sampling


class Constraint(Protocol):
    """What an answer has to follow. Belongs to one answer, and to the engine's thread."""

    def allows(self, token: int) -> bool: ...

    def forbid(self, row: Any) -> None:
        """Makes everything impossible, in a row of logits, that may not follow."""
        ...

    def take(self, token: int) -> None:
        """This token follows. Raises ProviderError where it may not."""
        ...

    def forced(self) -> list[int]:
        """Takes and returns what can only follow now."""
        ...

    def is_complete(self) -> bool:
        """Whether nothing may follow."""
        ...


class FreeAnswer:
    """An answer without rules."""

    def allows(self, token: int) -> bool:
        return True

    def forbid(self, row: Any) -> None:
        """Forbids nothing."""

    def take(self, token: int) -> None:
        """Follows nothing."""

    def forced(self) -> list[int]:
        return []

    def is_complete(self) -> bool:
        return False


class LikeliestTokens:
    """Always the likeliest token that is allowed."""

    def __init__(self, context: LlamaContext, constraint: Constraint) -> None:
        self._context = context
        self._constraint = constraint

    def choose(self, output: int) -> int:
        token = self._context.likeliest(output)
        # Mostly the model wants what it may: asking about one token is many times cheaper than about all of them.
        if not self._constraint.allows(token):
            self._constraint.forbid(self._context.row(output))
            token = self._context.likeliest(output)
        self._constraint.take(token)
        return token

    def forced(self) -> list[int]:
        return self._constraint.forced()

    def is_complete(self) -> bool:
        return self._constraint.is_complete()

    def close(self) -> None:
        """Holds nothing."""


class DrawnTokens:
    """Tokens drawn by their likelihood, by llama.cpp's samplers. Owns their chain."""

    def __init__(self, context: LlamaContext, sampling: Sampling, constraint: Constraint) -> None:
        self._context = context
        self._constraint = constraint
        self._chain = context.make_chain(sampling)

    def choose(self, output: int) -> int:
        if not isinstance(self._constraint, FreeAnswer):
            # Before the draw: the samplers look at the likeliest only, and none of those may be allowed.
            self._constraint.forbid(self._context.row(output))
        token = self._context.draw(self._chain, output)
        self._constraint.take(token)
        return token

    def forced(self) -> list[int]:
        return self._constraint.forced()

    def is_complete(self) -> bool:
        return self._constraint.is_complete()

    def close(self) -> None:
        self._context.native.llama_sampler_free(self._chain)
