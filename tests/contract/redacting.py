"""A plugin of the contract's tests: a guardrail that takes secrets out of what comes in."""

from app.hooks import PatternRedactor
from app.wiring.plugins import PluginRegistry


def register(registry: PluginRegistry) -> None:
    registry.add_guardrail(PatternRedactor(name="no_codes", patterns=["CODE-[0-9]+"]))
