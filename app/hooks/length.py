"""A bound on how much text goes in and comes out."""

from app.ports.hooks import GuardrailDecision


class LengthGuard:
    """Blocks input and output of more than ``max_chars`` characters; nothing is cut, for half a text is another one."""

    def __init__(self, max_chars: int, *, name: str = "length_guard") -> None:
        if max_chars < 1:
            raise ValueError(f"a limit of {max_chars} characters would block everything")
        self.name = name
        self._max_chars = max_chars

    async def check_input(self, text: str) -> GuardrailDecision:
        return self._check(text)

    async def check_output(self, text: str) -> GuardrailDecision:
        return self._check(text)

    def _check(self, text: str) -> GuardrailDecision:
        if len(text) <= self._max_chars:
            return GuardrailDecision()
        return GuardrailDecision(
            allowed=False,
            reason=f"{len(text)} characters, and {self._max_chars} are allowed",
            signals=("too_long",),
        )
