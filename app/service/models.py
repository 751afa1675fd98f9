"""Which models an agent leads to, and whether they have prices."""

from collections.abc import Sequence

from app.agents import Agent
from app.ports.catalogue import Catalogue


def models_of(agent: Agent, catalogue: Catalogue) -> Sequence[str]:
    """The full names of those that a run may call: its route's, its own, or the deployment's default. None where
    there is no such route and no default."""
    if agent.task_class is not None:
        return catalogue.route(agent.task_class)
    name = agent.model or catalogue.default_model()
    return () if name is None else (name,)


def find_unpriced(models: Sequence[str], catalogue: Catalogue) -> list[str]:
    """Those of the models whose cost can't be told, so that no ceiling on it could be kept."""
    return [model for model in models if catalogue.price(model) is None]


def tell_unpriced(models: Sequence[str]) -> str:
    """Says it to people."""
    return f"no cost can be bounded: {', '.join(models)} has no price in this deployment"
