"""How one turn's prompt is put together: always the same layers in the same order."""

from app.prompt.assembly import PROMPT_LAYERS, Prompt, PromptLayer, assemble_prompt
from app.prompt.history import Trimmed, drop_turns, fit_history
from app.prompt.tokens import Tokenizer, approximate_tokens
from app.prompt.untrusted import wrap_untrusted

__all__ = [
    "PROMPT_LAYERS",
    "Prompt",
    "PromptLayer",
    "Tokenizer",
    "Trimmed",
    "approximate_tokens",
    "assemble_prompt",
    "drop_turns",
    "fit_history",
    "wrap_untrusted",
]
