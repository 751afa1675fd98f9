"""A router that goes by a table."""

from collections.abc import Mapping, Sequence

from app.errors import ConfigurationError


class TaskRouter:
    """Names the models for each class of work: the first choice, then those that stand in for it.

    Raises ConfigurationError for a class without a model, and for one that names a model twice.
    """

    def __init__(self, routes: Mapping[str, Sequence[str]]) -> None:
        self._routes = {task_class: tuple(models) for task_class, models in routes.items()}
        if empty := sorted(task_class for task_class, models in self._routes.items() if not models):
            raise ConfigurationError(f"no model is named for {', '.join(empty)}")
        if twice := sorted(name for name, models in self._routes.items() if len(set(models)) < len(models)):
            raise ConfigurationError(f"a model can't stand in for itself: {', '.join(twice)}")

    def route(self, task_class: str) -> Sequence[str]:
        """Raises ConfigurationError for a class that is not in the table."""
        models = self._routes.get(task_class)
        if models is None:
            raise ConfigurationError(f"there is no route for {task_class!r}")
        return models

    def task_classes(self) -> Sequence[str]:
        """What an agent may name as its ``task_class``."""
        return sorted(self._routes)
