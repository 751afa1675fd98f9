"""The pieces of a prompt: what the template says, and what others said."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A piece of a prompt. Special tokens are read out of ``text`` only where it is the template's own.

    ``tokens``: the model wrote this, as these tokens; ``text`` is then empty.
    """

    text: str
    is_template: bool
    tokens: tuple[int, ...] = ()


def template(text: str) -> Segment:
    """Text of ours, in which the names of special tokens are those tokens."""
    return Segment(text=text, is_template=True)


def content(text: str) -> Segment:
    """Text that none of us wrote, in which nothing is a special token."""
    return Segment(text=text, is_template=False)
