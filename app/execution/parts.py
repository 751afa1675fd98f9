"""What a runner is made of and is asked for, looked at before anything starts: no type checker stopped it."""

from collections.abc import Mapping, Sequence
from typing import Final

from app.conversation import replace_surrogates
from app.errors import ConfigurationError
from app.policy import Price
from app.ports.callbacks import CallbackSet

# A part that anybody may write is known by its methods.
_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "provider": ("models", "tokenizer", "stream"),
    "models": ("resolve",),
    "tools": ("find", "all", "check_arguments"),
    "hooks": ("hook", "guardrail", "deployment_hooks", "seal"),
    "approvals": ("decide",),
    "router": ("route",),
    "clock": ("now", "monotonic", "sleep"),
    "ids": ("new",),
}


def check_parts(**parts: object) -> None:
    """Raises ConfigurationError for one that lacks a method, and for a class in the place of an instance. None is no
    part."""
    for name, part in parts.items():
        if part is None:
            continue
        if isinstance(part, type):
            raise ConfigurationError(f"{name} is the class {part.__name__}, and not an instance of it")
        missing = [method for method in _METHODS[name] if not callable(getattr(part, method, None))]
        if missing:
            kind = type(part).__name__
            raise ConfigurationError(f"what is given as {name} needs a method {missing[0]}, and {kind} has none")


def check_types(expected: Mapping[str, type], **given: object) -> None:
    """Raises ConfigurationError for what is not of the type that is expected under its name. None is left out."""
    for name, value in given.items():
        if value is not None and not isinstance(value, expected[name]):
            raise ConfigurationError(f"{name} is of the type {expected[name].__name__}, not {type(value).__name__}")


def check_collections(*, guardrails: object, prices: object, callbacks: object) -> None:
    """Raises ConfigurationError where they hold something else than they should."""
    if guardrails is not None and not isinstance(guardrails, Mapping):
        raise ConfigurationError(f"guardrails are a mapping by name, not {type(guardrails).__name__}")
    for name, guardrail in (guardrails or {}).items():
        if not all(callable(getattr(guardrail, check, None)) for check in ("check_input", "check_output")):
            raise ConfigurationError(f"guardrail {name!r} has the methods check_input and check_output")
    if prices is not None and not (
        isinstance(prices, Mapping) and all(isinstance(price, Price) for price in prices.values())
    ):
        raise ConfigurationError("prices are a mapping of models to Price")
    sets: Sequence[object] = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    if not all(isinstance(each, CallbackSet) for each in sets):
        raise ConfigurationError("callbacks are a sequence of CallbackSet")


def check_texts(**texts: object) -> None:
    """Raises ConfigurationError for what is no text that can be stored. None is left out."""
    for name, text in texts.items():
        if text is not None and (
            not isinstance(text, str) or not text or "\0" in text or replace_surrogates(text) != text
        ):
            raise ConfigurationError(f"{name} is a text that can be stored, not {text!r}")


def require_texts(**texts: object) -> None:
    """Raises ConfigurationError for what is no text that can be stored, and where there is none."""
    for name, text in texts.items():
        if text is None:
            raise ConfigurationError(f"{name} is a text, and there is none")
    check_texts(**texts)
