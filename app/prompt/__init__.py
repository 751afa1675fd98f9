"""How one turn's prompt is put together: always the same layers in the same order."""

from app.prompt.assembly import PROMPT_LAYERS, Prompt, PromptLayer, assemble_prompt
from app.prompt.tokens import approximate_tokens
from app.prompt.untrusted import wrap_untrusted

__all__ = ["PROMPT_LAYERS", "Prompt", "PromptLayer", "approximate_tokens", "assemble_prompt", "wrap_untrusted"]
