"""Which model is right for a class of work."""

from collections.abc import Sequence
from typing import Protocol


class Router(Protocol):
    """Names models by their full name, ``provider:model``."""

    def route(self, task_class: str) -> Sequence[str]:
        """The models for this class of work, the first choice first; the others stand in for it when it fails.

        Raises ConfigurationError for a class that is not known.
        """
        ...
